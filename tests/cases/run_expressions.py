"""Run Flink's expression cases on column expressions: `python tests/cases/run_expressions.py FILE`.

A line for each failing case, and a last line `N passed, M failed, K skipped`; a skip names its reason. Values are compared, types
are not: column expressions have Python's arithmetic and types, Flink's come with SQL. What is of a kind that differs is skipped:
divisions, decimals, times of day, what does not fit, and errors.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from datetime import date, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from penstock.errors import PlanError
from penstock.plan.expressions.evaluation import Bound, rows_of
from penstock.plan.schema import Schema
from tests.cases.expectations import NotBuiltError
from tests.cases.flink_sql_text import expression_of

Case = dict[str, Any]

_PLAIN: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "DATE": pa.date32(),
}


_DOES_NOT_FIT = ("overflow", "not in range", "logarithm", "was truncated converting", "Failed to parse string: '1.234'")


class WrongError(Exception):
    """The expression gives something else."""


def type_of(flink: str) -> pa.DataType:
    name = flink.removesuffix(" NOT NULL")
    if name.startswith(("VARCHAR(", "CHAR(")):
        return pa.string()
    if name.startswith("TIMESTAMP("):
        return pa.timestamp("us")
    if name not in _PLAIN:
        raise NotBuiltError(f"values of {name.partition('(')[0].partition('<')[0]}")
    return _PLAIN[name]


def value_of(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    return datetime.fromisoformat(value) if pa.types.is_timestamp(kind) else value


def run(case: Case) -> None:
    """`WrongError` if the case fails, `NotBuiltError` if it is none of ours."""
    expect = case["expect"]
    if "validation_error" in expect or "runtime_error" in expect:
        raise NotBuiltError("errors are Flink's own")
    if case.get("config", {}).get("table.local-time-zone", "UTC") != "UTC" and "LTZ" in str(case):
        raise NotBuiltError("a session's time zone")
    try:
        expression = expression_of(case["sql"])
    except PlanError as error:
        raise NotBuiltError("values that are not mixed here") from error
    arrays = {}
    for field in case["fields"]:
        kind = type_of(field["type"])
        arrays[field["name"]] = pa.array([value_of(field["value"], kind)], kind)
    rows = rows_of(arrays, 1)
    try:
        bound = Bound(expression.node, Schema.of((name, column.type) for name, column in rows.columns.items()))
        (found,) = bound(rows).to_pylist()
    except PlanError as error:
        raise NotBuiltError(f"types that are not mixed here: {error.what.rpartition(': ')[2]}") from error
    except pa.ArrowInvalid as error:
        if any(text in str(error) for text in _DOES_NOT_FIT):
            raise NotBuiltError("what does not fit is an error here, where Flink wraps or cuts off") from error
        raise WrongError(f"{case['sql']}: {error}") from error
    compare(case["sql"], found, expect)


def compare(sql: str, found: Any, expect: dict[str, Any]) -> None:
    if "string" in expect:
        wanted, given = expect["string"], as_text(found)
    elif "value" in expect:
        wanted = expect["value"]
        given = found.isoformat() if isinstance(found, date) else found
        if isinstance(wanted, str) and isinstance(given, int | float):
            raise NotBuiltError("decimals")
    else:
        raise NotBuiltError("only the type is asked for")
    if wanted != given:
        raise WrongError(f"{sql}: expected {wanted!r}, got {given!r}")


def as_text(value: Any) -> str | None:
    """As Flink's CAST(... AS STRING)."""
    if isinstance(value, datetime | date):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    return str(value).upper() if isinstance(value, bool) else None if value is None else str(value)


def main(path: str) -> int:
    cases: list[Case] = json.loads(Path(path).read_text(encoding="utf-8"))
    counts, reasons = Counter[str](), Counter[str]()
    for case in cases:
        try:
            run(case)
            counts["passed"] += 1
        except NotBuiltError as error:
            counts["skipped"] += 1
            reasons[str(error)] += 1
        except WrongError as error:
            counts["failed"] += 1
            print(f"{case['id']}: {error}")
    for reason, number in reasons.most_common(20):
        print(f"skipped {number}: {reason}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    sys.exit(main(parser.parse_args().file))
