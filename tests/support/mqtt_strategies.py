"""Legal packets of MQTT, of either version, for hypothesis."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from veilcast.wire.mqtt import (
    NUMBER_MAX,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
    Version,
)


def packets(version: Version) -> st.SearchStrategy[Packet]:
    return st.one_of(
        st.builds(
            lambda topic, payload, retained: PublishPacket(topic, payload, 0, False, retained), TOPIC, BLOB, FLAG
        ),
        st.builds(PublishPacket, TOPIC, BLOB, NUMBER, FLAG, FLAG),
        st.builds(SubscribePacket, NUMBER, FILTERS),
        st.builds(UnsubscribePacket, NUMBER, FILTERS),
        st.just(PingreqPacket()),
        st.just(PingrespPacket()),
        *(_of_five() if version is Version.MQTT_5 else _of_three()),
    )


def _of_five() -> list[st.SearchStrategy[Packet]]:
    most, expiry = st.none() | st.integers(1, LONG_MAX), st.integers(0, LONG_MAX)
    return [
        st.builds(
            ConnectPacket, NAME, st.just(Version.MQTT_5), FLAG, SHORT, MAYBE, st.none() | BLOB, expiry, NUMBER, most
        ),
        st.builds(ConnackPacket, st.just(False), st.sampled_from((0, *REFUSALS)), MAYBE_LONG),
        st.builds(
            ConnackPacket, FLAG, st.just(0), MAYBE_LONG, st.none() | SHORT, NUMBER, most, st.integers(0, 2), FLAG
        ),
        st.builds(PubackPacket, NUMBER, st.sampled_from((0, 0x10, *REFUSALS))),
        st.builds(SubackPacket, NUMBER, codes(0, 1, 2)),
        st.builds(UnsubackPacket, NUMBER, codes(0, 0x11)),
        st.builds(DisconnectPacket, st.sampled_from((0, 4, *REFUSALS)), MAYBE_LONG),
    ]


def _of_three() -> list[st.SearchStrategy[Packet]]:
    three = st.just(Version.MQTT_3_1_1)
    return [
        st.builds(ConnectPacket, NAME, three, FLAG, SHORT),
        st.builds(ConnectPacket, NAME, three, FLAG, SHORT, TEXT, st.none() | BLOB),
        st.builds(ConnackPacket, st.just(False), st.integers(0, 5)),
        st.builds(ConnackPacket, FLAG),
        st.builds(PubackPacket, NUMBER),
        st.builds(SubackPacket, NUMBER, st.lists(st.sampled_from((0, 1, 2, 0x80)), min_size=1, max_size=4).map(tuple)),
        st.builds(UnsubackPacket, NUMBER),
        st.just(DisconnectPacket()),
    ]


def codes(*good: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.sampled_from((*good, *REFUSALS)), min_size=1, max_size=4).map(tuple)


REFUSALS: Final = range(0x80, 0x100)
LONG_MAX: Final = (1 << 32) - 1
FLAG: Final = st.booleans()
SHORT: Final = st.integers(0, NUMBER_MAX)
NUMBER: Final = st.integers(1, NUMBER_MAX)
MAYBE_LONG: Final = st.none() | st.integers(0, LONG_MAX)
BLOB: Final = st.binary(max_size=300)
TEXT: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
MAYBE: Final = st.none() | TEXT
NAME: Final = TEXT.filter(bool)
LEVEL: Final = st.text(st.characters(codec="utf-8", exclude_characters="\0/+#"), max_size=3)
TOPIC: Final = st.lists(LEVEL, min_size=1, max_size=6).map("/".join).filter(bool)
FILTER: Final = st.builds(
    lambda levels, rest: "/".join([*levels, *rest]),
    st.lists(st.just("+") | LEVEL, min_size=1, max_size=6),
    st.sampled_from(((), ("#",))),
).filter(bool)
FILTERS: Final = st.lists(FILTER, min_size=1, max_size=4).map(tuple)
VERSIONS: Final = st.sampled_from(Version)
VERSION_AND_PACKET: Final = st.one_of(*(st.tuples(st.just(version), packets(version)) for version in Version))
