"""What the tortured programs must have written, recomputed in plain Python. Nothing of Penstock is imported here."""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import random
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet

Rows = Counter[tuple[Any, ...]]

PANE_MS = 500
PAIR_MS = 90
_WORDS = [f"w{number:03d}" for number in range(300)]


# --- inputs -----------------------------------------------------------------------------------------------------------------


def write_lines(folder: str, size: int) -> int:
    """Text files for the word count, about `size` words; returns their bytes."""
    chosen = random.Random(size)
    os.makedirs(folder, exist_ok=True)
    written = 0
    for number in range(6):
        lines = [" ".join(chosen.choices(_WORDS, k=8)) for _ in range(size // 48)]
        text = "\n".join(lines) + "\n"
        with open(os.path.join(folder, f"part-{number}.txt"), "w") as file:
            file.write(text)
        written += len(text)
    return written


def write_amounts(folder: str, size: int) -> None:
    os.makedirs(folder, exist_ok=True)
    for number in range(4):
        with open(os.path.join(folder, f"amounts-{number}.txt"), "w") as file:
            file.writelines(f"r{n % 40}\t{n * 13 % 101}\n" for n in range(number, size, 4))


def pane_event(n: int) -> dict[str, Any]:
    return {"key": f"k{n * 7919 % 83}", "ts": n + (n * 31) % 40, "value": n * 17 % 1000}


def chain_event(n: int) -> tuple[str, int]:
    return f"m{n * 7919 % 50}", n * 29 % 97


def buffer_event(n: int) -> dict[str, Any]:
    return {"key": n * 7919 % 61, "n": n, "ts": n * 3}


def ledger_event(n: int) -> tuple[str, int, int]:
    return f"a{n * 7919 % 37}", n, n % 11 - 5


SPREAD_NODES = 200


def spread_event(n: int) -> tuple[int, int]:
    """An edge between two of the nodes, mostly from one to the next; the first event says that node 0 is reached."""
    if n == 0:
        return 0, -1
    node = n * 7919 % SPREAD_NODES
    return node, node + 1 if n % 5 else n * 31 % (2 * SPREAD_NODES)


def left_event(n: int) -> dict[str, Any]:
    return {"key": n * 7919 % 61, "n": n, "ts": n * 3 + n * 31 % 40}


def right_event(n: int) -> dict[str, Any]:
    return {"key": n * 104729 % 67, "n": n, "ts": n * 3 + n * 17 % 40}


RULE_EVERY = 50


def sale_event(n: int) -> dict[str, Any]:
    return {"n": n, "ts": n, "key": f"k{n * 7919 % 41}", "rule": f"r{n % 5}"}


def rule_event(m: int) -> dict[str, Any]:
    """Every 50 ms one; some of them give every key something."""
    return {"n": m, "ts": m * RULE_EVERY, "rule": f"r{m * 3 % 5}", "worth": m % 7, "gift": m % 9 if m % 3 == 0 else 0}


# --- answers ----------------------------------------------------------------------------------------------------------------


def expected_words(folder: str, size: int) -> Rows:
    totals: Counter[str] = Counter()
    for path in glob.glob(os.path.join(folder, "*.txt")):
        with open(path) as file:
            totals.update(file.read().split())
    return Counter((word, count) for word, total in totals.items() for count in range(1, total + 1))


def expected_panes(folder: str, size: int) -> Rows:
    panes: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for event in map(pane_event, range(size)):
        panes[event["key"]][event["ts"] // PANE_MS * PANE_MS + PANE_MS].append((event["ts"], event["value"]))
    rows: Rows = Counter()
    for key, ends in panes.items():
        total = 0
        for end in sorted(ends):
            pairs = sorted(ends[end])
            total += len(pairs)
            rows[key, end, sum(v for _, v in pairs), ",".join(str(v) for _, v in pairs), total] += 1
    return rows


def expected_chain(folder: str, size: int) -> Rows:
    records = list(map(chain_event, range(size)))
    for path in glob.glob(os.path.join(folder, "*.txt")):
        with open(path) as file:
            records += [(name, int(amount)) for name, amount in (line.split("\t") for line in file)]
    rows: Rows = Counter(("round", name, amount) for name, amount in records if amount % 10 == 0)
    for name, count in Counter(name for name, _ in records).items():
        rows.update(("number", name, n, 0) for n in range(1, count + 1))
    sums: Counter[tuple[str, int]] = Counter()
    for name, amount in records:
        sums[name, amount % 7] += amount
    rows.update(("total", name, group, total) for (name, group), total in sums.items())
    return rows


def expected_buffers(folder: str, size: int) -> Rows:
    return Counter((event["key"], event["n"]) for event in map(buffer_event, range(size)))


def expected_ledger(folder: str, size: int) -> Rows:
    balances: Counter[str] = Counter()
    rows: Rows = Counter()
    for account, n, amount in map(ledger_event, range(size)):
        balances[account] += amount
        rows[account, n, balances[account]] += 1
    return rows


def expected_spread(folder: str, size: int) -> Rows:
    edges: dict[int, list[int]] = defaultdict(list)
    for node, to in map(spread_event, range(1, size)):
        edges[node].append(to)
    times, todo = Counter([0]), [0]
    while todo:
        for to in edges[todo.pop()]:
            times[to] += 1
            if times[to] == 1:
                todo.append(to)
    return Counter((node, n) for node, count in times.items() for n in range(1, count + 1))


def expected_pairs(folder: str, size: int) -> Rows:
    rights: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in map(right_event, range(size)):
        rights[event["key"]].append(event)
    rows: Rows = Counter()
    for left in map(left_event, range(size)):
        near = [right["n"] for right in rights[left["key"]] if abs(right["ts"] - left["ts"]) <= PAIR_MS]
        rows.update((left["n"], right) for right in near or [None])
    met = {right for _, right in rows}
    rows.update((None, n) for n in range(size) if n not in met)
    return rows


def expected_rules(folder: str, size: int) -> Rows:
    """A record is taken in at the time of its partition just before it: of sale n that is n - 3, for there are two partitions."""
    start = -(1 << 63)
    sales = [(start if n < 2 else n - 3, 0, n) for n in range(size)]
    rules = [(start if m == 0 else (m - 1) * RULE_EVERY - 1, 1, m) for m in range(size // RULE_EVERY + 1)]
    worth: dict[str, int] = {}
    points: Counter[str] = Counter()
    rows: Rows = Counter()
    for _, side, number in sorted(sales + rules):
        if side == 0:
            sale = sale_event(number)
            points[sale["key"]] += worth.get(sale["rule"]) or 1
            rows["sale", sale["key"], number, points[sale["key"]]] += 1
            continue
        rule = rule_event(number)
        worth[rule["rule"]] = rule["worth"]
        for key in points if rule["gift"] else ():
            points[key] += rule["gift"]
            rows["gift", key, number, points[key]] += 1
    return rows


# --- outputs ----------------------------------------------------------------------------------------------------------------


def published(folder: str) -> list[dict[str, Any]]:
    """The rows of a file sink, by its log: entries 1, 2, 3, … each name files, and the newest says which entries are shown."""
    rows: list[dict[str, Any]] = []
    entries: dict[int, dict[str, Any]] = {}
    for name in os.listdir(log) if os.path.isdir(log := os.path.join(folder, "_log")) else []:
        if re.fullmatch(r"[0-9]{20}\.json", name):  # others are strangers'
            with open(os.path.join(log, name)) as entry:
                entries[int(name.removesuffix(".json"))] = json.load(entry)
    shown = entries[max(entries)]["shown"] if entries else []
    for number in (number for first, last in shown for number in range(first, last + 1)):
        for name in (file["path"] for file in entries[number]["files"]):
            with open(os.path.join(folder, name), "rb") as file:
                rows += _decoded(name, file.read())
    return rows


def _decoded(name: str, data: bytes) -> list[dict[str, Any]]:
    if name.endswith(".parquet"):
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
        return found
    if name.endswith(".csv"):
        return list(csv.DictReader(io.StringIO(data.decode())))
    return [json.loads(line) for line in data.decode().splitlines()]


def found_words(out: str) -> Rows:
    return Counter((row["word"], row["count"]) for row in published(out))


def found_panes(out: str) -> Rows:
    return Counter((row["key"], row["end"], row["sum"], row["values"], row["total"]) for row in published(out))


def found_chain(out: str) -> Rows:
    rows: Rows = Counter(("round", row["name"], int(row["amount"])) for row in published(os.path.join(out, "round")))
    rows.update((row["kind"], row["name"], row["n"], row["total"]) for row in published(os.path.join(out, "totals")))
    return rows


def found_buffers(out: str) -> Rows:
    return Counter((row["key"], row["n"]) for row in published(out))


def found_ledger(out: str) -> Rows:
    connection = sqlite3.connect(out, timeout=30)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'balances'").fetchone():
            return Counter()  # no epoch was committed
        return Counter(connection.execute("SELECT account, n, balance FROM balances").fetchall())
    finally:
        connection.close()


def found_rules(out: str) -> Rows:
    return Counter((row["what"], row["key"], row["n"], row["points"]) for row in published(out))


def found_spread(out: str) -> Rows:
    return Counter((row["node"], row["n"]) for row in published(out))


def found_pairs(out: str) -> Rows:
    return Counter((row["left"], row["right"]) for row in published(out))


# --- the table --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program, what it reads and how its output is judged. `size` is what `--size` tells it."""

    name: str
    size: int
    expected: Callable[[str, int], Rows]
    found: Callable[[str], Rows]
    prepare: Callable[[str, int], Any] = lambda folder, size: None


JOBS = {
    job.name: job
    for job in (
        Job(name="words", size=120_000, expected=expected_words, found=found_words, prepare=write_lines),
        Job(name="panes", size=24_000, expected=expected_panes, found=found_panes),
        Job(name="chain", size=12_000, expected=expected_chain, found=found_chain, prepare=write_amounts),
        Job(name="buffers", size=24_000, expected=expected_buffers, found=found_buffers),
        Job(name="ledger", size=24_000, expected=expected_ledger, found=found_ledger),
        Job(name="pairs", size=12_000, expected=expected_pairs, found=found_pairs),
        Job(name="rules", size=16_000, expected=expected_rules, found=found_rules),
        Job(name="spread", size=8_000, expected=expected_spread, found=found_spread),
    )
}


def difference(job: Job, folder: str, out: str) -> tuple[Rows, Rows]:
    """(lost, duplicated): rows that should be there and are not, and rows that are there and should not."""
    expected, found = job.expected(folder, job.size), job.found(out)
    return expected - found, found - expected
