"""What an entry of a store is: how its key is made, ordered, taken apart, and how its value is written anew."""
