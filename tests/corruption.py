"""Damage to every kind of file, and what the next start or reader makes of it: `python tests/corruption.py [--places N]`.

A table: kinds of files down, damages across. `detected`: an error that names the file. `not needed`: the result is right all
the same. Anything else is a fault, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from penstock.errors import PenstockError  # noqa: E402
from tests.damaged_jobs import SCENES, Scene  # noqa: E402
from tests.damages import DAMAGES, Damage, NotApplicable  # noqa: E402

DETECTED, NOT_NEEDED, MEANINGLESS = "detected", "not needed", "-"
FINE = (DETECTED, NOT_NEEDED, MEANINGLESS)


@dataclass
class Matrix:
    """What became of each kind of file under each damage."""

    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, kind: str, damage: str, outcome: str, story: str) -> None:
        before = self.outcomes.setdefault(kind, {}).get(damage)
        if outcome not in FINE:
            self.faults.append(f"{kind}, {damage}: {outcome}\n{story}")
        if before is None or before in FINE:
            order = [MEANINGLESS, NOT_NEEDED, DETECTED]
            worse = outcome not in FINE or before is None or order.index(outcome) > order.index(before)
            if worse:
                self.outcomes[kind][damage] = outcome

    def table(self) -> str:
        width = max(map(len, [*DAMAGES, *FINE])) + 2
        lines = [" " * 22 + "".join(name.ljust(width) for name in DAMAGES)]
        for kind, found in self.outcomes.items():
            lines.append(kind.ljust(22) + "".join(found.get(name, "").ljust(width) for name in DAMAGES))
        return "\n".join(line.rstrip() for line in lines)


def examine(places: int, scenes: list[type[Scene]] = SCENES, told: Callable[[str], None] = lambda line: None) -> Matrix:
    """Damage one file at a time; `places`: in how many random places a bit is flipped."""
    matrix = Matrix()
    for scene in scenes:
        with tempfile.TemporaryDirectory(prefix="penstock-corruption-") as name:
            folder = Path(name)
            made, other = scene(folder / "made"), scene(folder / "other", each=17)
            made.prepare()
            other.prepare()
            made.check(made.resume(folder / "straight"))
            for kind in made.kinds():
                for title, damage in DAMAGES.items():
                    for place in range(places if damage.anywhere else 1):
                        dice = random.Random(f"{kind} {title} {place}")
                        copy = folder / "copy"
                        outcome, story = _outcome(made, other, kind, damage, dice, copy)
                        matrix.add(kind, title, outcome, story)
                        shutil.rmtree(copy, ignore_errors=True)
                told(kind)
    return matrix


def _outcome(made: Scene, other: Scene, kind: str, damage: Damage, dice: random.Random, copy: Path) -> tuple[str, str]:
    shutil.copytree(made.folder, copy)
    try:
        names = damage.apply(made.at(copy).kinds()[kind], other.kinds()[kind], dice, kind)
    except NotApplicable:
        return MEANINGLESS, ""
    try:
        made.check(made.resume(copy))
    except PenstockError as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", [])])
        return (DETECTED, "") if any(name in text for name in names) else ("UNNAMED", text)
    except AssertionError as error:
        return "WRONG", str(error)[:500]
    except Exception as error:
        return "CRASHED", f"{type(error).__name__}: {error}"
    return NOT_NEEDED, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=8, help="in how many random places a bit is flipped")
    options = parser.parse_args()
    logging.getLogger("penstock").setLevel(logging.CRITICAL)
    matrix = examine(options.places, told=lambda kind: print(f"  {kind}", file=sys.stderr, flush=True))
    print(matrix.table())
    for fault in matrix.faults:
        print(f"\n{fault}")
    outcomes = [outcome for found in matrix.outcomes.values() for outcome in found.values()]
    told = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in (DETECTED, NOT_NEEDED))
    print(f"\n{len(matrix.outcomes)} kinds of files; {told}, {len(matrix.faults)} faults")
    sys.exit(1 if matrix.faults else 0)


if __name__ == "__main__":
    main()
