"""The overlay's description on the disk follows the one in use, and never goes back."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, SignedOverlay, sign_overlay
from veilcast.crypto.sign import SigningKey
from veilcast.errors import StorageError
from veilcast.node.broker_overlay import read_signed, write_signed
from veilcast.node.brokers import StoredOverlay

OPERATOR = SigningKey.generate(Random(5).randbytes)


def version(number: int) -> SignedOverlay:
    replicas = tuple(Replica(bytes([at]) * 32, f"broker:{at}@1.2.3.4:{at}", f"broker:{at}") for at in (1, 2, 3))
    return sign_overlay(BrokerOverlay(number, (NodeEntry("a", number, replicas),)), OPERATOR)


def test_the_overlay_in_use_is_written_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "overlay.signed"
    write_signed(path, version(1))
    kept = StoredOverlay(path, OPERATOR.public, version(1))
    kept.update(version(2))
    assert read_signed(path, OPERATOR.public) == version(2)


def test_a_newer_overlay_that_the_operator_wrote_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "overlay.signed"
    kept = StoredOverlay(path, OPERATOR.public, version(1))
    write_signed(path, version(3))
    kept.update(version(2))
    assert read_signed(path, OPERATOR.public) == version(3)


@pytest.mark.parametrize("there", [None, b"", b"anything"])
def test_a_missing_or_damaged_file_is_written_again(there: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "overlay.signed"
    if there is not None:
        path.write_bytes(there)
    StoredOverlay(path, OPERATOR.public, version(1)).update(version(2))
    assert read_signed(path, OPERATOR.public) == version(2)


def test_a_failed_write_is_repeated_until_it_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "away" / "overlay.signed"
    kept = StoredOverlay(path, OPERATOR.public, version(1))
    for _ in range(2):
        with pytest.raises(StorageError, match="cannot write"):
            kept.update(version(2))
    path.parent.mkdir()
    kept.update(version(2))
    assert read_signed(path, OPERATOR.public) == version(2)
