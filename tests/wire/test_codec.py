from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilcast.errors import LocalError, MalformedError
from veilcast.wire import decode, encode
from veilcast.wire import geometry as g
from veilcast.wire.messages import TYPE_BYTES, Heartbeat, Message, Notify, Subscribe, SwapAsk

sys.path.insert(0, str(Path(__file__).parent))
from strategies import messages, of_type

ANY = messages()


@settings(max_examples=300)
@given(message=ANY)
def test_every_message_comes_back_equal(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("kind", TYPE_BYTES.values(), ids=lambda kind: kind.__name__)
def test_each_type_of_message_has_a_strategy_and_survives_the_journey(kind: type[Message]) -> None:
    @settings(max_examples=20)
    @given(message=of_type(kind))
    def journey(message: Message) -> None:
        assert type(message) is kind
        assert decode(encode(message)) == message

    journey()


@settings(max_examples=500)
@given(data=st.binary(max_size=400))
def test_random_bytes_raise_one_error_or_are_the_one_encoding_of_a_message(data: bytes) -> None:
    _refused_or_canonical(data)


@settings(max_examples=300)
@given(message=ANY, position=st.integers(0, 10**6), value=st.integers(1, 255))
def test_a_changed_byte_raises_one_error_or_makes_another_canonical_message(
    message: Message, position: int, value: int
) -> None:
    data = bytearray(encode(message))
    data[position % len(data)] ^= value
    _refused_or_canonical(bytes(data))


@given(message=ANY, cut=st.integers(1, 10**6), extra=st.binary(min_size=1, max_size=9))
def test_a_cut_or_lengthened_message_is_refused(message: Message, cut: int, extra: bytes) -> None:
    data = encode(message)
    for changed in (data[: -(cut % len(data)) or -1], data + extra):
        with pytest.raises(MalformedError):
            decode(changed)


def test_a_second_encoding_of_a_message_is_refused() -> None:
    plain = encode(Heartbeat(5, ()))
    assert plain.hex() == "01920590"
    # The same array with 5 as a 16-bit number, and with the array's own length in 16 bits.
    for variant in ("0192cd000590", "01dc00020590"):
        with pytest.raises(MalformedError):
            decode(bytes.fromhex(variant))


def test_the_limits_of_every_bounded_field_are_held() -> None:
    token = bytes(g.TOKEN)
    longest = Notify(token, bytes(g.SEALED_BODY_MAX), bytes(g.SIGNATURE))
    assert decode(encode(longest)) == longest
    with pytest.raises(MalformedError):
        decode(encode(Notify(token, bytes(g.SEALED_BODY_MAX + 1), bytes(g.SIGNATURE))))
    name = "n" * g.ADDRESS_MAX
    full = SwapAsk(bytes(16), token, (name,) * g.NEIGHBOURS_MAX, (name,) * g.NEIGHBOURS_MAX)
    assert decode(encode(full)) == full
    assert len(encode(full)) <= g.MANAGEMENT_MAX
    with pytest.raises(MalformedError):
        decode(encode(SwapAsk(bytes(16), token, (name,) * (g.NEIGHBOURS_MAX + 1), ())))
    with pytest.raises(MalformedError):
        decode(encode(SwapAsk(bytes(16), token, (name + "n",), ())))


def test_too_long_a_message_is_refused_before_it_is_parsed_and_cannot_be_sent() -> None:
    rider = bytes(g.MANAGEMENT_MAX)
    with pytest.raises(LocalError):
        encode(Heartbeat(1, (rider,) * g.HEARTBEAT_MAX))
    with pytest.raises(MalformedError, match="length"):
        decode(b"\x01" + bytes(g.MESSAGE_MAX))


def test_a_length_field_cannot_reserve_memory_it_does_not_fill() -> None:
    # An array and a byte string that announce four thousand million entries.
    for head in ("0192050000", "06dd ffffffff", "0693c6ffffffff"):
        with pytest.raises(MalformedError):
            decode(bytes.fromhex(head))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(MalformedError):
        decode(b"\x01" + b"\x91" * 40_000 + b"\xc0")


def test_type_bytes_are_never_reused_or_renumbered() -> None:
    assert {number: kind.__name__ for number, kind in TYPE_BYTES.items()} == {
        1: "Heartbeat",
        2: "Advert",
        3: "Unadvert",
        4: "Subscribe",
        5: "Unsubscribe",
        6: "Notify",
        7: "Join",
        8: "ForwardJoin",
        9: "Keep",
        10: "Replace",
        11: "Invite",
        12: "Decline",
        13: "SwapAsk",
        14: "SwapAnswer",
        15: "SwapLock",
        16: "SwapVote",
        17: "SwapCommit",
        18: "SwapAbort",
        19: "BulletinPart",
    }


def test_messages_cannot_be_changed() -> None:
    message = Subscribe(bytes(32))
    with pytest.raises(AttributeError):
        message.token = b""  # type: ignore[misc]


def test_the_checker_catches_a_codec_that_accepts_variants() -> None:
    """The planted bug: a decoder without the canonical check takes both encodings for the same message."""
    lax = msgspec.msgpack.Decoder(Heartbeat)
    assert lax.decode(bytes.fromhex("92cd000590")) == lax.decode(bytes.fromhex("920590"))


def _refused_or_canonical(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedError:
        return
    assert encode(message) == data
