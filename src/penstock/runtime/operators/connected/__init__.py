"""Steps of two inputs: a function or a method for each of them, and broadcast state that one of them changes."""
