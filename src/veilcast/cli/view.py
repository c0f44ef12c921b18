"""What can be told of a node in service: how hidden its member is, its peers, its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.cli.transports import Transport
from veilcast.errors import ExpiredError
from veilcast.net.agent import Peer
from veilcast.net.clock import SystemClock
from veilcast.net.node_service import About
from veilcast.node.config import NodeConfig
from veilcast.node.member_records import MemberRecords
from veilcast.node.mode import NodeMember
from veilcast.node.modes import mode_of
from veilcast.topics import TOPIC, Equal


class MemberView:
    """Fulfils `net.owner.View`."""

    def __init__(
        self,
        config: NodeConfig,
        keyring: Keyring,
        member: NodeMember,
        ways: Transport,
        agent: MemberRecords,
        clock: SystemClock,
    ) -> None:
        self._config, self._keyring, self._clock = config, keyring, clock
        self._member, self._ways, self._agent = member, ways, agent

    def about(self) -> About:
        # A link of the mesh is up before the machine hears the heartbeat by which it counts a neighbour.
        neighbours, now = sum(peer.up for peer in self._ways.peers()), self._clock.now()
        return About(
            mode=self._config.mode,
            profile=self._config.profile,
            members=max(self._member.group_size(), 1 + neighbours if self._config.mode == "mesh" else 1),
            cover_share=self._cover_share(),
            neighbours=neighbours,
            member_until_us=(self._keyring.membership.certificate.leaf.last + 1) * self._keyring.epoch_us,
            hindrances=self._hindrances(now),
            delay=self._member.delay(now),
        )

    def peers(self) -> list[Peer]:
        return list(self._ways.peers())

    def numbers(self) -> Mapping[str, float]:
        kept = self._agent.status()
        return {
            **self._ways.numbers(),
            "swaps_total": self._member.swaps_played(),
            "delivery_latency_seconds_sum": kept.settled_us / 1e6,
            "delivery_latency_seconds_count": kept.settled,
        }

    def _hindrances(self, now: int) -> tuple[str, ...]:
        """One line for each cause: several streams to one peer fail for one reason."""
        mode = mode_of(self._config.mode)
        cut_off = [
            f"no way to {peer.address.rpartition('@')[2]}: {peer.reason}"
            for peer in self._ways.peers()
            if peer.reason and mode.needs_peers
        ]
        return tuple(dict.fromkeys([*cut_off, *mode.hindrances(self._member, now)]))

    def _cover_share(self) -> float:
        """The smallest among the topics that are read; only the hardened mesh has such covers."""
        if (self._config.mode, self._config.profile) != ("mesh", "hardened"):
            return 0.0
        try:
            topics = self._keyring.keys_at(epoch_of(self._clock.now(), self._keyring.epoch_us)).topics
        except ExpiredError:
            return 0.0
        constraints = [
            constraint for interest in self._agent.interests().values() for constraint in interest.constraints
        ]
        read = [each.text for each in constraints if isinstance(each, Equal) and each.attribute == TOPIC]
        shares = [topics[name].record.cover_share for name in read if name in topics]
        return min(shares, default=0.0)
