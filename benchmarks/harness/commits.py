"""Another commit of this repository, as files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.places import COMMITS, ROOT


class CommitError(Exception):
    """There is no such commit, or no repository."""


def commit_of(name: str) -> str:
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", problem=f"there is no commit {name!r} here")


def described(commit: str) -> str:
    return _git("log", "-1", "--format=%h %s", commit, problem=f"there is no commit {commit!r} here")


def has_changes() -> bool:
    return bool(_git("status", "--porcelain", "--", "src", problem="this is not a git repository"))


def worktree_of(commit: str) -> Path:
    """A worktree with this commit, under build/; that of an earlier run is used again."""
    folder = COMMITS / commit[:12]
    if not (folder / "src" / "penstock").is_dir():
        COMMITS.mkdir(parents=True, exist_ok=True)
        _git("worktree", "prune", problem="this is not a git repository")
        _git("worktree", "add", "--quiet", "--force", "--detach", str(folder), commit, problem=f"no worktree of {commit}")
    changed = _git("-C", str(folder), "status", "--porcelain", "--", "src", problem=f"{folder} is not a worktree")
    there = _git("-C", str(folder), "rev-parse", "HEAD", problem=f"{folder} is not a worktree")
    if changed or there != commit:
        raise CommitError(f"{folder} is not {commit[:12]} as it was committed: remove it, and try again")
    return folder


def _git(*arguments: str, problem: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommitError(f"{problem}: {done.stderr.strip()}".rstrip(": "))
    return done.stdout.strip()
