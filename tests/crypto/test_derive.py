from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.derive import derive, fingerprint
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError

KEY = Secret(b"k" * 32)
PARTS = st.lists(st.binary(max_size=6), max_size=4)


@given(first=PARTS, second=PARTS)
def test_two_lists_of_parts_give_one_key_only_if_they_are_equal(first: list[bytes], second: list[bytes]) -> None:
    assert (derive(KEY, b"p", *first) == derive(KEY, b"p", *second)) == (first == second)


def test_purposes_and_keys_are_kept_apart() -> None:
    assert derive(KEY, b"one") != derive(KEY, b"two")
    assert derive(KEY, b"one") != derive(Secret(b"l" * 32), b"one")
    for purpose in (b"", b"far too long a purpose"):
        with pytest.raises(LocalError):
            derive(KEY, purpose)


def test_a_fingerprint_names_its_bytes() -> None:
    assert fingerprint(b"a") != fingerprint(b"b")
    assert len(fingerprint(b"a")) == 16
