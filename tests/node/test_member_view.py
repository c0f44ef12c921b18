"""The facts that a running node reports about its member: one line for each cause, and correct counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from veilcast.machine import Delay
from veilcast.mesh.config import MeshConfig
from veilcast.node import mesh
from veilcast.node.member_view import MemberFacts, MemberView


class Machine:
    """A member's machine that knows of `group` members."""

    def __init__(self, group: int = 1) -> None:
        self.group = group

    def group_size(self) -> int:
        return self.group

    def delay(self, now: int) -> Delay | None:
        return Delay("it waits", now + 1)

    def refusals(self) -> dict[str, int]:
        return {}

    def alone_us(self, now: int) -> int:
        return 0


def facts_of(
    mode: str, machine: Machine, neighbours: int = 0, unreachable: dict[str, str] | None = None
) -> MemberFacts:
    config: Any = SimpleNamespace(mode=mode, profile="paper", settings=MeshConfig())
    leaf = SimpleNamespace(first=0, last=10)
    membership = SimpleNamespace(certificate=SimpleNamespace(leaf=leaf))
    keyring: Any = SimpleNamespace(membership=membership, epoch_us=1, records=list)
    records: Any = SimpleNamespace(interests=dict)
    member: Any = machine
    return MemberView(config, keyring, member, records).facts(neighbours, unreachable or {}, 7)


def test_a_dead_broker_is_reported_once_for_all_sessions_and_without_their_epochs() -> None:
    sessions = {f"{29916221 + number}@127.5.39.127:4000": "nobody answers there" for number in range(4)}
    assert facts_of("foil", Machine(), unreachable=sessions).hindrances == (
        "no way to 127.5.39.127:4000: nobody answers there",
    )


def test_two_causes_are_two_lines() -> None:
    causes = {"1@a:1": "nobody answers there", "2@a:1": "it does not let us in"}
    assert facts_of("foil", Machine(), unreachable=causes).hindrances == (
        "no way to a:1: nobody answers there",
        "no way to a:1: it does not let us in",
    )


@pytest.mark.parametrize(("known", "members"), [(1, 3), (2, 3), (3, 3), (5, 5)])
def test_a_mesh_node_counts_itself_and_every_neighbour_with_an_open_link(known: int, members: int) -> None:
    """A link is open before the first heartbeat, and the machine counts a neighbour only from that heartbeat on."""
    facts = facts_of("mesh", Machine(known), neighbours=2)
    assert (facts.members, facts.neighbours) == (members, 2)


def test_the_delay_of_publications_is_the_current_estimate_of_the_machine() -> None:
    assert facts_of("mesh", Machine()).delay == Delay("it waits", 8)


def test_a_hardened_mesh_node_hides_publications_unless_its_file_says_otherwise_and_says_for_how_many() -> None:
    usual = mesh.read_settings("hardened", {})
    assert isinstance(usual, MeshConfig)
    assert (usual.hardening.parcel_periods, usual.hardening.hold_back_epochs) == (60, 5.0)
    own = mesh.read_settings("hardened", {"hardening": {"hold_back_epochs": 11.0}})
    open_stems = mesh.read_settings("hardened", {"hardening": {"parcel_periods": 0}})
    counts = [mesh.publications_hidden(each) for each in (usual, own, open_stems) if isinstance(each, MeshConfig)]
    assert counts == [30, 60, 0]
    assert mesh.publications_hidden(MeshConfig()) == 0
