"""The relay's keys in files and as a line of text: they come back as they were, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.crypto.group import Scalar
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, PassphraseError, PermissionsError, TamperedError
from veilcast.machine import Entropy
from veilcast.node.relay import (
    decode_server_line,
    encode_server_line,
    read_mask,
    read_server_keys,
    write_mask,
    write_server_keys,
)
from veilcast.relay.transformation_key import ServerKeys

SECRET = Secret(b"correct horse")
CHEAP = PassphraseCost(1, 1)


def test_a_servers_keys_come_back_with_the_passphrase_and_not_without(tmp_path: Path, entropy: Entropy) -> None:
    path, keys = tmp_path / "server.secret", ServerKeys.draw(entropy)
    write_server_keys(path, keys, SECRET, cost=CHEAP, entropy=entropy)
    assert read_server_keys(path, SECRET) == keys
    with pytest.raises(PassphraseError, match=r"server\.secret: "):
        read_server_keys(path, Secret(b"another"))
    assert keys.k_r.reveal() not in path.read_bytes()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(TamperedError, match=r"server\.secret: .*, or it is another kind of file"):
        read_server_keys(path, SECRET)


def test_a_mask_comes_back_from_a_file_that_is_private(tmp_path: Path, entropy: Entropy) -> None:
    path, mask = tmp_path / "mask", Scalar.draw(entropy)
    write_mask(path, mask)
    assert read_mask(path) == mask
    path.chmod(0o640)
    with pytest.raises(PermissionsError):
        read_mask(path)
    path.chmod(0o600)
    path.write_text("veilcast-mask-AAAA")
    with pytest.raises(TamperedError, match="relay proxy init"):
        read_mask(path)


def test_the_public_line_survives_no_slip(entropy: Entropy) -> None:
    public = ServerKeys.draw(entropy).public()
    line = encode_server_line(public)
    assert decode_server_line("server_key", line) == public
    assert " " not in line
    for place in range(len(line)):
        slip = line[:place] + ("a" if line[place] != "a" else "b") + line[place + 1 :]
        with pytest.raises(ConfigError, match=r"server_key: not the line"):
            decode_server_line("server_key", slip)
    for wrong in ("", line[:-1], line + "A", line + "\u00e9", line.upper()):
        with pytest.raises(ConfigError):
            decode_server_line("server_key", wrong)
