"""What a node in service tells its owner of itself, in words: one line for each cause, and counts that fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from veilcast.cli.view import MemberView
from veilcast.machine import Delay
from veilcast.net.agent import Peer


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


def view_of(mode: str, machine: Machine, *peers: Peer) -> MemberView:
    config: Any = SimpleNamespace(mode=mode, profile="paper")
    leaf = SimpleNamespace(last=10)
    membership = SimpleNamespace(certificate=SimpleNamespace(leaf=leaf))
    keyring: Any = SimpleNamespace(membership=membership, epoch_us=1)
    ways: Any = SimpleNamespace(peers=lambda: peers)
    agent: Any = SimpleNamespace(interests=dict)
    clock: Any = SimpleNamespace(now=lambda: 7)
    member: Any = machine
    return MemberView(config, keyring, member, ways, agent, clock)


def down(address: str, reason: str = "nobody answers there") -> Peer:
    return Peer(address=address, up=False, since_s=1.0, reason=reason)


def test_a_dead_broker_is_told_once_for_all_its_sessions_and_without_their_epochs() -> None:
    sessions = [down(f"{29916221 + number}@127.5.39.127:4000") for number in range(4)]
    told = view_of("foil", Machine(), *sessions).about().hindrances
    assert told == ("no way to 127.5.39.127:4000: nobody answers there",)


def test_two_causes_are_two_lines() -> None:
    told = view_of("foil", Machine(), down("1@a:1"), down("2@a:1", "it does not let us in")).about().hindrances
    assert told == ("no way to a:1: nobody answers there", "no way to a:1: it does not let us in")


@pytest.mark.parametrize(("known", "members"), [(1, 3), (2, 3), (3, 3), (5, 5)])
def test_a_node_of_the_mesh_counts_itself_beside_every_neighbour_whose_link_is_up(known: int, members: int) -> None:
    """A link is up before the first heartbeat, and only that makes the machine count the neighbour."""
    up = [Peer(address=f"127.0.0.{number}:4000", up=True, since_s=1.0) for number in (1, 2)]
    about = view_of("mesh", Machine(known), *up, down("127.0.0.3:4000", "")).about()
    assert (about.members, about.neighbours) == (members, 2)


def test_why_publications_wait_is_told_as_the_machine_reckons_it_now() -> None:
    assert view_of("mesh", Machine()).about().delay == Delay("it waits", 8)
