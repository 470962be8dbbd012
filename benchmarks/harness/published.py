"""What file sinks have published, by their own logs; of Penstock's also the epochs, and when they became visible."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Publication:
    """An epoch's entry in the log."""

    epoch: int
    files: list[Path]
    visible: float
    """When the entry was written, in seconds since 1970: soon after that readers see the files."""


def publications(folder: Path) -> list[Publication]:
    """All entries that are shown, in order; read without Penstock, so that the reference stays independent.

    The newest entry says which those are: runs of numbers (`shown`), or all where it does not say.
    """
    found = []
    paths = {int(path.stem): path for path in sorted((folder / "_log").glob("[0-9]*.json"))}
    shown = json.loads(paths[max(paths)].read_text()).get("shown") if paths else None
    for number, path in paths.items():
        if shown is not None and not any(first <= number <= last for first, last in shown):
            continue
        entry = json.loads(path.read_text())
        files = [folder / file["path"] for file in entry["files"]]
        found.append(Publication(entry["epoch"], files, path.stat().st_mtime))
    return found


def published_files(folder: Path) -> list[Path]:
    return [path for publication in publications(folder) for path in publication.files]


def published_json(folder: Path, names: list[str]) -> tuple[pa.Table, list[Publication]]:
    """All published JSON lines as a table of whole numbers, each with the index of its publication (column `publication`)."""
    found = publications(folder)
    columns: dict[str, list[int]] = {name: [] for name in (*names, "publication")}
    for index, publication in enumerate(found):
        for path in publication.files:
            for line in path.read_text().splitlines():
                record = json.loads(line)
                for name in names:
                    columns[name].append(record[name])
                columns["publication"].append(index)
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()}), found


def listed_by_spark(folder: Path) -> list[Path]:
    """The files that Spark's file sink has committed: those in its log, not those in the folder."""
    paths: set[str] = set()
    for log in sorted((folder / "_spark_metadata").iterdir(), key=lambda path: path.name):
        if log.name.startswith(".") or log.suffix == ".tmp":
            continue
        for line in log.read_text().splitlines()[1:]:
            paths.add(json.loads(line)["path"].removeprefix("file://"))
    return [Path(path) for path in sorted(paths)]
