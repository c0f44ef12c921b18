from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.message_strategies import beyond, messages, of_type, with_garbage
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError
from veilcast.wire import codec, decode, encode
from veilcast.wire import geometry as g
from veilcast.wire.base import Message
from veilcast.wire.codec import TYPE_BYTES
from veilcast.wire.mesh import Heartbeat, Notify, Replace, Subscribe, SwapAsk

ANY = messages()

DEEP = 20_000
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


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


# The same message with 5 as a 16-bit number, and with the array's own length in 16 bits.
VARIANTS = [bytes.fromhex("0192cd000590"), bytes.fromhex("01dc00020590")]


@pytest.mark.parametrize("variant", VARIANTS, ids=bytes.hex)
def test_a_second_encoding_of_a_message_is_refused(variant: bytes) -> None:
    assert encode(Heartbeat(5, ())).hex() == "01920590"
    with pytest.raises(MalformedError):
        decode(variant)


@pytest.mark.parametrize("variant", VARIANTS, ids=bytes.hex)
def test_without_the_canonical_comparison_variants_pass_and_the_check_here_notices(
    variant: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: whatever the decoder compares with the one encoding is found equal to it."""
    _refused_or_canonical(variant)
    monkeypatch.setattr(codec, "_ENCODER", _AgreeableEncoder())
    assert decode(variant) == Heartbeat(5, ())
    with pytest.raises(AssertionError, match="two encodings"):
        _refused_or_canonical(variant)


def test_the_limits_of_every_bounded_field_are_held() -> None:
    token = bytes(g.TOKEN)
    longest = Notify(token, bytes(g.SEALED_BODY_MAX), bytes(g.SIGNATURE))
    assert decode(encode(longest)) == longest
    name = "n" * g.ADDRESS_MAX
    full = SwapAsk(bytes(16), token, (name,) * g.NEIGHBOURS_MAX, (name,) * g.NEIGHBOURS_MAX)
    assert decode(encode(full)) == full
    assert len(encode(full)) <= g.MANAGEMENT_MAX


@pytest.mark.parametrize("kind", TYPE_BYTES.values(), ids=lambda kind: kind.__name__)
def test_no_message_that_breaks_a_bound_can_be_sent_or_received(kind: type[Message]) -> None:
    broken = 0

    @settings(max_examples=5)
    @given(message=of_type(kind))
    def break_every_field(message: Message) -> None:
        nonlocal broken
        for field in msgspec.structs.fields(kind):
            for value in beyond(field.type):
                illegal = msgspec.structs.replace(message, **{field.name: value})
                with pytest.raises(LocalError, match=kind.__name__):
                    encode(illegal)
                with pytest.raises(MalformedError):
                    decode(encode(message)[:1] + msgspec.msgpack.encode(illegal))
                broken += 1

    break_every_field()
    assert broken >= len(msgspec.structs.fields(kind))


@pytest.mark.parametrize(
    "value", ["\ud800", 1 << 70, object(), ENDLESS], ids=["surrogate", "huge", "object", "endless"]
)
def test_a_message_that_cannot_be_encoded_cannot_be_sent(value: Any) -> None:
    with pytest.raises(LocalError):
        encode(Replace(value))
    with pytest.raises(LocalError):
        encode(Message())


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


@pytest.mark.parametrize("kind", TYPE_BYTES.values(), ids=lambda kind: kind.__name__)
def test_deep_nesting_is_refused_in_every_place_of_every_message(kind: type[Message]) -> None:
    """Arrays in arrays and maps in maps, deeper than any stack, in the place of each element and as one more."""

    @settings(max_examples=5)
    @given(message=of_type(kind))
    def nest(message: Message) -> None:
        for garbage in (b"\x91" * DEEP + b"\xc0", b"\x81\xc0" * DEEP + b"\xc0"):
            for data in with_garbage(message, garbage):
                with pytest.raises(MalformedError):
                    decode(data)

    nest()


@settings(max_examples=200)
@given(message=ANY, garbage=st.binary(min_size=1, max_size=40), place=st.integers(0, 10**6))
def test_garbage_in_any_place_raises_one_error_or_makes_another_canonical_message(
    message: Message, garbage: bytes, place: int
) -> None:
    variants = list(with_garbage(message, garbage))
    _refused_or_canonical(variants[place % len(variants)])


def test_a_decoder_that_runs_out_of_stack_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a type with room for anything, as a field without `forbid_unknown_fields` would have."""
    nested = b"\x01" + b"\x91" * DEEP + b"\xc0"
    with pytest.raises(RecursionError):
        msgspec.msgpack.decode(nested[1:])
    roomy: MsgpackDecoder[Any] = MsgpackDecoder(Any, MalformedError, "too deep")
    monkeypatch.setitem(codec._DECODERS, 1, roomy)
    with pytest.raises(MalformedError):
        decode(nested)


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
        20: "Greet",
        21: "Call",
        22: "Stem",
        23: "StemReceipt",
        24: "Knock",
        25: "Answer",
        26: "Show",
        27: "Admit",
        28: "Surroundings",
        29: "Parcel",
        0x40: "EnrolClient",
        0x41: "Blind",
        0x42: "Blinded",
        0x43: "Lease",
        0x44: "Release",
        0x45: "Resume",
        0x46: "Submit",
        0x47: "RequestReply",
        0x48: "RelayDelivery",
        0x49: "Receipt",
        0x4A: "LeaseAhead",
        0x60: "EnrolNode",
        0x61: "NodeEnrolled",
        0x62: "FetchListing",
        0x63: "ListingHead",
        0x64: "ListingPage",
        0x65: "Install",
        0x66: "Offer",
        0x67: "ForwardPublication",
        0x68: "RequestAck",
        0x69: "RequestRefused",
        0x80: "Hello",
        0x81: "SessionItem",
        0x82: "ItemAck",
        0x83: "Claim",
        0x84: "WithdrawClaim",
        0x85: "ForwardContent",
        0x86: "RequestBlocks",
        0x87: "ConfirmContent",
        0x88: "FirstShare",
        0x89: "NextShare",
        0x8A: "AgreementWord",
        0x8B: "DisputeDealing",
        0x8C: "ShareReceived",
        0x8D: "LastShare",
        0x8E: "WantKey",
        0x8F: "OverlayOrder",
        0x90: "VersionAdopted",
        0x91: "CopyRouting",
        0x92: "PullShare",
        0x93: "PushShare",
        0x94: "RoutingCopied",
        0x95: "BringClaim",
    }


def test_messages_cannot_be_changed() -> None:
    message = Subscribe(bytes(32))
    with pytest.raises(AttributeError):
        message.token = b""  # type: ignore[misc]


def _refused_or_canonical(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedError:
        return
    assert encode(message) == data, "two encodings of one message"


class _Agreeable(bytes):
    def __ne__(self, other: object) -> bool:
        return False


class _AgreeableEncoder:
    def encode(self, message: Message) -> bytes:
        return _Agreeable(msgspec.msgpack.encode(message))
