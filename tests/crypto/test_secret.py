from __future__ import annotations

import pickle

import pytest

from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError

KEY = b"do not show this to anybody 1234"


def test_a_secret_shows_nothing_of_itself_in_any_text_form() -> None:
    secret = Secret(KEY)
    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]!r}", f"{secret!s:>40}"):
        assert "show" not in text
        assert KEY.hex() not in text


def test_secrets_compare_by_content_and_never_with_plain_bytes() -> None:
    assert Secret(KEY) == Secret(KEY)
    assert Secret(KEY) != Secret(KEY[::-1])
    assert (Secret(KEY) == KEY) is False


def test_a_secret_cannot_leave_by_pickle_or_become_a_dictionary_key() -> None:
    with pytest.raises(LocalError):
        pickle.dumps(Secret(KEY))
    with pytest.raises(TypeError):
        hash(Secret(KEY))


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(LocalError):
        Secret(b"")
