"""What a program means: immutable nodes, the graph they form, rewrites, and the cut into stages. `explain` shows all of it."""
