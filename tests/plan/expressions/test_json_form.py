"""The JSON form: what is written is read again; what is not known, too deep or too large is refused."""

# ruff: noqa: DTZ001 - times without a zone are what is tested

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from penstock import col, lit, when
from penstock.errors import PlanError
from penstock.expressions import Expression
from penstock.plan.expressions.nodes import MAX_DEPTH
from tests.plan.expressions.random_expressions import EXPRESSIONS
from tests.plan.expressions.test_functions import GIVES


@pytest.mark.parametrize("expression", [case[0] for case in GIVES], ids=repr)
def test_round_trip(expression: Expression) -> None:
    again = Expression.from_json(expression.to_json())
    assert again.to_json() == expression.to_json()
    assert repr(again) == repr(expression)
    assert pickle.loads(pickle.dumps(expression)).to_json() == expression.to_json()


@given(EXPRESSIONS)
def test_any_expression_round_trips(expression: Expression) -> None:
    data = json.loads(json.dumps(expression.to_data()))
    assert Expression.from_data(data).node == expression.node


def test_the_form() -> None:
    assert (col("a") * 2 > 1.5).alias("big").to_data() == {
        "version": 1,
        "expression": {
            "as": "big",
            "of": {
                "call": "greater",
                "args": [{"call": "multiply", "args": [{"col": "a"}, {"lit": 2}]}, {"lit": 1.5, "type": "float64"}],
            },
        },
    }


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -5, 1.0, float("inf"), "x", "", b"\x00\xff", Decimal("1.50"), datetime(2024, 1, 1, 2, 3, 4, 5)),
        *(datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), timedelta(days=-1, microseconds=3)),
    ],
    ids=repr,
)
def test_literals(value: Any) -> None:
    again = Expression.from_json(lit(value).to_json()).node
    assert again == lit(value).node
    assert type(again.value) is type(value)  # type: ignore[union-attr]


def test_nan() -> None:
    assert Expression.from_json(lit(float("nan")).to_json()).to_json() == lit(float("nan")).to_json()


REFUSED: list[tuple[Any, str]] = [
    ([], "not the JSON of an expression"),
    ({"version": 2, "expression": {"col": "a"}}, "of version 2; this Penstock reads version 1"),
    ({"version": True, "expression": {"col": "a"}}, "of version True"),
    ({"expression": {"col": "a"}}, "not the JSON"),
    ({"version": 1, "expression": {"col": "a", "x": 1}}, "not the JSON"),
    ({"version": 1, "expression": {"col": ""}}, "a column has a name"),
    ({"version": 1, "expression": {"col": 1}}, "not the JSON"),
    ({"version": 1, "expression": {"lit": [1]}}, "needs a type"),
    ({"version": 1, "expression": {"lit": 1 << 64}}, "not of type int64"),
    ({"version": 1, "expression": {"lit": "x", "type": "int64"}}, "not of type int64"),
    ({"version": 1, "expression": {"lit": "2024-99-01", "type": "date"}}, "not of type date"),
    ({"version": 1, "expression": {"lit": 1, "type": "object"}}, "there is no type 'object'"),
    ({"version": 1, "expression": {"call": "lowr", "args": [{"col": "a"}]}}, "there is no function 'lowr'"),
    ({"version": 1, "expression": {"call": "__import__", "args": [{"lit": "os"}]}}, "there is no function '__import__'"),
    ({"version": 1, "expression": {"call": "lower", "args": []}}, "lower takes 1 arguments, not 0"),
    ({"version": 1, "expression": {"call": "lower", "args": [{"col": "a"}], "options": {"x": 1}}}, "option 'x' is not known"),
    ({"version": 1, "expression": {"call": "round", "args": [{"col": "a"}]}}, "option 'digits' is missing"),
    ({"version": 1, "expression": {"call": "cast", "args": [{"col": "a"}], "options": {"to": "x"}}}, "to='x' is not possible"),
    ({"version": 1, "expression": {"call": "cast", "args": [{"col": "a"}], "options": {"to": []}}}, "not the JSON"),
    ({"version": 1, "expression": {"as": "", "of": {"col": "a"}}}, "not the JSON"),
    ({"version": 1, "expression": {"call": "not", "args": [{"as": "x", "of": {"col": "a"}}]}}, "not the JSON"),
]


@pytest.mark.parametrize(("data", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_refused(data: Any, message: str) -> None:
    with pytest.raises(PlanError) as raised:
        Expression.from_data(data)
    assert message in str(raised.value)


def test_did_you_mean() -> None:
    with pytest.raises(PlanError, match="did you mean lower"):
        Expression.from_data({"version": 1, "expression": {"call": "lowr", "args": [{"col": "a"}]}})


@pytest.mark.parametrize("text", ["", "{", b"\xff", '{"version":1,"expression":' + '{"call":"not","args":[' * 100_000])
def test_texts_that_are_none(text: Any) -> None:
    with pytest.raises(PlanError):
        Expression.from_json(text)


def test_depth_is_bounded() -> None:
    data: Any = {"col": "a"}
    for _ in range(MAX_DEPTH):
        data = {"call": "not", "args": [data]}
    with pytest.raises(PlanError, match="levels deep"):
        Expression.from_data({"version": 1, "expression": data})
    expression = col("a")
    with pytest.raises(PlanError, match="levels deep"):
        for _ in range(MAX_DEPTH):
            expression = expression + 1


def test_size_is_bounded() -> None:
    expression = col("a")
    with pytest.raises(PlanError, match="10,000 parts"):
        for _ in range(30):
            expression = expression + expression
    with pytest.raises(PlanError, match="bytes"):
        Expression.from_json(" " * (2 << 20))


def test_text_is_as_one_would_write_it() -> None:
    a, b = col("a"), col("two words")
    assert repr((a + 1) * 2 - a**2) == "(a + 1) * 2 - a ** 2"
    assert repr(~(a > 1) & ((b == "x") | a.is_null())) == "not(a > 1) & ((col('two words') == 'x') | is_null(a))"
    assert repr(a - (a - 1)) == "a - (a - 1)"
    assert repr(when(a > 1).then(a.round(2)).otherwise(None)) == "when(a > 1, round(a, digits=2), None)"
