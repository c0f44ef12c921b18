"""The member of a running node as its owner sees it: how well the member is hidden, and what hinders it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from veilcast.authority.epoch import DAY_US, HOUR_US, epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.errors import ExpiredError
from veilcast.machine import Delay
from veilcast.node.config import NodeConfig
from veilcast.node.member_records import MemberRecords
from veilcast.node.modes import NodeMember, mode_of
from veilcast.topics import TOPIC, Equal


class MemberFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node's status that depends on its mode."""

    mode: str
    profile: str
    members: int
    cover_share: float
    publications_hidden: int | None = None
    neighbours: int
    member_until_us: int
    hindrances: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    delay: Delay | None = None


class MemberView:
    def __init__(self, config: NodeConfig, keyring: Keyring, member: NodeMember, records: MemberRecords) -> None:
        self._config, self._keyring = config, keyring
        self._member, self._records = member, records
        self._mode = mode_of(config.mode)

    def facts(self, neighbours: int, unreachable: Mapping[str, str], now: int) -> MemberFacts:
        """`neighbours` is the number of connected peers; `unreachable` has the reason for each peer that is away."""
        least = 1 + neighbours if self._mode.neighbours_are_members else 1
        return MemberFacts(
            mode=self._config.mode,
            profile=self._config.profile,
            members=max(self._member.group_size(), least),
            cover_share=self._cover_share(now),
            publications_hidden=self._mode.publications_hidden(self._config.settings),
            neighbours=neighbours,
            member_until_us=(self._keyring.membership.certificate.leaf.last + 1) * self._keyring.epoch_us,
            hindrances=self._hindrances(unreachable, now),
            ending=describe_ending(self._keyring, now),
            delay=self._member.delay(now),
        )

    def numbers(self) -> Mapping[str, float]:
        counts = self._records.status()
        return {
            "swaps_total": self._member.swaps_played(),
            "delivery_latency_seconds_sum": counts.settled_us / 1e6,
            "delivery_latency_seconds_count": counts.settled,
        }

    def _hindrances(self, unreachable: Mapping[str, str], now: int) -> tuple[str, ...]:
        """Return one line for each cause: several streams to one peer fail for one reason."""
        cut_off = [f"no way to {peer.rpartition('@')[2]}: {reason}" for peer, reason in unreachable.items()]
        if not self._mode.needs_peers:
            cut_off = []
        return tuple(dict.fromkeys([*cut_off, *self._mode.hindrances(self._member, now)]))

    def _cover_share(self, now: int) -> float:
        """Return the smallest cover share of the subscribed topics; 0 if the mode or the profile has no covers."""
        if self._config.profile not in self._mode.cover_profiles:
            return 0.0
        try:
            topics = self._keyring.keys_at(epoch_of(now, self._keyring.epoch_us)).topics
        except ExpiredError:
            return 0.0
        constraints = [
            constraint for interest in self._records.interests().values() for constraint in interest.constraints
        ]
        read = [each.text for each in constraints if isinstance(each, Equal) and each.attribute == TOPIC]
        shares = [topics[name].record.cover_share for name in read if name in topics]
        return min(shares, default=0.0)


def describe_ending(keyring: Keyring, now: int) -> tuple[str, ...]:
    """A line for the membership and for each grant that ends within a week, or within the last quarter of a shorter
    one; grants that have ended are not told."""
    leaf, epoch = keyring.membership.certificate.leaf, epoch_of(now, keyring.epoch_us)
    whole_us = (leaf.last + 1 - leaf.first) * keyring.epoch_us
    soon_us = min(SOON_US, whole_us // 4)
    lines = []
    if leaf.last >= epoch and (left_us := (leaf.last + 1) * keyring.epoch_us - now) <= soon_us:
        lines.append(f"the membership ends in {_duration(left_us)}; ask the authority to renew it")
    for grant, record in keyring.records():
        last = grant.last(record)
        left_us = (last + 1) * keyring.epoch_us - now
        if record.profile == "hardened" and last != leaf.last and last >= epoch and left_us <= soon_us:
            lines.append(f"the grant for {record.topic!r} ends in {_duration(left_us)}; ask the authority to renew it")
    return tuple(lines)


def _duration(us: int) -> str:
    days, hours = us // DAY_US, us // HOUR_US
    return f"{days} days" if days >= 2 else f"{hours} hours" if hours >= 2 else f"{us // 60_000_000} minutes"


SOON_US: Final = 7 * DAY_US
