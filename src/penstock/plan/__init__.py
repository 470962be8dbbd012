"""What a program means: immutable nodes, their definitions, the states that they declare, and the exchanges between them.

A definition is frozen and picklable; in a worker it makes its operator. What becomes of a plan before it runs is in `compile/`.
Imports, besides what has no room: the declarations of `state/`.
"""
