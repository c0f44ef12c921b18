"""Errors for the owner of a mesh node that asks for what the keyring does not allow: the cause, in the owner's
words."""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Iterable

import pytest

from support.hardened_mesh_network import SingleHardenedNode
from support.mesh_network import SingleNode, publication
from veilcast.errors import LocalError, UnknownTopicError
from veilcast.machine import Publication
from veilcast.sim.mesh.population import TOPIC
from veilcast.topics import Label


@pytest.mark.parametrize("house", [SingleHardenedNode, SingleNode])
def test_a_subscriber_that_publishes_is_told_that_only_a_publisher_can_publish(house: type[SingleNode]) -> None:
    bench = house("subscriber", "a b c")
    with pytest.raises(LocalError, match=f"^only a publisher of '{TOPIC}' can publish on it$"):
        bench.node.publish(publication(b"x"), bench.now)


@pytest.mark.parametrize("house", [SingleHardenedNode, SingleNode])
def test_a_mistyped_topic_is_answered_with_the_nearest_one_and_no_epoch_number(house: type[SingleNode]) -> None:
    bench = house("publisher", "a b c")
    with pytest.raises(UnknownTopicError) as refusal:
        bench.node.publish(Publication((Label(TOPIC + "h").pair,)), bench.now)
    told = f"this keyring has no grant for '{TOPIC}h' now; did you mean '{TOPIC}'? (it has '{TOPIC}')"
    assert str(refusal.value) == told


def test_the_nearest_topic_is_looked_for_only_when_the_error_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each heartbeat a node asks for topics whose grants have ended, and ignores the error."""
    looks: list[str] = []

    def look(name: str, names: Iterable[str], n: int) -> list[str]:
        looks.append(name)
        return list(names)[:n]

    monkeypatch.setattr(difflib, "get_close_matches", look)
    bench = SingleHardenedNode("publisher", "a b c")
    with pytest.raises(UnknownTopicError) as refusal:
        bench.node.publish(Publication((Label("misspelt").pair,)), bench.now)
    assert looks == []
    assert pickle.loads(pickle.dumps(refusal.value)).args == refusal.value.args
    assert "no grant for 'misspelt'" in str(refusal.value)
    assert looks == ["misspelt"]


def test_a_member_without_any_grant_is_told_that_it_has_none() -> None:
    bench = SingleHardenedNode("forwarder", "a b c")
    with pytest.raises(UnknownTopicError, match=f"no grant for '{TOPIC}' now, and none for any other topic$"):
        bench.node.publish(publication(b"x"), bench.now)
