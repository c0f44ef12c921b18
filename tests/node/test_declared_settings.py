"""Every mode refuses, at the member's side, publications and interests that the topic's record does not declare."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from support.broker_keyrings import OPERATOR, signed_overlay
from veilcast.authority.epoch import HOUR_US
from veilcast.authority.keyring import Keyring
from veilcast.authority.topic_record import Profile, TopicRecord
from veilcast.brokers.client import BrokerClient as BrokersClient
from veilcast.brokers.config import BrokerClientConfig as BrokersConfig
from veilcast.brokers.multipath_client import MultipathClient
from veilcast.errors import LocalError
from veilcast.foil.config import FoilConfig
from veilcast.foil.member import FoilMember
from veilcast.machine import Address, Publication, Value
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.node import MeshNode
from veilcast.node.modes import MODES, DurableMember
from veilcast.relay.client import RelayClient
from veilcast.relay.config import RelayClientConfig as RelayConfig
from veilcast.sim.engine import START_US
from veilcast.sim.keyrings import make_keyring
from veilcast.sim.relay.population import server_keys
from veilcast.topics import All, Box, Conjunction, Equal, Integers, Label, Range, Reals, Schema, Strings
from veilcast.tree.config import TreeConfig
from veilcast.tree.node import TreeNode

TOPIC, PLAIN = "stocks/acme", "stocks/news"
SCHEMA = Schema((Reals("price", 0, 1024, 10), Integers("volume", 0, 15, 4), Strings("kind")))
RIGHT: dict[str, Value] = {"price": 512.5, "volume": 3, "kind": "bid"}


def keyring(profile: Profile) -> Keyring:
    """May publish on both topics; the second one declares no attributes."""
    topics = (TopicRecord(TOPIC, SCHEMA, profile=profile), TopicRecord(PLAIN, Schema(), profile=profile))
    return make_keyring(topics, HOUR_US, ((TOPIC, "publisher"), (PLAIN, "publisher")), 1, "member")


def mesh(profile: Profile, rng: Random) -> DurableMember:
    return MeshNode(MeshConfig(profile=profile), keyring(profile), rng, rng.randbytes, (), START_US)


def relay(profile: Profile, rng: Random) -> DurableMember:
    config, public = RelayConfig(profile=profile), server_keys().public()
    return RelayClient(config, keyring(profile), public, (Address("p:1"),), rng, rng.randbytes, START_US)


def tree(profile: Profile, rng: Random) -> DurableMember:
    directories, address = (Address("d:1"),), Address("n:1")
    return TreeNode(TreeConfig(profile=profile), keyring(profile), directories, address, rng, rng.randbytes, START_US)


def foil(profile: Profile, rng: Random) -> DurableMember:
    return FoilMember(FoilConfig(profile=profile), keyring(profile), Address("b:1"), rng, rng.randbytes, START_US)


def brokers(profile: Profile, rng: Random) -> DurableMember:
    config, address = BrokersConfig(profile=profile), Address("n:1")
    return BrokersClient(
        config, keyring(profile), signed_overlay(), OPERATOR.public, "B1", address, rng, rng.randbytes, START_US
    )


def paths(profile: Profile, rng: Random) -> DurableMember:
    clients = [brokers(profile, Random(number)) for number in range(2)]
    assert all(isinstance(client, BrokersClient) for client in clients)
    return MultipathClient(clients, {}, 100, START_US)  # type: ignore[arg-type]


MEMBERS: dict[str, Callable[[Profile, Random], DurableMember]] = {
    "mesh": mesh,
    "relay": relay,
    "tree": tree,
    "foil": foil,
    "brokers": brokers,
    "brokers by two paths": paths,
}
every_member = pytest.mark.parametrize("mode", MEMBERS)
both_profiles = pytest.mark.parametrize("profile", ["hardened", "paper"])


def publication(topic: str = TOPIC, /, **values: Value) -> Publication:
    return Publication((Label(topic).pair, *values.items()), b"body")


def with_changes(**changes: Value) -> Publication:
    return publication(**{**RIGHT, **changes})


def test_no_mode_is_left_out() -> None:
    assert {name.split()[0] for name in MEMBERS} == set(MODES)


@both_profiles
@every_member
def test_a_publication_with_the_declared_attributes_is_taken(mode: str, profile: Profile) -> None:
    member = MEMBERS[mode](profile, Random(1))
    assert member.publish(publication(**RIGHT), START_US)
    assert member.publish(publication(PLAIN), START_US)
    both = Publication((Label(TOPIC).pair, Label(PLAIN).pair, *RIGHT.items()))
    assert member.publish(both, START_US), "an attribute is declared if one of the publication's topics declares it"


@both_profiles
@every_member
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            with_changes(prise=512),
            "the topic 'stocks/acme' declares no attribute 'prise'; did you mean 'price'?"
            " It declares price, volume, kind",
        ),
        (with_changes(Price=512), "no attribute 'Price'; did you mean 'price'?"),
        (with_changes(weight=1), "no attribute 'weight'; it declares price, volume, kind"),
        (publication(PLAIN, price=1), "the topic 'stocks/news' declares no attribute 'price', nor any other"),
        (
            Publication((Label(TOPIC).pair, Label(PLAIN).pair, *RIGHT.items(), ("prise", 1))),
            "the topics 'stocks/acme' and 'stocks/news' declare no attribute 'prise'; did you mean 'price'?",
        ),
        (with_changes(price=1024.5), "'price' must be a finite number from 0.0 to 1024.0"),
        (with_changes(price=float("nan")), "'price' must be a finite number"),
        (with_changes(price="high"), "'price' must be a finite number"),
        (with_changes(volume=16), "'volume' must be an integer from 0 to 15"),
        (with_changes(volume=1.5), "'volume' must be an integer"),
        (with_changes(kind=7), "'kind' must be a string"),
        (with_changes(kind=""), "1 to 256 bytes"),
        (Publication((Label(TOPIC).pair, ("topic", 5), *RIGHT.items())), "'topic' must be a string"),
    ],
)
def test_a_publication_with_undeclared_content_is_refused(
    mode: str, profile: Profile, wrong: Publication, words: str
) -> None:
    member = MEMBERS[mode](profile, Random(1))
    with pytest.raises(LocalError) as refused:
        member.publish(wrong, START_US)
    assert words in str(refused.value)
    assert member.sizes()["pending"] == 0, "and nothing of it stays"  # type: ignore[attr-defined]


@both_profiles
@every_member
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Range("prise", 1, 2), "declares no attribute 'prise'; did you mean 'price'?"),
        (Box({"price": (1, 2), "weight": (1, 2)}), "declares no attribute 'weight'; it declares price, volume, kind"),
        (Equal("price", "high"), "'price' must be constrained by a range"),
        (Range("kind", 1, 2), "'kind' must be constrained by an equality"),
        (Range("price", 2000, 3000), "the range of 'price' lies outside"),
    ],
)
def test_a_subscription_that_nothing_can_match_is_refused(
    mode: str, profile: Profile, wanted: Conjunction, words: str
) -> None:
    member = MEMBERS[mode](profile, Random(1))
    with pytest.raises(LocalError) as refused:
        member.subscribe(All(Label(TOPIC), wanted), START_US)
    assert words in str(refused.value)
    assert member.subscribe(All(Label(TOPIC), Range("price", 1, 2)), START_US) == 1, "the refused one has no number"


@both_profiles
def test_a_foiled_event_needs_a_value_of_every_declared_attribute(profile: Profile) -> None:
    """An event without one goes out under a topic that says so, in all its candidates alike."""
    member = foil(profile, Random(1))
    for missing in RIGHT:
        rest = {name: value for name, value in RIGHT.items() if name != missing}
        with pytest.raises(LocalError, match=f"the publication lacks '{missing}'.*the broker would see"):
            member.publish(publication(**rest), START_US)
    with pytest.raises(LocalError, match="lacks 'price', 'volume' and 'kind'"):
        member.publish(publication(), START_US)
    assert member.sizes()["pending"] == 0  # type: ignore[attr-defined]
    assert member.publish(publication(PLAIN), START_US), "a topic without attributes has nothing to lack"


@both_profiles
@pytest.mark.parametrize("mode", [mode for mode in MEMBERS if mode != "foil"])
def test_the_other_modes_take_a_publication_that_lacks_an_attribute(mode: str, profile: Profile) -> None:
    """No range on that attribute matches it, as the definition of a match says."""
    assert MEMBERS[mode](profile, Random(1)).publish(publication(price=1.0), START_US)
