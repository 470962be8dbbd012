"""Runs a person's program as `python APP.py ARGS` would."""

from __future__ import annotations

import os
import runpy
import sys

from penstock.errors import ConfigError


def run_program(path: str, arguments: list[str]) -> None:
    """Execute a file as `__main__`, with its folder on the path and its own arguments."""
    if not os.path.isfile(path):
        raise ConfigError(f"there is no program {path}", hint="give the path of a Python file")
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before
