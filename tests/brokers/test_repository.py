"""Keys out of band: which members may store and pull them, and an overlay that uses the repository."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import combinations
from random import Random

import msgspec
import pytest

from support import broker_keyrings
from support.broker_keyrings import EPOCH, EPOCH_US, OPERATOR, START, TOPIC, keys_of, root, signing
from support.broker_network import BrokerNetwork
from veilcast.authority.topic_record import Profile
from veilcast.brokers.config import BrokerClientConfig, BrokerConfig
from veilcast.brokers.keys.paper_split import SplitKeyCollector, SplitShare, TrailVerifier
from veilcast.brokers.keys.redistribution import DeliveredShare, RedistributedKeyCollector
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId
from veilcast.brokers.operations.key_repository import Repository
from veilcast.brokers.operations.share_store import ShareStore, make_pull, make_pushes
from veilcast.brokers.overlay import BrokerOverlay, NodeEntry, Replica, node_id, overlay_replica_keys, sign_overlay
from veilcast.brokers.routing.claims import make_advertisement, make_bring, make_subscription
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ConfigError, ExcessError, ForgedError, MalformedError, StaleError
from veilcast.machine import Address, Frame, Publication
from veilcast.sim.rng import SeededEntropy, derive_bytes
from veilcast.topics import Label
from veilcast.wire import decode
from veilcast.wire.brokers import (
    BringClaim,
    Claim,
    FirstShare,
    ForwardContent,
    LastShare,
    NextShare,
    PullShare,
    PushShare,
    SessionItem,
)

both = pytest.mark.parametrize("profile", ["hardened", "paper"])
ENTROPY = SeededEntropy(derive_bytes(7, "repository"))
HOLDER = SigningKey(Secret(b"h" * 32))
P, R = Address("publisher"), Address("reader")


def with_repository(overlay: BrokerOverlay, size: int = 3, version: int = 0, first: int = 1) -> BrokerOverlay:
    replicas = tuple(
        Replica(signing("repository", index).public, f"shelf.{index}", f"shelf.{index}")
        for index in range(first, first + size)
    )
    return msgspec.structs.replace(overlay, repository=NodeEntry("repository", version, replicas))


OVERLAY = with_repository(broker_keyrings.overlay())
NODE = OVERLAY.repository
assert NODE is not None
SCHEME = NODE.scheme


class ShareStores:
    """Three share stores, and a publisher's advertisement that all of them know."""

    def __init__(self, profile: Profile, **changes: int) -> None:
        self.profile: Profile = profile
        self.config = msgspec.structs.replace(BrokerConfig(profile=profile), **changes)
        self.replica_keys = overlay_replica_keys([OVERLAY])
        self.keys = [signing("repository", index).public for index in (1, 2, 3)]
        self.stores = [ShareStore(self.config, key, root(profile), EPOCH_US, self.replica_keys) for key in self.keys]
        self.topic = keys_of(0, profile)
        self.claim = self.advertisement()
        for index, store in enumerate(self.stores):
            store.add_advertisement(self.brought(index), P, START)

    def advertisement(self, holder: SigningKey = HOLDER) -> Claim:
        keys = keys_of(0, self.profile)
        return make_advertisement(keys, node_id("B1"), EPOCH, START + 300_000_000, b"interest", holder.public)

    def brought(self, index: int) -> BringClaim:
        return make_bring(self.claim, HOLDER, self.keys[index])

    def dealt(self, key: bytes = b"k" * 16, attempt: int = 0, secret: Scalar | None = None) -> list[PushShare]:
        shared = secret or Scalar.draw(ENTROPY)
        assert self.topic.signing is not None
        name = (self.claim.id, key)
        return make_pushes(
            name, shared, attempt, SCHEME, self.topic.signing, ENTROPY, hardened=self.profile == "hardened"
        )

    def push(self, dealt: Sequence[PushShare]) -> None:
        for index, (store, push) in enumerate(zip(self.stores, dealt, strict=True), 1):
            store.store_share(push, ReplicaId(SCHEME, index))

    def pulled(self, index: int, key: bytes = b"k" * 16) -> list[PushShare]:
        store = self.stores[index]
        store.answer_pull(self.asked(index, key), R)
        answers, store.outbox = store.outbox, []
        assert all(to == R for to, _ in answers)
        return [push for _, push in answers]

    def asked(self, index: int, key: bytes = b"k" * 16) -> PullShare:
        return make_pull((self.claim.id, key), keys_of(1, self.profile, "subscriber"), self.keys[index])

    def reconstructed(self, brought: dict[int, PushShare], attempt: int = 0) -> Secret | None:
        """The key that a subscriber gets from these shares."""
        assert self.topic.certificate is not None
        publisher = self.topic.certificate.leaf.subject
        origin = KeyAttempt(b"k" * 16, attempt)
        if self.profile == "hardened":
            collecting = RedistributedKeyCollector(origin, publisher)
            for index, push in brought.items():
                collecting.add(DeliveredShare.decode(push.share), ReplicaId(SCHEME, index))
            return collecting.secret
        gathering = SplitKeyCollector(origin, TrailVerifier(publisher, self.replica_keys))
        for index, push in brought.items():
            gathering.add(SplitShare.decode(push.share), ReplicaId(SCHEME, index))
        return gathering.key


@both
def test_a_majority_of_shares_reconstructs_the_key_and_no_minority_does(profile: Profile) -> None:
    stores = ShareStores(profile)
    secret = Scalar.draw(ENTROPY)
    stores.push(stores.dealt(secret=secret))
    brought = {index + 1: stores.pulled(index)[0] for index in range(3)}
    for pair in combinations(brought, 2):
        found = stores.reconstructed({index: brought[index] for index in pair})
        assert found is not None
        assert found.reveal() == secret.reveal()
    assert all(stores.reconstructed({index: brought[index]}) is None for index in brought)


@both
def test_a_member_without_the_grant_gets_nothing(profile: Profile) -> None:
    stores = ShareStores(profile)
    stores.push(stores.dealt())
    stranger = keys_of(2, profile, "subscriber", broker_keyrings.OTHER)
    with pytest.raises(ForgedError):
        stores.stores[0].answer_pull(make_pull((stores.claim.id, b"k" * 16), stranger, stores.keys[0]), R)
    assert not stores.stores[0].outbox


@both
def test_a_replica_cannot_ask_the_others_in_a_subscribers_name(profile: Profile) -> None:
    stores = ShareStores(profile)
    stores.push(stores.dealt())
    with pytest.raises(ForgedError):
        stores.stores[1].answer_pull(stores.asked(0), Address("a replica that lies"))
    with pytest.raises(ForgedError):
        stores.stores[0].answer_pull(msgspec.structs.replace(stores.asked(0), key=b"j" * 16), R)


@both
def test_only_the_publisher_stores_shares(profile: Profile) -> None:
    stores = ShareStores(profile)
    good = stores.dealt()
    other = keys_of(3, profile).signing
    assert other is not None
    name = (stores.claim.id, b"k" * 16)
    hardened = profile == "hardened"
    forged = make_pushes(name, Scalar.draw(ENTROPY), 0, SCHEME, other, ENTROPY, hardened=hardened)
    store = stores.stores[0]
    wrong = [
        (forged[0], ForgedError if hardened else None),
        (good[1], ForgedError),
        (msgspec.structs.replace(good[0], key=b"j" * 16), ForgedError),
        (msgspec.structs.replace(good[0], share=b"\x93"), MalformedError),
        (msgspec.structs.replace(good[0], advertisement=b"?" * 16), StaleError),
    ]
    for push, error in wrong:
        if error is not None:
            with pytest.raises(error):
                store.store_share(push, ReplicaId(SCHEME, 1))
    assert len(store) == 0


@both
def test_an_advertisement_must_be_valid_and_come_from_its_own_client(profile: Profile) -> None:
    stores = ShareStores(profile)
    store = ShareStore(stores.config, stores.keys[0], root(profile), EPOCH_US, stores.replica_keys)
    with pytest.raises(ForgedError):
        store.add_advertisement(stores.brought(1), P, START)
    with pytest.raises(StaleError):
        store.add_advertisement(stores.brought(0), P, START + 400_000_000)
    with pytest.raises(ForgedError):
        ShareStore(stores.config, stores.keys[0], b"\x01" * 32, EPOCH_US, stores.replica_keys).add_advertisement(
            stores.brought(0), P, START
        )
    reader = keys_of(1, profile, "subscriber")
    claim = make_subscription(reader, node_id("B1"), EPOCH, START + 1_000_000, b"interest", HOLDER.public)
    with pytest.raises(MalformedError):
        store.add_advertisement(make_bring(claim, HOLDER, stores.keys[0]), P, START)
    assert store.sizes() == {"claims": 0, "keys": 0, "waiting": 0}


@both
def test_a_later_attempt_replaces_the_last_and_an_earlier_one_does_not(profile: Profile) -> None:
    stores = ShareStores(profile)
    early, late = stores.dealt(), stores.dealt(attempt=1)
    stores.push(late)
    for push in (early[0], late[0]):
        with pytest.raises(StaleError):
            stores.stores[0].store_share(push, ReplicaId(SCHEME, 1))
    assert stores.pulled(0) == [late[0]]


@both
def test_an_early_request_is_answered_when_the_share_arrives(profile: Profile) -> None:
    stores = ShareStores(profile)
    store = stores.stores[0]
    assert stores.pulled(0) == []
    assert stores.pulled(0) == [], "asked twice, it waits once"
    dealt = stores.dealt()
    stores.push(dealt)
    assert store.outbox == [(R, dealt[0])]
    assert store.sizes()["waiting"] == 0
    store.outbox.clear()
    stores.pulled(0, b"j" * 16)
    store.on_client_lost(R)
    assert store.sizes()["waiting"] == 0


@both
def test_shares_are_erased_when_the_advertisement_expires(profile: Profile) -> None:
    stores = ShareStores(profile)
    stores.push(stores.dealt())
    store = stores.stores[0]
    stores.pulled(0, b"j" * 16)
    assert store.next_us() == START + 300_000_000
    store.handle(START + 300_000_000)
    assert store.sizes() == {"claims": 0, "keys": 0, "waiting": 0}


def test_the_store_is_bounded_and_the_largest_advertisement_is_evicted_first() -> None:
    stores = ShareStores("hardened", keys_max=4, waiting_max=3, client_claims=2, claims_each=4, claims_max=4)
    store = stores.stores[0]
    dealt = {number: stores.dealt(bytes([number]) * 16)[0] for number in range(6)}
    for push in dealt.values():
        store.store_share(push, ReplicaId(SCHEME, 1))
    assert len(store) == 4
    assert stores.pulled(0, bytes([5]) * 16) == [dealt[5]]
    for key in (b"a", b"b"):
        stores.pulled(0, key * 16)
    with pytest.raises(ExcessError):
        stores.pulled(0, b"c" * 16)
    holders = [SigningKey(Secret(bytes([number]) * 32)) for number in range(6)]
    for number, holder in enumerate(holders):
        brought = make_bring(stores.advertisement(holder), holder, stores.keys[0])
        with nullcontext() if number < 3 else pytest.raises(ExcessError):
            store.add_advertisement(brought, Address(f"client {number}"), START)
    assert store.sizes()["claims"] == 4


# --- in an overlay

CLIENT = BrokerClientConfig(delivery="repository", refresh_messages=4)


class TownWithRepository(BrokerNetwork):
    def __init__(self, profile: Profile, size: int = 3) -> None:
        super().__init__(profile, client=CLIENT)
        self.overlay = sign_overlay(with_repository(self.overlay.verify(OPERATOR.public), size), OPERATOR)
        for address in self.places:
            self.restart(address)
        for index in range(1, size + 1):
            self._add(f"shelf.{index}", lambda index=index: self._shelf(index))  # type: ignore[misc]

    def _shelf(self, index: int) -> Repository:
        address = Address(f"shelf.{index}")
        return Repository(
            self.broker_config,
            self.overlay,
            OPERATOR.public,
            address,
            signing("repository", index),
            root(self.profile),
            EPOCH_US,
            Random(index),
            SeededEntropy(derive_bytes(index, "shelf")),
            self.now,
        )

    def start(self) -> None:
        self.client("P", "B1", 0, "publisher")
        reader = self.client("R", "B3", 1)
        self.run(12)
        reader.subscribe(Label(TOPIC), self.now)
        self.touch("R")
        self.run(4)

    def publish(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.places[Address("P")].machine.publish(Publication((("topic", TOPIC),), body), self.now)
            self.touch("P")
            self.run(0.2)


@both
def test_publications_are_read_with_keys_that_no_broker_sees(profile: Profile) -> None:
    network = TownWithRepository(profile)
    seen: set[type] = set()

    def look(frame: Frame, source: Address) -> Frame:
        message = decode(frame.data)
        if isinstance(message, SessionItem):
            seen.add(type(decode(message.cargo)))
        return frame

    for address in network.places:
        if address.startswith("B"):
            network.wires[address] = look
    network.start()
    bodies = [b"%d" % number for number in range(10)]
    network.publish(bodies)
    network.run(5)
    assert sorted(body for _, _, body in network.heard) == bodies
    assert network.places[Address("P")].machine.sizes()["pending"] == 0
    assert ForwardContent in seen
    assert not seen & {FirstShare, NextShare, LastShare, PushShare, PullShare}
    for index in (1, 2, 3):
        store = network.places[Address(f"shelf.{index}")].machine
        assert store.sizes()["keys"] == (4 if profile == "hardened" else 3), "four of ten a key; one is ahead"
        assert not store.refused


@both
@pytest.mark.parametrize("lie", ["silent", "spoilt"])
def test_one_byzantine_replica_stops_nothing_and_is_proven(profile: Profile, lie: str) -> None:
    network = TownWithRepository(profile)
    wrong = network.places[Address("shelf.2")].machine

    def spoil(push: PushShare) -> PushShare:
        return msgspec.structs.replace(push, share=push.share[:-1] + bytes([push.share[-1] ^ 1]))

    if lie == "silent":
        network.wires[Address("shelf.2")] = lambda frame, source: None
    else:
        say = wrong._links.send
        wrong._links.send = lambda to, push: say(to, spoil(push))
    network.start()
    bodies = [b"%d" % number for number in range(6)]
    network.publish(bodies)
    network.run(10)
    assert sorted(body for _, _, body in network.heard) == bodies
    named = network.places[Address("R")].machine.suspects()
    assert named == ([ReplicaId(SCHEME, 2)] if lie == "spoilt" else [])


def test_a_killed_replica_restarts_empty_and_a_replaced_one_is_not_asked() -> None:
    network = TownWithRepository("hardened")
    network.start()
    network.publish([b"one"])
    network.kill("shelf.1")
    network.publish([b"two", b"three", b"four", b"five"])
    network.restart("shelf.1")
    network.run(20)
    network.publish([b"six", b"seven"])
    newer = with_repository(network.overlay.verify(OPERATOR.public), 3, 1, first=2)
    newer = msgspec.structs.replace(newer, version=newer.version + 1)
    network.overlay = sign_overlay(newer, OPERATOR)
    network._add("shelf.4", lambda: network._shelf(4))
    network.broker("B2.1").accept_order(network.overlay.encode(), network.now)
    network.touch("B2.1")
    network.run(5)
    network.publish([b"eight", b"nine", b"ten", b"eleven", b"twelve"])
    network.run(30)
    assert len(network.heard) == len({body for _, _, body in network.heard}) == 12
    assert network.places[Address("shelf.4")].machine.sizes()["keys"] > 0
    assert network.places[Address("shelf.2")].machine.signed == network.overlay


def test_an_overlay_without_a_repository_is_refused_and_so_is_an_even_one() -> None:
    network = BrokerNetwork("hardened", client=CLIENT)
    with pytest.raises(ConfigError, match="has none"):
        network.client("P", "B1", 0, "publisher")
    with pytest.raises(ConfigError, match="the repository has 4 replicas"):
        with_repository(broker_keyrings.overlay(), 4).check("hardened")
    one = with_repository(broker_keyrings.overlay())
    with pytest.raises(MalformedError, match="whether there is one"):
        one.check_successor(broker_keyrings.overlay(version=2))
    with pytest.raises(ConfigError, match="no replica with this key"):
        TownWithRepository("hardened")._shelf(9)
