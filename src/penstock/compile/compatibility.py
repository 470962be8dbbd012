"""What becomes of each state when a program starts on what another one has left. Pure.

    compatible, migrates, incompatible      see `penstock.state.encoding.evolution`
    new                                     the state starts empty
    dropped                                 the program does not claim it: refused, unless the user says to lose it

Laws:
- States are claimed by step and name, or by names that step and state had before. A stored state is claimed once.
- Values of an older schema stay in the files as long as nothing rewrites them: a program is compared with every schema that a
  stored value may have, not only with the last one. A rewrite clears that list.
- A field that came with a default is not in values stored before, and means that default: a later program with another default
  for it would change them, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from penstock.errors import StateError
from penstock.jobs.manifest import StateInfo, StateLayout
from penstock.plan.definition import StateDeclaration
from penstock.plan.nodes import Graph, Node
from penstock.state.descriptors import sub_keys_of
from penstock.state.encoding.evolution import carried, compare, needs_trust, worst
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.same_bytes import same, same_keys
from penstock.state.encoding.schemas import schema_text
from penstock.state.entries.kinds import is_internal
from penstock.state.overlay.handles import state_codec

StateVerdict = Literal["compatible", "migrates", "incompatible", "new", "dropped"]

ANOTHER_NAME = "give the new state another name; the old one can then be dropped with --allow-dropped-state"
ANOTHER_STEP = "give the changed step another name; its old state can then be dropped with --allow-dropped-state"
MIGRATE = (
    "give the state migrate=, a function that makes a new value of a stored one; or another name, and drop the old one with "
    "--allow-dropped-state"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """How stored values are to be rewritten: with the user's function, or else by former names of fields."""

    declaration: StateDeclaration
    stored: StateInfo
    by_function: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One state; `info` is what the next manifest says of it."""

    step: str
    name: str
    kind: str
    verdict: StateVerdict
    why: tuple[str, ...] = ()
    hint: str = ""
    number: int | None = None
    info: StateInfo | None = None
    rewriting: Rewriting | None = None

    @property
    def timers(self) -> bool:
        return is_internal(self.kind)


def judge(graph: Graph, before: StateLayout | None) -> list[Judgement]:
    """All states of the program, in its order, then those that it does not claim."""
    stored = {(info.step, info.name): (int(number), info) for number, info in (before.ids if before else {}).items()}
    claims: dict[tuple[str, str], str] = {}
    found: list[Judgement] = []
    for node in graph:
        for declaration in node.states():
            info = describe_state(declaration)
            key = next((key for key in _names(node, declaration) if key in stored), None)
            if key is None:
                found.append(_judged(info, "new"))
                continue
            if key in claims:
                raise StateError(
                    f"the state {key[1]!r} of step {key[0]!r} is claimed twice",
                    detail=f"by {claims[key]}\nand by {info.name!r} of step {info.step!r}",
                    hint="previous_names= may name a state or a step once; call a new step that takes an old name something else",
                )
            claims[key] = f"{info.name!r} of step {info.step!r}"
            number, was = stored[key]
            found.append(_judge_one(declaration, info, was, number))
    for key, (number, was) in stored.items():
        if key not in claims:
            found.append(_judged(was, "dropped", number=number, why=["the program does not claim it"]))
    return found


def _names(node: Node, declaration: StateDeclaration) -> Iterator[tuple[str, str]]:
    """Under which names the state may be stored, the newest first."""
    former = declaration.state.previous_names if declaration.state is not None else ()
    for step in (node.step, *node.previous_names):
        for name in (declaration.name, *former):
            yield step, name


def describe_state(declaration: StateDeclaration) -> StateInfo:
    state, sub_keys = declaration.state, sub_keys_of(declaration.state)
    return StateInfo(
        step=declaration.step,
        name=declaration.name,
        kind=declaration.kind,
        schema=None if state is None else state_codec(state).schema,
        key_schema=None if declaration.key_type is None else key_codec(declaration.key_type).schema,
        what=declaration.what,
        sub_schema=None if sub_keys is None else sub_keys.schema,
        ttl=state is not None and state.ttl is not None,
        namespace=declaration.namespace,
        ttl_time=state.ttl.time if state is not None and state.ttl is not None else "",
        key_fields=None if declaration.key_fields is None else list(declaration.key_fields),
        scope=declaration.scope,
        queryable=state is not None and state.queryable,
    )


def _judged(
    info: StateInfo, verdict: StateVerdict, *, number: int | None = None, why: Iterable[str] = (), hint: str = ""
) -> Judgement:
    return Judgement(
        step=info.step,
        name=info.name,
        kind=info.kind,
        verdict=verdict,
        why=tuple(dict.fromkeys(why)),
        hint=hint,
        number=number,
        info=None if verdict == "dropped" else info,
    )


def _judge_one(declaration: StateDeclaration, now: StateInfo, was: StateInfo, number: int) -> Judgement:
    refusal = _refusal(was, now)
    if refusal is not None:
        return _judged(now, "incompatible", number=number, why=[refusal[0]], hint=refusal[1])
    state = declaration.state
    if state is None:
        return _judged(now, "compatible", number=number)
    state.aliases.check(now.schema, f"state {now.name!r} of step {now.step!r}")
    notes = [note for schema in (was.schema, *was.earlier) for note in compare(schema, now.schema, state.aliases)]
    moved = [f"it was called {was.name!r}"] if was.name != now.name else []
    clocks = _clocks(was, now)
    needed = worst(notes) == "incompatible"
    by_function = state.migrate is not None and (needed or bool(moved))
    if needed and not by_function:
        why = [note.text for note in notes if note.verdict == "incompatible"]
        return _judged(now, "incompatible", number=number, why=why, hint=MIGRATE)
    why = [*moved, *(note.text for note in notes), *clocks, *(["rewritten by migrate="] if by_function else [])]
    if by_function or clocks or worst(notes) == "migrates":
        made = _judged(now, "migrates", number=number, why=why)
        return replace(made, rewriting=Rewriting(declaration=declaration, stored=was, by_function=by_function))
    if state.migrate is not None and notes:
        why.append("migrate= is not called: stored values can be read as they are")
    made = _judged(now, "compatible", number=number, why=why)
    return replace(made, info=msgspec.structs.replace(now, earlier=_still_stored(was, now)))


def _still_stored(was: StateInfo, now: StateInfo) -> list[object]:
    """The schemas, other than the declared one, that stored values may have."""
    found: list[object] = []
    for schema in (was.schema, *was.earlier):
        kept = carried(schema, now.schema)
        if not same(schema, now.schema) and not any(same(kept, other) for other in found):
            found.append(kept)
    return found


def _clocks(was: StateInfo, now: StateInfo) -> list[str]:
    """Changes of the time to live for which stored values are rewritten."""
    if was.ttl != now.ttl:
        return ["it has a time to live now, counted from this start" if now.ttl else "it no longer has a time to live"]
    if was.ttl_time and was.ttl_time != now.ttl_time:
        return [f"its time to live was of {was.ttl_time} time and is of {now.ttl_time} time now, counted from this start"]
    return []


def _refusal(was: StateInfo, now: StateInfo) -> tuple[str, str] | None:
    """Why the state cannot be resumed, whatever its values are; and what to do."""
    if was.scope != now.scope:
        return f"it was {was.scope} state and is {now.scope} state now", ANOTHER_NAME
    if was.kind != now.kind:
        return f"it was a {was.kind} state and is a {now.kind} state now", ANOTHER_NAME
    if was.what and now.what and was.what != now.what:
        return f"what it keeps has changed since its state was written: it was {was.what}; it is {now.what} now", ANOTHER_STEP
    if was.namespace != now.namespace:
        per = ("key", "window") if now.namespace else ("window", "key")
        return f"it was kept per {per[0]} and is kept per {per[1]} now", ANOTHER_NAME
    if was.key_fields is not None and now.key_fields is not None and was.key_fields != now.key_fields:
        fields = f"{_fields(was.key_fields)} and is keyed by {_fields(now.key_fields)} now"
        hint = f"{ANOTHER_STEP}; if the keys are the same under other names, key_by a function: those are not compared"
        return f"it was keyed by {fields}", hint
    if not same_keys(was.key_schema, now.key_schema):
        return f"its keys were {_key_text(was.key_schema)} and are {_key_text(now.key_schema)} now", ANOTHER_STEP
    if not same_keys(was.sub_schema, now.sub_schema):
        return f"the keys of the map were {_key_text(was.sub_schema)} and are {_key_text(now.sub_schema)} now", ANOTHER_NAME
    return None


def _fields(fields: list[str | int]) -> str:
    return ", ".join(map(repr, fields))


def _key_text(schema: object) -> str:
    return "of no declared type" if schema is None or schema == "any" else f"of type {schema_text(schema)}"


def refusals(judged: Iterable[Judgement], *, allow_dropped: bool) -> list[StateError]:
    """Why a start with these states is refused, each by name. Timers share their step's keys: that is said once."""
    judged = list(judged)
    found: list[StateError] = []
    lost = [one for one in judged if one.verdict == "dropped" and not one.timers]
    if lost and not allow_dropped:
        names = ", ".join(sorted(f"{one.step}.{one.name}" for one in lost))
        hint = "give the steps the names they had, or previous_names=; or start with --allow-dropped-state to lose it for good"
        found.append(StateError(f"the job has state that the program does not claim: {names}", hint=hint))
    incompatible = [one for one in judged if one.verdict == "incompatible"]
    named = {one.step for one in incompatible if not one.timers}
    found += [
        StateError(f"cannot resume state {one.name!r} of step {one.step!r}: {'; '.join(one.why)}", hint=one.hint)
        for one in incompatible
        if not one.timers or one.step not in named
    ]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where stored state comes from. `foreign`: not the job's own storage; `trusted`: the user says that it may bring code."""

    source: str
    foreign: bool
    trusted: bool


def brings_code(graph: Graph, before: StateLayout, judged: Iterable[Judgement], origin: Origin) -> StateError | None:
    """Why state is not loaded that would run code.

    Of a foreign place: by its stored schema, or by the program's codec. Of the job's own storage, where others may have
    written too: by a stored schema that is read for a rewriting."""
    if origin.trusted:
        return None
    declared = {
        (one.step, one.name)
        for node in graph
        for one in node.states()
        if one.state is not None and state_codec(one.state).needs_trust
    }
    names: set[str] = set()
    for one in judged:
        if one.number is None or one.info is None or not (origin.foreign or one.rewriting is not None):
            continue
        stored = before.ids[str(one.number)]
        if _kept_by_pickle(stored) or (origin.foreign and (one.step, one.name) in declared):
            names.add(f"{stored.step}.{stored.name}")
    if not names:
        return None
    return StateError(
        f"state that is kept by pickle would be loaded from {origin.source}: {', '.join(sorted(names))}",
        detail="loading pickled values runs code that comes with them",
        hint="give --trust if only you can have written there",
    )


def _kept_by_pickle(info: StateInfo) -> bool:
    return any(map(needs_trust, (info.schema, *info.earlier)))
