"""Runs a person's program as `python APP.py ARGS` would."""

from __future__ import annotations

from penstock.compile.programs import run_program

__all__ = ["run_program"]
