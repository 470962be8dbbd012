"""Column expressions: values that say how to compute a column from others, evaluated over whole Arrow batches.

Reading order: `nodes` (the tree), `expression` (what a person writes), `registry` and `functions/` (what may be called, with type
rule and kernel), `checking` (types, when the program is built and again for each schema of a batch), `evaluation` (a checked tree
as a function of a batch), `json_form` and `text` (how it is written).

Laws:
- An expression is data: columns, literals and calls of registered functions. Nothing else can be evaluated, and nothing that
  comes from outside is code.
- Null is SQL's: a function of a null is null, `&` and `|` know three values, a filter keeps what is true.
- A value that cannot be computed is an error of its row, never a wrapped or made-up value: whole numbers are of 64 bits and
  checked.
- What a value decides is not computed: a branch of `when` that is not taken, the right side of `False & …` and `True | …`, and
  the rest of a `coalesce` cannot fail.

May import: records, errors, pyarrow, numpy, msgspec. Knows no operators and no streams.
"""
