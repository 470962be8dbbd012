"""Subscriptions: what is told, in order, is what was committed; resumed, they lose nothing and repeat nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from penstock.ids import Epoch
from penstock.query.catalog import Access
from penstock.query.client.requests import EventLines
from penstock.query.reader import StateReader
from penstock.query.reading import from_files
from penstock.server.routes.subscriptions import Watched
from penstock.server.served_jobs import ServedJob, Sources
from penstock.storage import LocalStorage
from tests.laws.trying import Crash, Interrupted, crash, run
from tests.server.serving import ask


def values(folder: Path, epoch: int) -> dict[int, int]:
    """What `seen` keeps, by the files of an epoch."""
    storage = LocalStorage(str(folder / "storage"))
    with StateReader(storage, local_dir=str(folder / "local")) as reader:
        manifest = reader.manifest_of(Epoch(epoch))
        number = next(int(n) for n, info in manifest.state.ids.items() if info.name == "seen")
        decode = msgspec.msgpack.decode
        with from_files(storage, manifest) as reading:
            return {decode(key): decode(value) for group in reading.groups for key, value in reading.scan(number, group)}


def applied(state: dict[int, int], event: Any) -> None:
    for row in event.data.get("changes", ()):
        if row.get("deleted"):
            del state[row["key"]]
        else:
            state[row["key"]] = row["value"]


def some_epochs(folder: Path, epochs: int, **settings: Any) -> None:
    with pytest.raises(Crash):
        run(folder, Interrupted(epochs, crash), keep=30, **settings)


def test_changes_are_what_was_committed(tmp_path: Path) -> None:
    """Told across compactions, a rescaling, and connections that end after each event."""
    some_epochs(tmp_path, 4)
    kept = LocalStorage(str(tmp_path / "storage"))
    with StateReader(kept, local_dir=str(tmp_path / "local")) as reader, reader.reading() as reading:
        first = reading.epoch
    state = values(tmp_path, first)

    async def work(http: httpx.AsyncClient) -> None:
        await asyncio.to_thread(some_epochs, tmp_path, 4)
        await asyncio.to_thread(some_epochs, tmp_path, 4, parallelism=3)
        seen = int(first)
        job = ServedJob(kept, Sources(storages=(), local_dir=str(tmp_path / "local"), access=Access(all_states=True)))
        job.start()
        with await job.reading() as reading:
            newest = int(reading.epoch)
        told = 0
        while seen < newest:
            with await job.reading() as reading:
                watched = Watched(job, reading, "number", "seen", None)
            events = watched.events(Epoch(seen))
            async for data in events:
                event = parsed(data)
                if event is None:
                    continue
                assert event.kind == "change"
                assert event.data["after"] == seen
                told += 1
                applied(state, event)
                if not event.data["more"]:
                    seen = event.epoch
                    assert state == await asyncio.to_thread(values, tmp_path, seen)
                    break
        assert told >= 6
        await job.stop()

    ask(work, str(tmp_path / "storage"))


def parsed(data: bytes) -> Any:
    lines = EventLines()
    found = [lines.take(line) for line in data.decode().split("\n")[:-1]]
    return next((event for event in found if event is not None), None)


def test_a_job_that_goes_back_says_so(tmp_path: Path) -> None:
    some_epochs(tmp_path, 5)

    async def work(http: httpx.AsyncClient) -> None:
        job = ServedJob(
            LocalStorage(str(tmp_path / "storage")),
            Sources(storages=(), local_dir=str(tmp_path / "local"), access=Access(all_states=True)),
        )
        job.start()
        with await job.reading() as reading:
            events = Watched(job, reading, "number", "seen", "0").events(None)
            newest = reading.epoch
        first = parsed(await anext(events))
        assert (first.kind, first.epoch) == ("value", newest)
        back = f"{tmp_path / 'storage'}@{newest - 2}"
        await asyncio.to_thread(some_epochs, tmp_path, 1, restore_from=back, repeat_output=True)
        reset = parsed(await anext(events))
        assert (reset.kind, reset.data["after"], reset.data["to"]) == ("reset", newest, newest - 2)
        value = parsed(await anext(events))
        assert value.kind == "value"
        assert value.data["value"] == values(tmp_path, value.epoch)[0] <= first.data["value"]
        with await job.reading() as reading:
            late = Watched(job, reading, "number", "seen", None).events(newest)
        assert parsed(await anext(late)).data["to"] == newest - 2
        await job.stop()

    ask(work, str(tmp_path / "storage"))


def test_who_was_away_too_long_is_told_what_was_missed(tmp_path: Path) -> None:
    some_epochs(tmp_path, 3)
    with StateReader(str(tmp_path / "storage"), local_dir=str(tmp_path / "local")) as reader, reader.reading() as reading:
        seen = reading.epoch
    run(tmp_path, keep=2)

    async def work(http: httpx.AsyncClient) -> None:
        job = ServedJob(
            LocalStorage(str(tmp_path / "storage")),
            Sources(storages=(), local_dir=str(tmp_path / "local"), access=Access(all_states=True)),
        )
        job.start()
        with await job.reading() as reading:
            events = Watched(job, reading, "number", "seen", "0").events(seen)
        missed = parsed(await anext(events))
        assert (missed.kind, missed.data["after"]) == ("missed", seen)
        value = parsed(await anext(events))
        assert value.data["value"] == values(tmp_path, value.epoch)[0]
        await job.stop()

    ask(work, str(tmp_path / "storage"))


def test_over_http(tmp_path: Path) -> None:
    some_epochs(tmp_path, 3)

    async def work(http: httpx.AsyncClient) -> None:
        answer = await http.get("/api/v1/jobs/numbers/steps/number/changes", params={"key": "x"})
        assert answer.status_code == 400
        answer = await http.get("/api/v1/jobs/numbers/steps/number/changes", headers={"last-event-id": "x"})
        assert answer.status_code == 400

    ask(work, str(tmp_path / "storage"))
