from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret
from veilcast.crypto.topic_token import TOKEN, epoch_token, paper_token

KEY, OTHER = Secret(b"k" * 32), Secret(b"o" * 32)


@given(attribute=st.text(max_size=80), epoch=st.integers(0, 2**32 - 1))
def test_all_tokens_have_one_size_and_are_the_same_for_every_holder_of_the_key(attribute: str, epoch: int) -> None:
    assert paper_token(KEY, attribute) == paper_token(Secret(b"k" * 32), attribute)
    assert epoch_token(KEY, attribute, epoch) == epoch_token(Secret(b"k" * 32), attribute, epoch)
    assert len(paper_token(KEY, attribute)) == len(epoch_token(KEY, attribute, epoch)) == TOKEN


@given(first=st.text(max_size=20), second=st.text(max_size=20))
def test_different_attributes_and_different_keys_have_different_tokens(first: str, second: str) -> None:
    if first != second:
        assert paper_token(KEY, first) != paper_token(KEY, second)
        assert epoch_token(KEY, first, 1) != epoch_token(KEY, second, 1)
    assert paper_token(KEY, first) != paper_token(OTHER, first)


def test_a_paper_token_is_for_ever_and_an_epoch_token_is_not() -> None:
    assert len({epoch_token(KEY, "news/eu", epoch) for epoch in range(1000)}) == 1000


def test_the_siv_cipher_agrees_with_rfc_5297() -> None:
    # RFC 5297, appendix A.1 (deterministic authenticated encryption example).
    key = bytes.fromhex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
    context = bytes.fromhex("101112131415161718191a1b1c1d1e1f2021222324252627")
    plaintext = bytes.fromhex("112233445566778899aabbccddee")
    expected = "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c"
    assert hazmat.siv_encrypt(key, plaintext, context).hex() == expected
