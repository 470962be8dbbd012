"""The plan that runs as a Mermaid flowchart: a box for each stage, in it its steps; an arrow for each input of a step."""

from __future__ import annotations

from typing import Any

from penstock.compile.explain import explain_data
from penstock.config import JobConfig
from penstock.plan.nodes import Graph

_ESCAPED = {"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;", "`": "&#96;"}


def explain_mermaid(graph: Graph, config: JobConfig) -> str:
    """For Markdown pages and editors that draw Mermaid."""
    data = explain_data(graph, config)
    steps = {step["id"]: step for step in data["steps"]}
    names = {step: f"s{number}" for number, step in enumerate(steps)}
    lines = ["flowchart TB"]
    for stage in data["stages"]:
        lines.append(f'  subgraph stage{stage["stage"]}["stage {stage["stage"]}"]')
        lines += [f"    {names[step]}{_box(steps[step])}" for step in stage["steps"]]
        lines.append("  end")
    for step in steps.values():
        lines += [f"  {names[given['step']]} {_arrow(given)} {names[step['id']]}" for given in step["inputs"]]
    return "\n".join(lines) + "\n"


def _box(step: dict[str, Any]) -> str:
    kept = [state["name"] for state in step["states"]] + ["timers"] * (step["timers"] and not step["states"])
    said = [step["id"], *([] if step["kind"] == step["id"] else [step["kind"]]), *([f"keeps {', '.join(kept)}"] if kept else [])]
    text = "<br/>".join(map(_escaped, said))
    if "source" in step:
        return f'(["{text}"])'
    return f'[["{text}"]]' if "sink" in step else f'["{text}"]'


def _arrow(given: dict[str, Any]) -> str:
    """Thick where records change partitions."""
    how = given["exchange"]
    said = " · ".join(_escaped(one) for one in ((f"[{given['tag']}]" if given["tag"] else ""), how or "") if one)
    line = "-->" if how is None else "==>"
    return f'{line}|"{said}"|' if said else line


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in text)
