"""A hardened broker never stores or sends topics, values, bodies or keys: planted secrets are searched for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from support.broker_keyrings import EPOCH, TOPIC, keys_of
from support.broker_network import BrokerNetwork
from veilcast.authority.keyring import TopicKeys
from veilcast.authority.topic_record import Profile
from veilcast.brokers.broker import Broker
from veilcast.brokers.routing.claims import subscriber_key
from veilcast.core.match_elements import derive_element_key
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.machine import Publication
from veilcast.topics import All, Equal, Label, Range

KIND, PRICE, BODY = "a-planted-kind", 423.25, b"the planted body of a publication"


def hold(thing: Any, seen: dict[int, Any]) -> Iterator[bytes]:
    """All bytes and texts reachable from an object."""
    if id(thing) in seen:
        return
    seen[id(thing)] = thing  # Kept alive: an id is used again.
    if isinstance(thing, Secret):
        yield thing.reveal()
    elif isinstance(thing, SigningKey):
        yield thing.seed.reveal()
    elif isinstance(thing, bytes | bytearray):
        yield bytes(thing)
    elif isinstance(thing, str):
        yield thing.encode()
    elif isinstance(thing, float):
        yield struct.pack(">d", thing)
    elif isinstance(thing, dict):
        for pair in thing.items():
            yield from hold(pair, seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        for each in thing:
            yield from hold(each, seen)
    elif callable(getattr(thing, "popleft", None)):
        for each in list(thing):
            yield from hold(each, seen)
    else:
        if isinstance(thing, msgspec.Struct):
            names: list[str] = list(thing.__struct_fields__)
        else:
            slots = [getattr(kind, "__slots__", ()) for kind in type(thing).__mro__]
            names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
        for name in names:
            yield from hold(getattr(thing, name, None), seen)
        yield from hold(getattr(thing, "__dict__", {}), seen)


def planted_secrets(keys: TopicKeys) -> dict[str, bytes]:
    return {
        "the topic": TOPIC.encode(),
        "the kind": KIND.encode(),
        "the price": struct.pack(">d", PRICE),
        "the body": BODY,
        "the content key": keys.content.reveal(),
        "the key of tags": derive_element_key(keys, b"p4").reveal(),
        "the readers' key": subscriber_key(keys).seed.reveal(),
    }


def busy(profile: Profile) -> tuple[BrokerNetwork, TopicKeys]:
    """An overlay during traffic: claims are active, a publication was delivered, and another is in transit."""
    network = BrokerNetwork(profile)
    publisher, reader = network.client("P", "B1", 0, "publisher"), network.client("R", "B3", 1)
    network.run(1)
    reader.subscribe(All(Label(TOPIC), Equal("kind", KIND), Range("price", PRICE, 900)), network.now)
    network.touch("R")
    network.run(5)
    for _ in range(2):
        publisher.publish(Publication((("topic", TOPIC), ("kind", KIND), ("price", PRICE)), BODY), network.now)
        network.touch("P")
        network.run(0.012 if network.heard else 4)
    assert network.heard == [("R", 1, BODY)]
    return network, keys_of(0, profile, epoch=EPOCH)


def found(network: BrokerNetwork, what: bytes) -> set[str]:
    places = {"the wire"} if what in network.written else set()
    for broker in network.brokers():
        assert isinstance(broker, Broker)
        if any(what in held for held in hold(broker, {})):
            places.add("tables")
    return places


def test_a_hardened_broker_neither_stores_nor_sends_planted_secrets() -> None:
    network, keys = busy("hardened")
    assert any(broker.sizes()["contents"] for broker in network.brokers()), "there is something to be found"
    for name, what in planted_secrets(keys).items():
        assert not found(network, what), name


@pytest.mark.parametrize("name", ["the topic", "the kind", "the price"])
def test_the_search_finds_what_is_there(name: str) -> None:
    """In `paper` topics and values are in the clear; bodies and keys are not."""
    network, keys = busy("paper")
    assert found(network, planted_secrets(keys)[name]) == {"the wire", "tables"}


def test_even_in_paper_brokers_neither_store_nor_send_plaintext() -> None:
    network, keys = busy("paper")
    for name in ("the body", "the content key", "the readers' key"):
        assert not found(network, planted_secrets(keys)[name]), name
