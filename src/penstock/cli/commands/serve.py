"""`penstock serve`: jobs' committed state over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.errors import ConfigError
from penstock.query.catalog import Access


def serve_command(
    storages: Annotated[list[str], typer.Argument(metavar="STORAGE...", help="Jobs' storages, or folders with jobs below them.")],
    host: Annotated[str, typer.Option(help="The address to listen on; others than loopback need --tokens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0: a free one.")] = 8080,
    host_name: Annotated[list[str] | None, typer.Option(help="A name that the server is asked by, as in a URL.")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="FILE", help="Lines of ROLE TOKEN [NAME].")] = None,
    all_states: Annotated[bool, typer.Option("--all-states", help="Answer for states that are not declared queryable.")] = False,
    replica: Annotated[bool, typer.Option("--replica", help="Follow the jobs' storages into stores of its own.")] = False,
    key_groups: Annotated[str | None, typer.Option(metavar="A-B", help="Of a replica: only these key groups.")] = None,
    local_dir: Annotated[str | None, typer.Option(help="Where the jobs keep local state, if not in the usual place.")] = None,
    audit: Annotated[str | None, typer.Option(metavar="FILE", help="Where the audit log is appended to.")] = None,
    audit_reads: Annotated[bool, typer.Option("--audit-reads", help="Note reads as well.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Answer queries over HTTP, beside jobs or as their replica."""
    with clean_errors(trace=trace):
        check_server_installed()
        from penstock.server.served_jobs import Sources
        from penstock.server.serving import Server, ServerSettings

        if key_groups is not None and not replica:
            raise ConfigError("--key-groups says which part of the state a replica has", hint="add --replica")
        sources = Sources(
            storages=tuple(storages),
            local_dir=local_dir,
            replica=replica,
            key_groups=parse_groups(key_groups),
            access=Access(all_states=all_states),
        )
        settings = ServerSettings(
            sources=sources,
            host=host,
            port=port,
            host_names=tuple(host_name or ()),
            tokens=tokens,
            audit=audit,
            audit_reads=audit_reads,
        )
        server = Server(settings)
        echo(f"serving {', '.join(storages)} at {server.url}")
        server.run()


def check_server_installed() -> None:
    """Refuse to serve without the packages that it takes."""
    missing = [package for package in ("starlette", "uvicorn") if find_spec(package) is None]
    if missing:
        raise ConfigError(f"{' and '.join(missing)} cannot be imported", hint="pip install 'penstock[server]'")


def parse_groups(text: str | None) -> range | None:
    """Key groups from A to B, as `A-B`; B is one of them.

    >>> parse_groups("0-63")
    range(0, 64)
    """
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise ConfigError(f"{text!r} are no key groups", hint="give the first and the last: --key-groups 0-63")
    return range(int(first), int(last) + 1)
