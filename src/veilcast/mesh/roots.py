"""Roots: elected members from which the floods of the hardened mesh begin, so that none begins at a publisher.

A flood reveals its origin to a handful of colluders, whatever is done to its hash chain. So a topic's advertisements
come from a root that no publisher chose.

1. A publisher's call reaches every node from the end of a stem, and opens a lottery. Each member has one lot for the
   topic's lineage, which a proof shows and no member can choose (`crypto.vrf`).
2. The better the lot, the shorter the wait, by its logarithm. So mostly a single candidate advertises before all have
   heard of it. If there are several, the best leads and the others withdraw. A node with little uptime waits longer.
3. The root stays until it fails, over all epochs. Later calls climb to it, and it starts the mesh of the next epoch a
   little before the epoch edge. When no node has a way to it any more, and it starts no fresh chain, the lottery opens
   again.

`RootDelay` holds notifications at the root for a random time, or until their mesh has formed. Subscribers that know
which members are present could compare that with the times of notifications; a notification that comes some epochs late
matches nothing. At each moment that was drawn, the oldest notification of its token leaves: the distribution of the
moments stays the same, and so does the order of the notifications.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from heapq import heappop, heappush
from math import log, log2
from random import Random
from typing import Final, Protocol

from veilcast.authority.keyring import EpochKeys
from veilcast.crypto import hash_chain, vrf
from veilcast.crypto.certificate import CertificateChain, CertificateKind
from veilcast.crypto.hash_chain import Anchor
from veilcast.crypto.topic_token import CELLS_MAX, lineage_of
from veilcast.errors import AuthorityError, ForgedError, LocalError, StaleError
from veilcast.machine import Address, Entropy
from veilcast.mesh.advertisements import check_call
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Call, Candidacy, Notify


class RootContext(Protocol):
    """The view of its node that a candidate has."""

    def present_neighbours(self) -> list[Address]: ...

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]: ...

    def originate(self, advert: Advert, now: int) -> None: ...

    def withdraw_advert(self, token: bytes, now: int) -> None: ...

    def send(self, neighbour: Address, message: Message) -> None: ...


class RootElections:
    """One member's part in all lotteries. Bounded by the calls that it keeps, which certificates bound in turn."""

    def __init__(
        self,
        config: MeshConfig,
        context: RootContext,
        keys_at: Callable[[int], EpochKeys],
        entropy: Entropy,
        *,
        epoch_us: int,
        now: int,
    ) -> None:
        self._rules, self._context, self._keys_at, self._entropy = config.hardening, context, keys_at, entropy
        self._period_us, self._epoch_us, self._since_us = config.heartbeat_us, epoch_us, now
        self._calls_max, self._chain_length = config.tokens_max, config.d_max
        self._pause_us = config.again_periods * config.heartbeat_us
        self._life_us = config.defences.anchor_life_us
        self._calls: dict[bytes, Call] = {}
        self._turn_at_us: dict[bytes, int] = {}
        self._started: dict[bytes, int] = {}
        self._ready_us: dict[bytes, int] = {}
        self._fresh_requested: dict[bytes, None] = {}
        self._rooted: dict[bytes, None] = {}
        self._served: dict[bytes, None] = {}
        self._opened: dict[bytes, int] = {}
        """Time at which a call came before any answer: the lottery opened for this node."""
        self._verdicts: dict[bytes, tuple[Candidacy | None, bool]] = {}
        """For the leading root of a token, whether it advertised before its turn."""
        self._formed_us: dict[bytes, int] = {}
        """Estimated time at which the mesh of a token has formed, from the first news of its root."""

    def tokens_of(self, lineage: bytes, since: int = 0) -> list[bytes]:
        """The known tokens of this lineage in the epochs from `since` on."""
        return [
            token
            for token, call in self._calls.items()
            if call.certificate.leaf.first >= since and lineage_of(call.certificate, call.cell) == lineage
        ]

    def calls_of(self, epoch: int) -> list[Call]:
        """The known calls of this epoch."""
        return [call for call in self._calls.values() if call.certificate.leaf.first == epoch]

    def add_call(self, call: Call, now: int) -> bool:
        """Add an authentic call; False if it is known or there is no room.

        Names of cells cost nothing, and one certificate is enough for any number, so only a limited number for each
        topic is kept. With send slots, calls are early and cover many epochs, so each topic has a share of the table.
        """
        if call.token in self._calls or len(self._calls) >= self._calls_max:
            return False
        known = [kept.certificate for kept in self._calls.values()]
        share = max(_EPOCHS * CELLS_MAX, self._calls_max // _TOPICS)
        if sum(_is_same_topic(call.certificate, other) for other in known) >= share:
            return False
        scope = call.certificate.leaf.scope
        if call.cell is not None and sum(other.leaf.scope == scope for other in known) >= CELLS_MAX:
            return False
        self._calls[call.token] = call
        return True

    def has_call(self, token: bytes) -> bool:
        return token in self._calls

    def flood_call(self, call: Call, source: Address | None, now: int) -> None:
        """Forward a call to all neighbours, once."""
        if self.add_call(call, now):
            self._opened[call.token] = now
            for neighbour in self._context.present_neighbours():
                if neighbour != source:
                    self._context.send(neighbour, call)

    def own_mesh_ready_us(self, token: bytes) -> int:
        """Time at which the mesh that this node began has formed. Before that a notification would miss many
        members."""
        return self._ready_us.get(token, 0)

    def estimate_mesh_ready_us(self, token: bytes, lineage: bytes, members: int, now: int) -> int:
        """Time by which the mesh of this token has formed, in nine of ten cases, in a network of `members` members.

        A known root began its mesh at most one flood ago. If no root is known, the best of `members` lots has to wait
        for its turn; all members count as having this node's uptime.
        """
        if token in self._formed_us:
            return self._formed_us[token]
        flood_us = _FLOOD_PERIODS * self._period_us
        opened_us = self._opened.get(token, now + 2 * flood_us)
        if self._is_served(lineage):
            return opened_us + flood_us + self._forming_us(token)
        best = max(0.0, _BITS - log2(max(1, members)) + _NINE_OF_TEN_BITS)
        turn_us = opened_us + self._turn_us(token, best, opened_us)
        return max(now, min(turn_us, self._turn_at_us.get(token, turn_us))) + flood_us + self._forming_us(token)

    def send_open_calls(self, neighbour: Address, now: int) -> None:
        """Tell a new neighbour the calls that no root has answered: it may be the one to answer."""
        for token, call in self._calls.items():
            if self._should_form(call, now) and not self._context.reachable_origins(token):
                self._context.send(neighbour, call)

    def make_receipt(self, lineage: bytes, name: bytes, now: int) -> bytes:
        """A receipt of this node, as the root of this lineage, for a stem message. Raises if its membership has
        ended."""
        try:
            lot = self._keys_at(now // self._epoch_us).lot
        except AuthorityError as error:
            raise StaleError("the membership of this node has ended") from error
        return vrf.prove_lot(lot, lineage, _RECEIPT + name, self._entropy)

    def check_receipt(self, lineage: bytes, name: bytes, receipt: bytes) -> None:
        """Raise unless a known root of this lineage gave this receipt."""
        origins = [origin for token in self.tokens_of(lineage) for origin in self._context.reachable_origins(token)]
        for candidacy in dict.fromkeys(origin.advert.root for origin in origins):
            if candidacy is not None:
                with suppress(ForgedError):
                    public = candidacy.membership.leaf.scope
                    return vrf.check_lot(public, lineage, candidacy.draw, _RECEIPT + name, receipt)
        raise ForgedError("no root that we know of gave this receipt")

    def request_fresh_chains(self, tokens: Iterable[bytes]) -> None:
        """A node has lost the chains of these tokens of this root."""
        self._fresh_requested |= {token: None for token in tokens if token in self._started}

    def beat(self, now: int) -> None:
        for token, call in list(self._calls.items()):
            first_us = call.certificate.leaf.first * self._epoch_us
            if now >= first_us + self._epoch_us + self._rules.grace_periods * self._period_us:
                tables = (
                    self._calls,
                    self._turn_at_us,
                    self._started,
                    self._ready_us,
                    self._fresh_requested,
                    self._served,
                )
                for table in (*tables, self._opened, self._verdicts, self._formed_us):
                    table.pop(token, None)
            elif self._should_form(call, now):
                with suppress(LocalError):  # The membership has ended, or the table is full.
                    self._stand_for_election(token, call, now)

    def size(self) -> int:
        return len(self._calls)

    def _should_form(self, call: Call, now: int) -> bool:
        """True if the mesh of this call should form now."""
        return now >= call.certificate.leaf.first * self._epoch_us - self._rules.lead_periods * self._period_us

    def _stand_for_election(self, token: bytes, call: Call, now: int) -> None:
        """Become the root if it is this node's turn, and step back if another leads."""
        lineage, origins = lineage_of(call.certificate, call.cell), self._context.reachable_origins(token)
        best = leading_origin(origins)
        if best is None:
            self._formed_us.pop(token, None)
            if lineage in self._rooted or (not self._is_served(lineage) and self._has_waited(token, lineage, now)):
                self._start_chain(call, now)
            return
        self._formed_us.setdefault(token, now + self._forming_us(token))
        if token not in self._started and self._outranks(lineage, best, now):
            self._start_chain(call, now)
            return
        if not best.is_own and self._contests(token, lineage, best, now):
            if self._has_waited(token, lineage, now):
                self._start_chain(call, now)
            return
        self._turn_at_us.pop(token, None)
        self._served[token] = None
        if best.is_own:
            if token in self._fresh_requested and now - self._started[token] >= self._pause_us:
                self._start_chain(call, now)
        elif token in self._started:
            del self._started[token]
            self._rooted.pop(lineage, None)
            self._context.withdraw_advert(token, now)

    def _is_served(self, lineage: bytes) -> bool:
        """True if the lineage has a root under another token, which will come to this one."""
        return any(self._context.reachable_origins(token) for token in self.tokens_of(lineage))

    def _outranks(self, lineage: bytes, best: AdvertisedOrigin, now: int) -> bool:
        """True if this node is the root under another token, and its lot is better than that of the leader here.

        The next call reaches the root over a stem. A relay of that stem can be first, and must not win by that.
        """
        if lineage not in self._rooted:
            return False
        known = (origin for token in self.tokens_of(lineage) for origin in self._context.reachable_origins(token))
        return any(origin.is_own for origin in known) and self._own_rank(lineage, now) < _rank_key(best.advert)[0]

    def _contests(self, token: bytes, lineage: bytes, best: AdvertisedOrigin, now: int) -> bool:
        """True if this node stands although there is a root: one with a worse lot that did not wait for its turn.

        Otherwise the first to answer would be the root. A root of the previous epoch need not wait.
        """
        candidacy = best.advert.root
        if token not in self._opened or candidacy is None:
            return False
        rank = _rank(candidacy.draw, candidacy.membership)
        if self._verdicts.get(token, (None, False))[0] != candidacy:
            others = [
                origin
                for other in self.tokens_of(lineage)
                if other != token
                for origin in self._context.reachable_origins(other)
            ]
            stays = any(origin.advert.root == candidacy for origin in others)
            turn_us = int(self._rules.bit_periods * (_bits(rank) - 1) * self._period_us)
            self._verdicts[token] = (candidacy, not stays and now - self._opened[token] < turn_us)
        return self._verdicts[token][1] and self._own_rank(lineage, now) < rank

    def _own_rank(self, lineage: bytes, now: int) -> int:
        keys = self._keys_at(now // self._epoch_us)
        return _rank(vrf.draw_lot(keys.lot, lineage), keys.membership)

    def _has_waited(self, token: bytes, lineage: bytes, now: int) -> bool:
        if not self._rules.volunteer:
            return False
        if token not in self._turn_at_us:
            self._turn_at_us[token] = now + self._turn_us(token, _bits(self._own_rank(lineage, now)), now)
        return self._turn_at_us[token] <= now

    def _turn_us(self, token: bytes, bits: float, now: int) -> int:
        """Time that a lot of `bits` steps waits for its turn, from `now` on."""
        up_periods = (now - self._since_us) / self._period_us
        youth = max(0.0, 1 - up_periods / self._rules.uptime_periods)
        patience = self._rules.patience_periods if token in self._served else 0
        return int((patience + self._rules.bit_periods * (bits + _YOUTH_BITS * youth)) * self._period_us)

    def _forming_us(self, token: bytes) -> int:
        """Time that the mesh of this token takes to form, from its root's first advertisement on."""
        rules = self._rules
        formed = rules.repair_periods + 2 * rules.bit_periods if token in self._served else rules.lead_periods
        return formed * self._period_us

    def _start_chain(self, call: Call, now: int) -> None:
        """Start a chain, the first or a fresh one."""
        # A root without membership during the epoch could neither acknowledge nor start a fresh chain.
        keys = self._keys_at(max(now // self._epoch_us, call.certificate.leaf.first))
        lineage = lineage_of(call.certificate, call.cell)
        expires_us = now + self._life_us
        self._context.originate(make_root_advert(call, keys, self._chain_length, expires_us, self._entropy), now)
        if len(self._rooted) >= self._calls_max:
            del self._rooted[next(iter(self._rooted))]
        self._rooted[lineage] = None
        if call.token not in self._started:
            self._ready_us[call.token] = now + self._forming_us(call.token)
        self._started[call.token] = now
        self._turn_at_us.pop(call.token, None)
        self._fresh_requested.pop(call.token, None)


class RootDelay:
    """Bounded: at most `room` notifications, each for up to `hold_us` or until its mesh has formed."""

    def __init__(self, rng: Random, *, hold_us: int, room: int) -> None:
        self._rng, self._hold_us, self._room = rng, hold_us, room
        self._held: dict[bytes, Notify] = {}
        self._release_times: list[tuple[int, bytes]] = []

    def can_hold(self, name: bytes) -> bool:
        """True if there is room for this notification, and it is not held already."""
        return name not in self._held and len(self._held) < self._room

    def hold(self, name: bytes, note: Notify, stands_us: int, now: int, *, is_drawn: bool = False) -> bool:
        """Hold a notification for its time, and until its mesh has formed. False if that is now, and no notification of
        its token is before it. `is_drawn`: its publisher has drawn the time, which is `stands_us`."""
        due_us = max(now + (0 if is_drawn else self._rng.randrange(self._hold_us + 1)), stands_us)
        if due_us <= now and all(held.token != note.token for held in self._held.values()):
            return False
        self._held[name] = note
        heappush(self._release_times, (due_us, note.token))
        return True

    def pop_due(self, now: int) -> tuple[bytes, Notify] | None:
        """A notification whose time has come, and its id. It is no longer held."""
        if not self._release_times or self._release_times[0][0] > now:
            return None
        _, token = heappop(self._release_times)
        name = next(name for name, held in self._held.items() if held.token == token)
        return name, self._held.pop(name)

    def __len__(self) -> int:
        return len(self._held)


def make_root_advert(call: Call, keys: EpochKeys, length: int, expires_us: int, entropy: Entropy) -> Advert:
    """The advertisement of an elected root: the publisher's call, the root's lot, and a chain that the proof of the lot
    signs."""
    first, lineage = hash_chain.start_chain(entropy), lineage_of(call.certificate, call.cell)
    end = hash_chain.advance_chain(first, length)
    statement = hash_chain.encode_anchor(call.token, end, length, expires_us)
    anchor = Anchor(end, length, expires_us, vrf.prove_lot(keys.lot, lineage, statement, entropy))
    candidacy = Candidacy(keys.membership, vrf.draw_lot(keys.lot, lineage))
    return Advert(call.token, first, anchor, call.certificate, call.signature, candidacy, call.cell)


def extract_call(advert: Advert) -> Call:
    """The call that an elected root's advertisement answers."""
    return Call(advert.token, advert.certificate, advert.signature, advert.cell)


class RootAnchorRules:
    """An `AnchorRules`: the proof of a root's lot signs its chain, and is checked with the rest of its
    advertisement."""

    def check(self, advert: Advert, anchor: Anchor, now: int) -> None:
        if now >= anchor.expires_us:
            raise StaleError("the chain's anchor has expired")

    def signer(self, advert: Advert) -> bytes:
        return advert.root.membership.leaf.subject if advert.root is not None else b""

    def rank(self, advert: Advert) -> int:
        return _rank_key(advert)[0]


def check_root_advert(advert: Advert, authority: bytes, first: int, epoch: int) -> None:
    """Raise unless a publisher called for a root, and this member proves its lot, and with it the end of its chain.

    Meshes from epoch `first` to the next are kept.
    """
    anchor, candidacy = advert.anchor, advert.root
    if anchor is None or candidacy is None:
        raise ForgedError("an advert without a root")
    check_call(extract_call(advert), authority, first, epoch + 1)
    lineage = lineage_of(advert.certificate, advert.cell)
    _check_candidacy(candidacy, anchor, advert.token, lineage, authority, epoch)


def leading_origin(origins: Iterable[AdvertisedOrigin]) -> AdvertisedOrigin | None:
    """The origin with the best lot; of several chains of one root, the latest."""
    return min(origins, key=lambda origin: _rank_key(origin.advert), default=None)


def _is_same_topic(one: CertificateChain, other: CertificateChain) -> bool:
    """A sub-authority may name another's lineage, but not under the other's name."""
    return one.leaf.lineage == other.leaf.lineage and one.group == other.group


@lru_cache(maxsize=4096)
def _check_candidacy(
    candidacy: Candidacy, anchor: Anchor, token: bytes, lineage: bytes, authority: bytes, epoch: int
) -> None:
    candidacy.membership.verify(authority, CertificateKind.MEMBER, epoch)
    statement = hash_chain.encode_anchor(token, anchor.end, anchor.length, anchor.expires_us)
    vrf.check_lot(candidacy.membership.leaf.scope, lineage, candidacy.draw, statement, anchor.signature)


def _rank_key(advert: Advert) -> tuple[int, int]:
    if advert.anchor is None or advert.root is None:
        return _RANKS, 0
    return _rank(advert.root.draw, advert.root.membership), -advert.anchor.expires_us


@lru_cache(maxsize=4096)
def _rank(draw: bytes, membership: CertificateChain) -> int:
    return vrf.rank_lot(draw, membership.leaf.signature)


def _bits(rank: int) -> float:
    """Steps that a lot of this rank waits."""
    return max(0.0, _BITS + log2((rank + 1) / _RANKS))


_EPOCHS: Final = 3
"""Epochs with a mesh at one time: the last one in its grace time, this one, and the next."""
_TOPICS: Final = 4
"""Topics that fill the table of calls, if each has as many calls as it may have."""
_RECEIPT: Final = b"taken "
_RANKS: Final = 1 << 64
_BITS: Final = 12
"""In a network of 2^12 members the best lot waits for about nothing."""
_YOUTH_BITS: Final = 6
"""Steps by which the lot of a node that has just started counts worse."""
_NINE_OF_TEN_BITS: Final = log2(log(10))
"""In nine of ten cases, the best of n lots is not worse than 1/n by more than this."""
_FLOOD_PERIODS: Final = 2
"""Heartbeats that a flood takes to reach most members of a network of the usual size."""
