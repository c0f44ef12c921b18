"""The name of an onion service follows from its key, and a typing error in a name is detected."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.onion_keys import OnionKey, host_of, read_host
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import MalformedError

PUBLISHED = (
    "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion",
    "sp3k262uwy4r2k3ycr5awluarykdpag6a7y33jxop4cs2lu5uz5sseqd.onion",
    "xa4r2iadxm55fbnqgwwi5mymqdcofiu3w6rpbtqn7b2dyn7mgwj64jyd.onion",
)
"""The examples of the specification."""


@pytest.mark.parametrize("host", PUBLISHED)
def test_the_specifications_own_names_are_read(host: str) -> None:
    assert host_of(read_host(host)) == host


@given(st.binary(min_size=32, max_size=32))
def test_a_key_has_one_name_which_tells_its_public_half(seed: bytes) -> None:
    key = OnionKey(Secret(seed))
    assert read_host(key.host) == SigningKey(Secret(seed)).public
    assert seed.hex() not in repr(key)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 55), st.sampled_from("abcdefghijklmnopqrstuvwxyz234567"))
def test_a_slip_in_a_name_is_noticed(public: bytes, place: int, letter: str) -> None:
    host = host_of(public)
    slipped = host[:place] + letter + host[place + 1 :]
    if slipped != host:
        # Two bytes of a checksum: one slip in 65,536 would pass, and none of these does.
        with pytest.raises(MalformedError):
            read_host(slipped)


@pytest.mark.parametrize(
    "text",
    ["", ".onion", "example.org", "a" * 56 + ".onion", "é" * 56 + ".onion", PUBLISHED[0].upper(), PUBLISHED[0][:-6]],
)
def test_a_string_that_is_no_onion_name_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        read_host(text)


def test_tor_gets_the_expanded_seed_with_its_bits_set() -> None:
    seed = bytes(range(32))
    expanded = OnionKey(Secret(seed)).expand().reveal()
    plain = hashlib.sha512(seed).digest()
    assert (len(expanded), expanded[1:31], expanded[32:]) == (64, plain[1:31], plain[32:])
    assert (expanded[0] & 7, expanded[31] >> 6) == (0, 1)
    assert base64.b64encode(expanded)
