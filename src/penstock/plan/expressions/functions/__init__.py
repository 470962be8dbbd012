"""The functions of expressions, a module for each kind. To import this package registers them."""

from penstock.plan.expressions.functions import arithmetic, choice, comparison, conversion, nested, strings, times

__all__ = ["arithmetic", "choice", "comparison", "conversion", "nested", "strings", "times"]
