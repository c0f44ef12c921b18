"""The publisher's side: a publication and its key are sent to the edge node until all subscribers have the publication.

A topic has one shared key for a bulk of publications, which is transferred once, separately (`publisher_keys`). Keys do
not survive a restart: a pending publication is sealed again with another key, and subscribers recognize it by its id.

1. Property: a publication is confirmed only if an honest replica of the edge node confirms it.
   Reason: f + 1 replicas must confirm it. With f, Byzantine ones alone could.

2. Property: an unconfirmed publication gets through once the brokers let it.
   Reason: it is sent again after a while, with a new attempt number, and its key with it: the publisher cannot tell
   which of the two got lost. After a few attempts (`blocks.ATTEMPTS_MAX`) it is sealed again under a new key. The same
   happens when the advertisement's validity period is over, because the subscribers' keys change with it.

3. Property: attempts reveal no key.
   Reason: each attempt is dealt afresh, and shares of two attempts never mix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

import msgspec

from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.blocks import ATTEMPTS_MAX, ContentBlock, choose_carriers, encode_content
from veilcast.brokers.content.publisher_keys import PREPARE_AGAIN_US, PublishedKey, PublisherKeys
from veilcast.brokers.content.sealed_publication import encode_publication, encode_trial, seal_publication
from veilcast.brokers.edge_links import EdgeLinks
from veilcast.brokers.keys.bulk_key import PublicationKey
from veilcast.brokers.routing.renewal import ActiveAdvertisement, AdvertisementNotice, ClaimEncoder, ClaimRenewal
from veilcast.core.connector import backoff
from veilcast.core.outbox import Outbox, PendingPublication, Sendings
from veilcast.core.timers import Timers, earliest
from veilcast.errors import ExcessError, LocalError, StaleError
from veilcast.machine import Address, Delay, Entropy, Overdue
from veilcast.wire.brokers import ConfirmContent, ForwardContent, RequestBlocks, Routing, WantKey


class ContentPublisher:
    """Bounded: `records_max` publications, their keys, and the keys and a trial of each topic."""

    def __init__(
        self,
        config: BrokerClientConfig,
        claims: ClaimRenewal,
        codec: ClaimEncoder,
        edge: EdgeLinks,
        records: Outbox,
        rng: Random,
        entropy: Entropy,
    ) -> None:
        self._config, self._claims, self._codec, self._edge = config, claims, codec, edge
        self._records, self._rng, self._entropy = records, rng, entropy
        self._hardened = config.profile == "hardened"
        self._keys = PublisherKeys(config, edge, entropy)
        self._states: Sendings[_PublicationState] = Sendings(config.wait_us)
        self._contents: dict[bytes, _PublicationState] = {}
        self._timers: Timers[_PublicationState] = Timers()
        self._notices: dict[bytes, AdvertisementNotice] = {}
        self._preparations: Timers[bytes] = Timers()
        """Advertisements whose first key is to be dealt."""

    def __len__(self) -> int:
        return len(self._states)

    @property
    def key_count(self) -> int:
        return len(self._keys)

    # --- the application

    def send(self, record: int, pending: PendingPublication, now: int) -> None:
        """Start sending."""
        state = _PublicationState(record, pending)
        self._states.add(record, state, pending.content.publication, now)
        self._attempt(state, now)

    def withdraw(self, record: int) -> None:
        for state in self._states.withdraw(record):
            self._abandon_sealing(state)

    def unconfirmed(self) -> list[tuple[int, PendingPublication]]:
        """All unconfirmed publications."""
        return [(state.record, state.pending) for state in self._states if not state.is_confirmed]

    def hold_for_self(self, record: int, pending: PendingPublication) -> None:
        """The member itself is subscribed: settle the publication only after `release_held`."""
        for state in self._find(record, pending):
            state.is_held = True

    def release_held(self, record: int, pending: PendingPublication) -> None:
        """The publisher's own application has acknowledged it."""
        for state in self._find(record, pending):
            state.is_held = False
            self._settle(state)

    def delay(self, now: int) -> Delay | None:
        """Why the last unconfirmed publication waits; None if all are confirmed."""
        waiting = [state for state in self._states if not state.is_confirmed]
        if not waiting:
            return None
        last = waiting[-1]
        advertised = self._claims.active_advertisement(last.pending.topic, now)
        if advertised is None:
            taken_us = now + self._config.spread_us + _TRAVEL_US
            return Delay("the brokers of the edge node are to take its advertisement first", taken_us)
        if now < advertised.ready_us:
            return Delay("its advertisement spreads through the overlay first", advertised.ready_us + _TRAVEL_US)
        if self.unconfirmed_us(now):
            return Delay("the brokers do not confirm that its subscribers have it")
        return Delay("the brokers are to confirm that its subscribers have it", now + _TRAVEL_US)

    def unconfirmed_us(self, now: int) -> int:
        """Age of the oldest publication that was sent `_ATTEMPTS` times without confirmation, in microseconds; 0
        without one."""
        sent_us = [one.sent_us for one in self._states if not one.is_confirmed and one.attempts >= _ATTEMPTS]
        return now - min(sent_us) if sent_us else 0

    # --- the brokers

    def on_advertised(self, notice: AdvertisementNotice) -> None:
        """The brokers of the edge node have an advertisement: its first key is dealt once it has spread."""
        advertisement = notice.advertised.claim.id
        self._notices[advertisement] = notice
        self._preparations.set(advertisement, notice.prepare_us)

    def on_done(self, done: ConfirmContent, source: Address) -> None:
        """A replica confirms that all subscribers behind it have the publication."""
        state = self._contents.get(done.content)
        if state is None:
            return  # Enough replicas have confirmed it.
        state.confirmed_by[source] = None
        if self._edge.includes_honest(state.confirmed_by):
            if state.sealed is not None:
                state.sealed.key.is_confirmed = True
            state.is_confirmed = True
            self._abandon_sealing(state)
            if state.is_trial:
                return
            if all(other.is_confirmed for other in self._states.of(state.record)):
                self._states.stop_timer(state.record)
            self._settle(state)

    def on_missing(self, missing: RequestBlocks, index: int) -> None:
        """A replica lacks blocks: each block is sent to it once more per attempt."""
        state = self._contents.get(missing.content)
        if state is None or state.sealed is None:
            raise StaleError("not a content in transit")
        blocks = {block.index: block for block in state.sealed.blocks}
        for number in missing.blocks:
            if number not in blocks:
                raise StaleError("no block of that content")
            if (index, number) in state.blocks_requested:
                raise ExcessError("a block that was requested before in this attempt")
            state.blocks_requested[index, number] = None
            self._send_content(state.sealed, index, blocks[number])

    def on_key_request(self, want: WantKey, now: int) -> None:
        """A subscriber lacks a key, or a broker says so."""
        self._keys.request(want, now)

    # --- time

    def next_us(self) -> int | None:
        return earliest(self._timers.next_us(), self._states.next_us(), self._preparations.next_us())

    def handle(self, now: int) -> None:
        for advertisement in self._preparations.pop_due(now):
            notice = self._notices[advertisement]
            is_needed = notice.from_us <= now or self._keys.is_publishing(notice.topic)
            if is_needed and self._keys.prepare(notice.topic, notice.advertised, now):
                self._preparations.set(advertisement, now + PREPARE_AGAIN_US)
            else:
                del self._notices[advertisement]
        for state in self._timers.pop_due(now):
            if state.is_trial:
                self._repeat_trial(state, now)
            else:
                self._attempt(state, now)
        self._states.handle(now)

    def next_event(self) -> Overdue | None:
        return self._states.next_event()

    # --- internals

    def _attempt(self, state: _PublicationState, now: int) -> None:
        advertised = self._claims.active_advertisement(state.pending.topic, now)
        if advertised is None:
            self._timers.set(state, now + self._config.connect_us)  # A grant may be renewed, or a link come up.
            return
        if now < advertised.ready_us:
            self._timers.set(state, advertised.ready_us)
            return
        sealed, state.blocks_requested = state.sealed, {}
        if sealed is None or sealed.routing.advertisement != advertised.claim.id or sealed.attempt >= ATTEMPTS_MAX:
            exhausted = sealed is not None and sealed.attempt >= ATTEMPTS_MAX
            self._abandon_sealing(state)
            try:
                sealed = self._seal(state, advertised, now, reseal=exhausted)
            except LocalError:  # It was valid when it was published; the topic's record may have changed since.
                self._timers.set(state, now + backoff(self._rng, self._config.again_us, state.attempts))
                return
        else:
            self._repeat(sealed, now)
        self._send_sealed(state, sealed, now)
        self._try_successor(state.pending, sealed.routing.says, advertised, now)

    def _repeat(self, sealed: _SealedPublication, now: int) -> None:
        sealed.attempt += 1
        self._keys.deal_again(sealed.key, now)

    def _send_sealed(self, state: _PublicationState, sealed: _SealedPublication, now: int) -> None:
        for block in sealed.blocks:
            to = choose_carriers(self._config.strategy, block.id, block.index, self._edge.scheme, sealed.attempt)
            for index in range(1, self._edge.scheme.size + 1):
                # All replicas get the manifest, so each can request the blocks that it lacks.
                self._send_content(sealed, index, block if index in to else None)
        self._timers.set(state, now + backoff(self._rng, self._config.again_us, state.attempts))
        if not state.attempts:
            state.sent_us = now
        state.attempts += 1

    def _try_successor(
        self, pending: PendingPublication, says: bytes, advertised: ActiveAdvertisement, now: int
    ) -> None:
        """Send a trial of the next key to the subscribers of this publication, if it was not tried."""
        trial = self._keys.next_trial(pending.topic, advertised)
        if trial is not None:
            state = _PublicationState(0, pending, is_trial=True)
            sealed = self._seal_with(state, *trial, encode_trial(padded=self._hardened), says)
            self._send_sealed(state, sealed, now)

    def _repeat_trial(self, state: _PublicationState, now: int) -> None:
        sealed, advertised = state.sealed, self._claims.active_advertisement(state.pending.topic, now)
        if sealed is None:
            return
        key, is_active = sealed.key, advertised is not None and advertised.claim.id == sealed.key.advertisement
        state.blocks_requested = {}
        if self._keys.is_successor(key) and is_active and sealed.attempt < ATTEMPTS_MAX:
            self._repeat(sealed, now)
            self._send_sealed(state, sealed, now)
            return
        self._abandon_sealing(state)
        if self._keys.is_successor(key):
            self._keys.drop_successor(key)

    def _send_content(self, sealed: _SealedPublication, index: int, block: ContentBlock | None) -> None:
        data, at = (None, 0) if block is None else (block.data, block.index)
        self._edge.send_to_index(index, ForwardContent(sealed.routing, sealed.manifest, data, at, sealed.attempt))

    def _seal(
        self, state: _PublicationState, advertised: ActiveAdvertisement, now: int, *, reseal: bool
    ) -> _SealedPublication:
        pending = state.pending
        plaintext = encode_publication(pending, padded=self._hardened)
        says = self._codec.encode_publication(advertised.keys, pending.content.publication)
        key, sealing = self._keys.next_key(pending.topic, advertised, len(plaintext), now, fresh=reseal)
        return self._seal_with(state, key, sealing, plaintext, says)

    def _seal_with(
        self, state: _PublicationState, key: PublishedKey, sealing: PublicationKey, plaintext: bytes, says: bytes
    ) -> _SealedPublication:
        routing = Routing(key.advertisement, says, key.id, sealing.number, self._entropy(8))
        sealed = seal_publication(sealing.key, plaintext, routing.content, self._entropy)
        manifest, blocks = encode_content(
            routing.content, sealed, self._config.strategy, self._edge.scheme, key.signing
        )
        key.unconfirmed[routing.content] = None
        state.sealed = _SealedPublication(routing, _ENCODER.encode(manifest), blocks, key)
        self._contents[routing.content] = state
        return state.sealed

    def _abandon_sealing(self, state: _PublicationState) -> None:
        """The current sealing of the publication is abandoned."""
        self._timers.cancel(state)
        if (sealed := state.sealed) is not None:
            self._contents.pop(sealed.routing.content, None)
            sealed.key.unconfirmed.pop(sealed.routing.content, None)
            self._keys.forget(sealed.key)
            state.sealed, state.confirmed_by = None, {}

    def _settle(self, state: _PublicationState) -> None:
        if state.is_held or not state.is_confirmed:
            return
        if state in self._states.of(state.record):
            self._states.finish(state.record, state)
            self._records.settle(state.record, state.pending)

    def _find(self, record: int, pending: PendingPublication) -> list[_PublicationState]:
        return [state for state in self._states.of(record) if state.pending == pending]


@dataclass(slots=True)
class _SealedPublication:
    routing: Routing
    manifest: bytes
    blocks: list[ContentBlock]
    key: PublishedKey
    attempt: int = 0


@dataclass(slots=True, eq=False)
class _PublicationState:
    record: int
    pending: PendingPublication
    is_trial: bool = False
    """True for the trial of a key, which goes where the publication `pending` would go."""
    is_held: bool = False
    is_confirmed: bool = False
    attempts: int = 0
    sent_us: int = 0
    """Time of the first attempt."""
    sealed: _SealedPublication | None = None
    confirmed_by: dict[Address, None] = field(default_factory=dict)
    blocks_requested: dict[tuple[int, int], None] = field(default_factory=dict)


_TRAVEL_US: Final = 1_000_000
"""Upper bound of the time of a publication and its key through an overlay whose brokers all answer."""
_ATTEMPTS: Final = 3
"""A publication that was sent this often and is not confirmed counts as stuck."""
_ENCODER: Final = msgspec.msgpack.Encoder()
