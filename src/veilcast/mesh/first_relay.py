"""The first relay: the neighbour to which a node sends all its own publications first.

A hostile first relay knows that no other node stands before the publisher. So a node has one first relay, for all
topics, and keeps it, as a Tor client keeps its guard. Every node has one, whether it publishes or not: neither the
record on the disk nor the link reveals a publisher.

1. Identity. A first relay is a certified link key, and not an address. One certificate counts once, from however many
   addresses its member comes. A relay that comes back from another address is the same relay.
2. Choice. A node chooses only among its own links: it opened them, or it could reach no other member
   (`certified.PeerAdoption`). It waits until its neighbourhood is complete. A keyed hash of the certified keys decides.
3. Waiting. While the first relay is away, publications wait, and the owner is told.
4. Replacement. A replacement costs `refill_epochs` of uptime, of which at most `spares` times as much is saved. It
   needs the relay to be away for `away_epochs` of uptime without a break.
5. Mass failure. If more than half of all neighbours are silent at once, and the relay is among them, another own link
   stands in for the relay until the relay is heard again. A stand-in costs as much as a replacement, and is kept for
   later mass failures. If the relay stays away for `away_epochs`, the stand-in becomes the relay.

Claim: in an uptime of T epochs a node has at most 1 + spares + T / refill_epochs first relays, whatever an adversary
does to relays, to links and to neighbours. If at each choice at most a share p of the links that the node opened lead
to insiders, one of them has been the first relay with a probability of at most 1 - (1 - p) ** (1 + spares + T /
refill_epochs). Insiders that never leave come to hold a growing share of a node's links: p is that share, and not the
share of all members (`benchmarks/first_relay.py`).
Limit: an adversary that silences all own links except an insider's, or keeps the node from all members except an
insider, makes that insider the stand-in, for as long as it silences the relay. The insider becomes the relay only if
the adversary does so for `away_epochs`.
Assumption: the disk keeps the record. A node that loses it chooses again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from veilcast.machine import Address
from veilcast.mesh.config import FirstRelayConfig
from veilcast.mesh.neighbour_record import RelayRecord
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.sticky_choices import StickyChoices

StoreRelay: TypeAlias = Callable[[RelayRecord], None]
"""Stores the record for the node's next run."""


class FirstRelay:
    """`beat` is called once for each own heartbeat."""

    def __init__(
        self,
        rules: FirstRelayConfig,
        choices: StickyChoices,
        members: NeighbourTable,
        store: StoreRelay,
        *,
        epoch_beats: int,
        stored: RelayRecord | None = None,
    ) -> None:
        self._choices, self._members, self._store, self._epoch_beats = choices, members, store, epoch_beats
        self._away_max, self._price = rules.away_epochs * epoch_beats, rules.refill_epochs * epoch_beats
        self._credit_max = rules.spares * self._price
        self.record = stored
        self.is_settled = True
        """True if the neighbourhood is complete enough to choose in. A neighbourhood may set it to False."""
        self._uses_stand_in = stored is not None and stored.stand_in != b"" and stored.away > 0
        self._unstored_beats = self._link_count = self._stable_beats = self._waited_beats = 0

    @property
    def key(self) -> bytes | None:
        return None if self.record is None else self.record.key

    @property
    def key_in_use(self) -> bytes | None:
        """The key of the first relay, or of its stand-in."""
        return self.record.stand_in if self.record is not None and self._uses_stand_in else self.key

    def address(self) -> Address | None:
        """The current address of the first relay or its stand-in, if it is a neighbour."""
        return None if self.key_in_use is None else self._members.find_by_identity(self.key_in_use)

    @property
    def beats_until_choice(self) -> int:
        """Estimated heartbeats until the first choice; 0 once it is made."""
        if self.record is not None:
            return 0
        return 1 if self.is_settled else max(1, STABLE_BEATS + ATTEMPT_BEATS - self._stable_beats)

    def observe_links(self, links: int, links_max: int, *, idle: bool) -> None:
        """To be called once for each heartbeat before the first choice: the links that this node has opened, the number
        it wants, and whether it is trying to open none.

        A neighbourhood is complete when it has all its links; or when nothing has changed for some time, as if there
        are no more members; or when it has waited for long.
        """
        self._stable_beats = self._stable_beats + 1 if idle and links == self._link_count else 0
        self._waited_beats += links > 0
        self._link_count = links
        self.is_settled = links > 0 and (
            links >= links_max or self._stable_beats >= STABLE_BEATS or self._waited_beats >= WAIT_BEATS_MAX
        )

    def beat(self, now: int, *, mass_failure: bool) -> None:
        """Check whether the first relay is present. Choose the first one, or a replacement if that is allowed."""
        if self.record is None:
            if self.is_settled:
                self._choose(self._members.chosen(), self._credit_max)
            return
        if self._members.unheard_us(now) > 0 and not self._members.present:
            return  # This node is cut off, so the relay may be present.
        record = self.record
        name = self._members.find_by_identity(record.key)
        is_heard = name is not None and self._members.was_heard_within(name, now)
        away = 0 if is_heard or name in self._members.present else record.away + 1
        credit = min(record.credit + 1, self._credit_max)
        address = record.address if name is None else name
        self._change(
            RelayRecord(record.key, address, away, credit, record.stand_in), store_now=address != record.address
        )
        if is_heard:
            self._uses_stand_in = False
        if mass_failure and not is_heard:
            self._choose_stand_in(now)
        if away >= self._away_max:
            self._replace(now)

    def _choose(self, candidates: list[Address], credit: int) -> None:
        keys = {self._members.identity(name): name for name in candidates}
        if (key := self._choices.choose_first_relay(keys)) is not None:
            self._uses_stand_in = False
            self._change(RelayRecord(key, keys[key], 0, credit), store_now=True)

    def _choose_stand_in(self, now: int) -> None:
        """Use the stand-in in place of the relay. Choose the first stand-in, or another if the stand-in is silent
        too."""
        assert self.record is not None
        there = self._own_links_heard(now)
        if self._uses_stand_in and self.address() in self._members.present:
            return  # A stand-in in use is kept until it fails: another one would be another sample.
        if self.record.stand_in in there:
            self._uses_stand_in = True
        elif self.record.credit >= self._price and (key := self._choices.choose_first_relay(there)) is not None:
            self._uses_stand_in = True
            credit = self.record.credit - self._price
            self._change(msgspec.structs.replace(self.record, credit=credit, stand_in=key), store_now=True)

    def _replace(self, now: int) -> None:
        """The relay has been away for `away_epochs`. A stand-in has been paid for already."""
        assert self.record is not None
        there, credit = self._own_links_heard(now), self.record.credit
        if self.record.stand_in in there:
            self._choose([there[self.record.stand_in]], credit)
        elif credit >= self._price:
            self._choose(list(there.values()), credit - self._price)

    def _own_links_heard(self, now: int) -> dict[bytes, Address]:
        """The own links by key, without the relay. When most fall silent, those heard last may be silent too.

        A new link counts from its first heartbeat on.
        """
        there = (name for name in self._members.chosen() if name in self._members.present)
        heard = (name for name in there if self._members.was_heard_within(name, now, HEARD_PERIODS))
        keys = {self._members.identity(name): name for name in heard}
        return {key: name for key, name in keys.items() if key != self.key}

    def _change(self, record: RelayRecord, *, store_now: bool) -> None:
        """Store the counters `STORES_PER_EPOCH` times an epoch, so that they also grow if no run lasts for an epoch."""
        self.record = record
        self._unstored_beats += 1
        if store_now or self._unstored_beats * STORES_PER_EPOCH >= self._epoch_beats:
            self._unstored_beats = 0
            self._store(record)


STABLE_BEATS: Final = 8
ATTEMPT_BEATS: Final = 8
WAIT_BEATS_MAX: Final = 32
"""Heartbeats. A try to open a link takes up to `ATTEMPT_BEATS`."""
STORES_PER_EPOCH: Final = 16
HEARD_PERIODS: Final = 1.25
"""Heartbeat periods: less than the time in which a mass failure is noticed."""
