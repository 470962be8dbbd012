"""Functions of strings. Positions and lengths count characters, from 0. Regular expressions are RE2's: linear in the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.expressions.functions.kernels import (
    Make,
    arrow,
    is_string,
    is_string_or_none,
    is_whole,
    is_whole_or_none,
    plain,
)
from penstock.plan.expressions.nodes import Options
from penstock.plan.expressions.registry import Function, Kernel, TypeProblemError, Types, Typing, register
from penstock.plan.expressions.rules import Rule, of
from penstock.plan.expressions.types import is_bytes, is_list, is_text

_SAME = of("strings", is_text, null=pa.string())
_ASKED = of("strings", is_text, pa.bool_(), null=pa.string())


def _matching(kernel: str, option: str = "pattern") -> Make:
    return lambda options, types: arrow(kernel, pc.MatchSubstringOptions(options[option]))


def _checked_pattern(kernel: str, rule: Rule) -> Rule:
    """A pattern that cannot be understood is found when the types are checked."""

    def checked(types: Types, options: Options) -> Typing:
        try:
            pc.call_function(kernel, [pa.array([""])], pc.MatchSubstringOptions(options["pattern"]))
        except pa.ArrowException as error:
            raise TypeProblemError(f"the pattern {options['pattern']!r:.100} is not possible: {error}") from error
        return rule(types, options)

    return checked


def _is_countable(kind: pa.DataType) -> bool:
    return is_text(kind) or is_bytes(kind) or is_list(kind)


def _length(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    kind = types[0]
    name = "utf8_length" if is_text(kind) else "binary_length" if is_bytes(kind) else "list_value_length"
    return arrow(name, cast=pa.int64())


def _substring(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    start: Any = options["start"]
    length: Any = options["length"]
    return arrow("utf8_slice_codeunits", pc.SliceOptions(start, None if length is None else start + length))


def _trimming(side: str) -> Make:
    def make(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
        characters = options["characters"]
        if characters is None:
            return arrow(f"utf8_{side}_whitespace")
        return arrow(f"utf8_{side}", pc.TrimOptions(characters))

    return make


def _replace(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    return arrow("replace_substring", pc.ReplaceSubstringOptions(options["pattern"], options["by"]))


def _concat_rule(types: Types, options: Options) -> Typing:
    _SAME(types, options)
    return Typing((pa.string(),) * len(types), pa.string())


def _concat(options: Options, types: tuple[pa.DataType, ...]) -> Kernel:
    join = pc.get_function("binary_join_element_wise").call
    between = pa.scalar("", pa.string())
    return lambda *arguments: join([*arguments, between], None)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _register(name: str, rule: Rule, kernel: Make, options: dict[str, Callable[[Any], bool]] | None = None) -> None:
    register(Function(name=name, least=1, most=1, rule=rule, kernel=kernel, options=options or {}))


_register("lower", _SAME, plain("utf8_lower"))
_register("upper", _SAME, plain("utf8_upper"))
_register("length", of("strings, bytes and lists", _is_countable, pa.int64(), null=pa.string()), _length)
_register("contains", _ASKED, _matching("match_substring"), {"pattern": is_string})
_register("starts_with", _ASKED, _matching("starts_with"), {"pattern": is_string})
_register("ends_with", _ASKED, _matching("ends_with"), {"pattern": is_string})
_register("like", _checked_pattern("match_like", _ASKED), _matching("match_like"), {"pattern": is_string})
_register("regexp", _checked_pattern("match_substring_regex", _ASKED), _matching("match_substring_regex"), {"pattern": is_string})
_register("substring", _SAME, _substring, {"start": is_whole(0), "length": is_whole_or_none(0)})
_register("trim", _SAME, _trimming("trim"), {"characters": is_string_or_none})
_register("trim_start", _SAME, _trimming("ltrim"), {"characters": is_string_or_none})
_register("trim_end", _SAME, _trimming("rtrim"), {"characters": is_string_or_none})
_register("replace", _SAME, _replace, {"pattern": _is_pattern, "by": is_string})
register(Function(name="concat", least=1, most=None, rule=_concat_rule, kernel=_concat))
