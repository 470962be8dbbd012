"""Names that others leave in folders: file managers, editors, network file systems, operators."""

from __future__ import annotations

import os
from pathlib import Path

DEEP = b'{"a":' * 100_000
CONTENTS = [b"", b"\xff\xfe\x00 junk", b"{}", b"[1, 2]", DEEP]

NAMES: list[bytes] = [
    b".DS_Store",
    b".nfs00000000004c3f2100000007",
    b".0000000007.json.swp",
    b".x.swp",
    b"notes.json",
    b"zzz",
    b"0000000007.json.bak",
    b"0000000099.done~",
    b"7.json",
    b"007.json",
    b"000000000099.done",
    b"000001.json (copy)",
    b"99999999999999999999999999.json",
    b"0000000001-1-1-0-0-0.delta.bak",
    b"1-2-3.delta",
    b"0-notes.parquet.part",
    b"00000000000000000007 (copy).json",
    b"part-0000000001-00000-0000-1-1-1-0-0.jsonl.bak",
    b"penstock.json",
    "٠٠٠٠٠٠٠٠٠٧.json".encode(),
    "²²²²²².json".encode(),
    "ünï→.json".encode(),
    b"two\nlines.json",
    b"back\\slash.json",
    b"no\xffutf8\xfe.json",
    b"x" * 200,
]


def litter(root: Path) -> dict[bytes, bytes]:
    """Put every kind of name into a folder and into all below it; what was put there, by path."""
    made: dict[bytes, bytes] = {}
    here = os.fsencode(root)
    os.makedirs(here, exist_ok=True)
    for folder in [here, *(os.path.join(at, name) for at, below, _ in os.walk(here) for name in below)]:
        for number, name in enumerate(NAMES):
            made[os.path.join(folder, name)] = CONTENTS[number % len(CONTENTS)]
        made[os.path.join(folder, b"a folder", b"0000000007.json")] = b"{}"
        made[os.path.join(folder, b".git", b"0000000007.done")] = b""
        for name, target in ((b"up", b".."), (b"itself", b"itself"), (b"nowhere", b"no such file")):
            if not os.path.lexists(link := os.path.join(folder, name)):
                os.symlink(target, link)
    for path, content in made.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(content)
    return made


def check_untouched(made: dict[bytes, bytes]) -> None:
    """Nothing of it was removed or written to."""
    for path, content in made.items():
        assert Path(os.fsdecode(path)).read_bytes() == content, path
