"""Bodies reach their subscribers unchanged; in `hardened` no bytes repeat on the way."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.authority_members import NOW, OTHER, TOPIC, make_authority_members
from veilcast.core.publication import NumberedPublication
from veilcast.crypto.group import Scalar
from veilcast.crypto.seal import OVERHEAD, Sealer
from veilcast.errors import ForgedError, LocalError
from veilcast.machine import Entropy, Publication
from veilcast.relay import body_encryption
from veilcast.relay.transformation_key import ServerKeys
from veilcast.wire.geometry import BODY_CLASSES, BODY_MAX

PEOPLE = make_authority_members()
ROOT = PEOPLE.alice.root
PUBLISHER, READER = (keyring.keys_at(NOW).topic(TOPIC) for keyring in (PEOPLE.alice, PEOPLE.bob))


def content(size: int = 5, number: int = 1) -> NumberedPublication:
    return NumberedPublication(b"streamed", number, Publication((("topic", TOPIC),), b"x" * size))


# --- paper


@given(st.binary(max_size=200), st.integers(0, 2**32))
def test_in_paper_a_body_passes_from_publisher_to_subscriber_through_the_servers_key(body: bytes, seed: int) -> None:
    entropy = random.Random(seed).randbytes
    keys = ServerKeys.draw(entropy)
    publisher, reader = Scalar.draw(entropy), Scalar.draw(entropy)
    encrypted, sealed = body_encryption.seal_body(body, publisher, entropy)
    at_server = body_encryption.move_key_up(encrypted, keys.k_r / publisher)
    fresh = body_encryption.rerandomise_key(at_server, keys, entropy)
    delivered = body_encryption.move_key_down(fresh, keys.k_r / reader)
    assert body_encryption.open_body(delivered, sealed, reader) == body
    assert fresh.body != at_server.body
    with pytest.raises(ForgedError):
        body_encryption.open_body(delivered, sealed, publisher)
    with pytest.raises(ForgedError):
        body_encryption.open_body(encrypted, sealed, reader)


# --- hardened


def test_a_notification_passes_all_three_layers(entropy: Entropy) -> None:
    keys = ServerKeys.draw(entropy)
    sealed = body_encryption.seal_note(PUBLISHER, content(), entropy)
    up = body_encryption.wrap_for_server(keys.public().box, sealed, purpose=b"publish", entropy=entropy)
    key = Sealer(body_encryption.draw_delivery_key(entropy))
    down = body_encryption.wrap_for_subscriber(
        key, body_encryption.open_at_server(keys, up, purpose=b"publish"), entropy
    )
    assert body_encryption.open_note(READER, body_encryption.open_at_subscriber(key, down), ROOT, NOW) == content()


def test_a_layer_opens_only_for_its_own_purpose(entropy: Entropy) -> None:
    keys, key = ServerKeys.draw(entropy), Sealer(body_encryption.draw_delivery_key(entropy))
    up = body_encryption.wrap_for_server(keys.public().box, b"note", purpose=b"publish", entropy=entropy)
    down = body_encryption.wrap_for_subscriber(key, b"note", entropy)
    with pytest.raises(ForgedError):
        body_encryption.open_at_server(keys, up, purpose=b"subscribe")
    with pytest.raises(ForgedError):
        body_encryption.open_at_server(ServerKeys.draw(entropy), up, purpose=b"publish")
    with pytest.raises(ForgedError):
        body_encryption.open_at_subscriber(Sealer(body_encryption.draw_delivery_key(entropy)), down)


def test_a_notification_has_one_of_a_few_sizes(entropy: Entropy) -> None:
    sizes = {
        len(body_encryption.seal_note(PUBLISHER, content(size), entropy)) for size in range(0, BODY_MAX - 100, 1009)
    }
    assert sizes == {size + OVERHEAD for size in BODY_CLASSES}


def test_the_largest_notification_has_a_size_class(entropy: Entropy) -> None:
    """Every notification that any mode accepts fits this one."""
    spare = BODY_MAX - len(msgspec.msgpack.encode(content(BODY_MAX - 500))) + BODY_MAX - 500
    largest = content(spare)
    sealed = body_encryption.seal_note(PUBLISHER, largest, entropy)
    assert len(sealed) == BODY_CLASSES[-1] + OVERHEAD
    assert body_encryption.open_note(READER, sealed, ROOT, NOW) == largest
    with pytest.raises(LocalError):
        body_encryption.seal_note(PUBLISHER, content(spare + 1), entropy)


def test_a_sealed_notification_repeats_nothing_and_names_neither_topic_nor_publisher(entropy: Entropy) -> None:
    first, second = (body_encryption.seal_note(PUBLISHER, content(), entropy) for _ in range(2))
    assert PUBLISHER.certificate is not None
    for told in (PUBLISHER.token, PUBLISHER.certificate.leaf.subject, PUBLISHER.lineage, TOPIC.encode()):
        assert told not in first
    assert first[:8] != second[:8]
    pieces = {first[start : start + 8] for start in range(1, len(first) - 8)}
    assert not any(second[start : start + 8] in pieces for start in range(1, len(second) - 8))


def test_a_subscriber_refuses_a_notification_that_no_publisher_of_the_topic_signed(entropy: Entropy) -> None:
    other_epoch = PEOPLE.alice.keys_at(NOW + 1).topic(TOPIC)
    with pytest.raises(ForgedError):
        body_encryption.open_note(READER, body_encryption.seal_note(other_epoch, content(), entropy), ROOT, NOW)
    with pytest.raises(ForgedError):
        body_encryption.open_note(
            PEOPLE.bob.keys_at(NOW).topic(OTHER), body_encryption.seal_note(PUBLISHER, content(), entropy), ROOT, NOW
        )
    assert PUBLISHER.signing is not None
    reader_as_publisher = msgspec.structs.replace(
        READER,
        signing=type(PUBLISHER.signing)(body_encryption.draw_delivery_key(entropy)),
        certificate=PUBLISHER.certificate,
    )
    with pytest.raises(ForgedError):
        body_encryption.open_note(READER, body_encryption.seal_note(reader_as_publisher, content(), entropy), ROOT, NOW)
    uncertified = msgspec.structs.replace(PUBLISHER, certificate=None)
    with pytest.raises(ForgedError):
        body_encryption.open_note(READER, body_encryption.seal_note(uncertified, content(), entropy), ROOT, NOW)


def test_a_member_with_a_subscriber_grant_cannot_publish(entropy: Entropy) -> None:
    with pytest.raises(LocalError):
        body_encryption.seal_note(READER, content(), entropy)
