"""The knowledge of an adversary that has every bulletin about the members that are revoked.

The adversary of these tests is a coalition of all other members and of everybody that watches: it knows all link keys
with their addresses, every publisher certificate of past, present and later epochs, and every bulletin with its time.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from support.authority_members import HOUR_US, NOW, OTHER, TOPIC, bulletin_of, make_authority_members
from veilcast.authority import issuer
from veilcast.authority.bulletin import ENTRY, TAG, Bulletin, BulletinWriter, VoidKey
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.struct_codec import encode_struct
from veilcast.authority.topic_keys import TopicRole
from veilcast.crypto.certificate import Certificate
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.sign import SigningKey

EPOCHS = 48
MIDDLE = NOW + EPOCHS // 2


class Network:
    """Publishers and subscribers of one topic, as many as a seed says, and a forwarder, which holds no grant."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.entropy = rng.randbytes
        self.state = issuer.declare_label(issuer.create(HOUR_US, self.entropy), TOPIC, "hardened", self.entropy)
        self.rings: dict[str, Keyring] = {}
        for name in (f"publisher {index}" for index in range(rng.randint(2, 5))):
            self.join(name, [(TOPIC, "publisher")])
        for name in (f"subscriber {index}" for index in range(rng.randint(2, 9))):
            self.join(name, [(TOPIC, "subscriber")])
        self.join("forwarder", [])

    def join(self, name: str, wanted: list[tuple[str, TopicRole]]) -> None:
        self.state, ring = issuer.grant_ready(self.state, name, wanted, NOW, EPOCHS, self.entropy)
        self.rings[name] = ring

    def link(self, name: str) -> bytes:
        return fingerprint(self.rings[name].membership.certificate.leaf.subject)

    def publisher_keys(self, name: str) -> dict[int, bytes]:
        """The fingerprints of the keys that a member publishes with, by epoch, as carriers see them."""
        held = {epoch: self.rings[name].keys_at(epoch).topics.get(TOPIC) for epoch in range(NOW, NOW + EPOCHS)}
        chains = {epoch: keys.certificate for epoch, keys in held.items() if keys is not None}
        return {epoch: fingerprint(chain.leaf.subject) for epoch, chain in chains.items() if chain is not None}


def joined(network: Network, bulletins: list[Bulletin]) -> set[tuple[str, bytes]]:
    """The adversary: pairs of a member, known by its link key, and a publisher key that one bulletin names together."""
    publishers = {key for name in network.rings for key in network.publisher_keys(name).values()}
    pairs = set()
    for notice in bulletins:
        names = {void.name for void in notice.void}
        pairs |= {(name, key) for name in network.rings if network.link(name) in names for key in names & publishers}
    return pairs


def revoke(network: Network, name: str, epoch: int) -> tuple[Authority, Bulletin]:
    state = issuer.revoke(network.state, name, None, epoch, network.entropy)
    return state, bulletin_of(state)


def test_no_bulletin_names_a_publisher_key_of_any_epoch() -> None:
    network = Network(1)
    _, notice = revoke(network, "publisher 0", MIDDLE)
    assert {void.name for void in notice.void} == {network.link("publisher 0")}
    assert joined(network, [notice]) == set()
    one_topic = bulletin_of(issuer.revoke(network.state, "publisher 0", TOPIC, MIDDLE, network.entropy))
    assert one_topic.void == ()


def test_the_adversary_of_this_file_finds_keys_that_a_bulletin_names_together() -> None:
    """A planted bulletin of the kind that listed all keys of a member."""
    network = Network(1)
    keys = network.publisher_keys("publisher 0")
    names = [network.link("publisher 0"), *keys.values()]
    planted = BulletinWriter(1, MIDDLE, network.entropy).sign(
        network.state.key, [VoidKey(name, NOW + EPOCHS) for name in names], None
    )
    assert joined(network, [planted]) == {("publisher 0", key) for key in keys.values()}


@pytest.mark.parametrize("seed", range(12))
def test_bulletins_that_revoke_publishers_subscribers_and_forwarders_differ_in_the_name_alone(seed: int) -> None:
    """By count of names, count of entries, size and order, now and in the bulletins that follow."""
    seen = []
    for name in ("publisher 1", "subscriber 1", "forwarder"):
        network = Network(seed)
        before = bulletin_of(issuer.rotate(network.state, TOPIC, MIDDLE, network.entropy))
        state, notice = revoke(network, name, MIDDLE)
        shapes = [shape(before), shape(notice)]
        for epoch in (MIDDLE + 1, MIDDLE + 5, NOW + EPOCHS - 2, NOW + EPOCHS):
            state = issuer.rotate(state, TOPIC, epoch, network.entropy)
            shapes.append(shape(bulletin_of(state)))
        seen.append(shapes)
    assert seen[0] == seen[1] == seen[2]


def shape(notice: Bulletin) -> tuple[int, ...]:
    tags = [notice.entries[start : start + TAG] for start in range(0, len(notice.entries), ENTRY)]
    assert tags == sorted(tags)
    lasting = [void.last for void in notice.void]
    return (notice.effective, len(notice.void), len(tags), len(encode_struct(notice)), *lasting)


def test_the_number_of_entries_without_padding_does_not_depend_on_the_role_that_is_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Powers of two hide most differences, so they would hide a fault of the decoys, too."""
    counts = []
    for name in (None, "publisher 1", "subscriber 1", "forwarder"):
        network = Network(3)
        written: list[int] = []
        with monkeypatch.context() as patch:
            count_entries(patch, written)
            state = network.state if name is None else revoke(network, name, MIDDLE)[0]
            for epoch in ([MIDDLE] if name is None else []) + [MIDDLE, MIDDLE + 7]:
                state = issuer.rotate(state, TOPIC, epoch, network.entropy)
        counts.append(written)
    assert counts[0] == counts[1] == counts[2] == counts[3]
    assert counts[0][0] > counts[0][2] > 0


@pytest.mark.parametrize("epoch", [MIDDLE, MIDDLE + 9])
@pytest.mark.parametrize("seed", range(6))
def test_after_other_revocations_and_beside_empty_topics_the_number_of_entries_does_not_depend_on_the_role(
    seed: int, epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that were revoked before leave decoys, and nobody holds a grant for some topics, or it has ended."""
    counts = []
    for name in ("publisher 1", "subscriber 1", "forwarder"):
        network = Network(seed)
        for topic in ("empty/a", "empty/b", "empty/c"):
            network.state = issuer.declare_label(network.state, topic, "hardened", network.entropy)
        network.state = issuer.declare_label(network.state, "paper", "paper", network.entropy)
        network.join("reader of paper", [("paper", "subscriber")])
        network.state, _ = issuer.grant_ready(
            network.state, "late", [("empty/c", "publisher")], NOW, EPOCHS // 2, network.entropy
        )
        for before in ("publisher 0", "subscriber 0"):
            network.state, _ = revoke(network, before, MIDDLE)
        written: list[int] = []
        with monkeypatch.context() as patch:
            count_entries(patch, written)
            revoke(network, name, epoch)
        counts.append(written)
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][0] > 0


def count_entries(patch: pytest.MonkeyPatch, written: list[int]) -> None:
    """Append the number of entries of each bulletin before it is filled up to a power of two."""
    sign = BulletinWriter.sign

    def counting(
        writer: BulletinWriter, key: SigningKey, void: list[VoidKey], delegation: Certificate | None
    ) -> Bulletin:
        written.append(len(writer._entries))
        return sign(writer, key, void, delegation)

    patch.setattr(BulletinWriter, "sign", counting)


@pytest.mark.parametrize("seed", range(4))
def test_with_new_keys_for_every_topic_no_member_learns_which_topic_the_revoked_member_held(seed: int) -> None:
    """The adversary is every member of either topic, with its own entries. Without the option, entries tell."""
    seen = {}
    for every_topic in (True, False):
        for held in (TOPIC, OTHER):
            network = Network(seed)
            network.state = issuer.declare_label(network.state, OTHER, "hardened", network.entropy)
            for name in ("anna", "bert"):
                network.join(name, [(TOPIC, "subscriber"), (OTHER, "subscriber")])
            network.join("revoked", [(held, "subscriber")])
            state = issuer.revoke(network.state, "revoked", None, MIDDLE, network.entropy, every_topic=every_topic)
            notice = bulletin_of(state)
            found = {
                (name, grant.first, record.topic): notice.read(grant.wrap, record.topic, 0) is not None
                for name, ring in network.rings.items()
                for grant, record in ring.records()
                if name != "revoked"
            }
            seen[every_topic, held] = shape(notice), found
    assert seen[True, TOPIC] == seen[True, OTHER]
    assert seen[False, TOPIC] != seen[False, OTHER]


def test_the_number_of_entries_is_a_power_of_two_and_decoys_look_like_entries() -> None:
    people = make_authority_members()
    notice = bulletin_of(issuer.rotate(people.authority, OTHER, NOW, people.entropy))
    assert len(notice.entries) // ENTRY == 1
    notice = bulletin_of(issuer.rotate(people.authority, TOPIC, NOW, people.entropy))
    count = len(notice.entries) // ENTRY
    assert count & (count - 1) == 0
    # All bytes of entries and of decoys are uniform: no byte value is rare or frequent.
    values = [notice.entries.count(bytes((value,))) for value in range(256)]
    mean = len(notice.entries) / 256
    assert sum((value - mean) ** 2 / mean for value in values) < 256 + 6 * 512**0.5


def test_the_authority_forgets_publisher_keys_that_are_over() -> None:
    network = Network(2)
    state, _ = issuer.grant_ready(network.state, "publisher 0", [], MIDDLE, 1, network.entropy)
    left = {issued.name for issued in state.members["publisher 0"].issued}
    keys = network.publisher_keys("publisher 0")
    assert {epoch for epoch, key in keys.items() if key in left} == set(range(MIDDLE, NOW + EPOCHS))


def test_a_state_from_before_there_were_decoys_is_read() -> None:
    network = Network(2)
    state, _ = revoke(network, "publisher 0", MIDDLE)
    old = msgspec.to_builtins(state.members["publisher 0"], enc_hook=lambda secret: secret.reveal())
    del old["ended"]
    read = msgspec.convert(old, type(state.members["publisher 0"]))
    assert read.ended == ()
    assert read.revoked
