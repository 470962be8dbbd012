"""Documents with a checksum: their bytes stay as they are, and no damage passes."""

from __future__ import annotations

import pytest

from penstock.errors import CorruptFileError
from penstock.storage.sealed import body_of, enclose, enclosed, seal, unseal

SEALED = b'{"version":1,"term":7,"crc":2526098877}'
ENCLOSED = b'{"crc":2526098877,"manifest":{"version":1,"term":7}}\n'
DOCUMENT = {"version": 1, "term": 7}


def test_the_bytes_are_those_of_every_version() -> None:
    assert seal(DOCUMENT) == SEALED
    assert enclose("manifest", b'{"version":1,"term":7}') == ENCLOSED


def test_what_is_written_is_read() -> None:
    assert unseal(SEALED, dict, "job.json") == DOCUMENT
    assert enclosed("manifest", ENCLOSED) == body_of(SEALED) == b'{"version":1,"term":7}'


def test_a_sealed_document_without_a_checksum_is_of_before_there_were_any() -> None:
    assert unseal(b'{"version":1}', dict, "job.json") == {"version": 1}


@pytest.mark.parametrize("at", range(len(ENCLOSED)))
def test_every_changed_byte_of_an_enclosed_document_is_seen(at: int) -> None:
    assert enclosed("manifest", ENCLOSED[:at] + bytes([ENCLOSED[at] ^ 1]) + ENCLOSED[at + 1 :]) is None


@pytest.mark.parametrize("most", range(len(ENCLOSED)))
def test_a_shorter_one_is_none(most: int) -> None:
    assert enclosed("manifest", ENCLOSED[:most]) is None


def test_another_kind_of_document_is_none() -> None:
    assert enclosed("program", ENCLOSED) is None


def test_a_changed_number_is_refused_by_name() -> None:
    with pytest.raises(CorruptFileError, match=r"job\.json is damaged"):
        unseal(SEALED.replace(b"7", b"8", 1), dict, "job.json")
