"""The code of an invitation: what is read out comes back, and a slip is noticed before anything is sent."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto.onion_keys import host_of
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError
from veilcast.invitation.code import InvitationCode, draw_code, parse_code
from veilcast.machine import Address

PLACES = ["192.0.2.1:4000", "127.0.0.1:1", "[2001:db8::1]:65535", f"{host_of(bytes(range(32)))}:80"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rendezvous", [False, True])
@given(seed=st.integers(0, 2**32))
def test_a_code_survives_being_read_out(place: str, rendezvous: bool, seed: int) -> None:
    code = draw_code(Address(place), Random(seed).randbytes, rendezvous=rendezvous)
    text = code.format()
    assert parse_code(text) == code
    assert parse_code(f"  {text.upper().replace('-', ' ')}\n") == code
    assert parse_code(code.format_link()) == code
    assert bool(code.number) == rendezvous


def test_a_code_for_an_address_of_ipv4_has_six_words_and_thirty_five_letters() -> None:
    text = draw_code(Address(PLACES[0]), Random(1).randbytes).format()
    assert (len(text.split("-")), len(text)) == (6, 35)


def test_the_words_are_proquints() -> None:
    """The example of the paper: 127.0.0.1 is lusab-babad."""
    code = InvitationCode(Secret(bytes(4)), Address("127.0.0.1:1"))
    assert code.format().split("-")[1:] == ["babab", "babab", "lusab", "babad", "babad"]


def test_nearly_every_wrong_word_is_noticed_before_anything_is_sent() -> None:
    rng = Random(5)
    words = draw_code(Address(PLACES[0]), rng.randbytes).format().split("-")
    others = [draw_code(Address(PLACES[0]), rng.randbytes).format().split("-") for _ in range(400)]
    missed = 0
    for other in others:
        place = rng.randrange(1, 4)
        with suppress(ConfigError):
            parse_code("-".join([*words[:place], other[place], *words[place + 1 :]]))
            missed += other[place] != words[place]
    assert missed <= 2


def test_two_words_in_the_wrong_order_are_noticed() -> None:
    one, two, three, *rest = draw_code(Address(PLACES[0]), Random(2).randbytes).format().split("-")
    with pytest.raises(ConfigError, match="try again"):
        parse_code("-".join([one, three, two, *rest]))


@given(st.text(max_size=300))
def test_any_other_text_is_refused_in_one_line_that_does_not_repeat_it(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_code(text)
    assert "\n" not in str(refused.value)
    assert text not in str(refused.value) or len(text) < 12


@pytest.mark.parametrize("text", ["", "lusab", "lusab-babad", "-", "lusab-babad-xxxxx", "lusab " * 40])
def test_an_incomplete_code_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nothing was sent"):
        parse_code(text)


@pytest.mark.parametrize("place", ["", "host:80", "192.0.2.1", "192.0.2.1:0", "192.0.2.1:65536", "x.onion:80", "1:2:3"])
def test_a_place_that_is_no_address_gets_no_code(place: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        draw_code(Address(place), Random(1).randbytes)


def test_the_channel_is_all_of_the_code_but_the_password() -> None:
    codes = [
        draw_code(Address(place), Random(1).randbytes, rendezvous=via) for place in PLACES for via in (False, True)
    ]
    assert len({code.channel for code in codes}) == len(codes)
    assert all(code.password.reveal() not in code.channel for code in codes)
    assert "password" not in repr(codes[0])
