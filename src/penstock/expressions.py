"""Column expressions: `col("price") * col("n")`, `when(col("n") > 1, "some").otherwise("none")`, and what they are made of."""

from penstock.plan.expressions.expression import Expression, coalesce, col, concat, lit, when

__all__ = ["Expression", "coalesce", "col", "concat", "lit", "when"]
