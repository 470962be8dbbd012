"""What an entry of a store is: how its key is made and taken apart, how its value is shown and written anew, by kind of state."""
