"""The command line: `commands/`, one module each, and what they show (`screen/`). May import everything; nothing imports it.

Control goes through the job's storage, so no command needs an open port.
"""

from __future__ import annotations

from penstock.cli.app import app, main

__all__ = ["app", "main"]
