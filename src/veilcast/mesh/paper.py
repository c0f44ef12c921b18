"""The paper profile: a publisher floods its own advertisements, and its notifications start at its place in the mesh.

The paper has no acknowledgements, so `RetainedPublications` settles a publication by time. The neighbours, or the links
that repeat it until it arrives, have a publication at once. It is settled after `linger_us`. If a node stops before
that, its next run sends the publication again. That run first waits for `linger_us`, until advertisements have gone out
and subscriptions have come in: before that there is no mesh.

With a shell game, publications can wait until the nodes have swapped (`hold_periods`), since a notification shows the
mesh as it is. A fresh chain lays the mesh anew, so the wait begins anew, too; but a publication waits no longer than
`_HOLDS_MAX` times, because any neighbour can ask for a fresh chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple

from veilcast.authority.keyring import TopicKeys
from veilcast.core.outbox import Outbox, PendingPublication
from veilcast.core.publication import check_notify, check_publishable, make_notify, notification_id, open_notify
from veilcast.errors import LocalError, MalformedError, StaleError
from veilcast.machine import Address, Delay, Event, Publication
from veilcast.mesh.advertisements import check_advert, make_advert
from veilcast.mesh.anchors import PublisherAnchorRules, anchor_advert, make_route_table
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.cover import ProbabilisticForwarding
from veilcast.mesh.epoch_tokens import EpochTokens
from veilcast.mesh.hiding_policy import BaselinePolicy, HidingPolicy
from veilcast.mesh.profile import ProfileContext
from veilcast.mesh.replay import make_seen_ids
from veilcast.mesh.shell_game import ShellGamePolicy
from veilcast.mesh.topic_overlay import MeshOverlay
from veilcast.topics import Conjunction, Schema
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Notify


class PaperProfile:
    """A `MeshProfile`. A topic's token is constant, or changes with the epoch if `epoch_tokens` is on."""

    def __init__(self, context: ProfileContext) -> None:
        config, keyring, members, beats, rng, entropy, post, deliver, records, *_ = context
        self._epochs, self._authority = EpochTokens(config, keyring), keyring.root
        self._entropy, self._post, self._deliver = entropy, post, deliver
        self._config = config
        self.overlay = MeshOverlay(config, members, beats, make_route_table(config, PublisherAnchorRules()))
        self.overlay.policy = _policy(config, self.overlay, rng)
        renew_us = config.defences.anchor_life_us // 2 if config.defences.anchors else None
        self._own_chains = OwnChains(config.again_periods * config.heartbeat_us, renew_us)
        plays = config.shellgame.start != "never"
        self._hold_us = config.shellgame.hold_periods * config.heartbeat_us if plays else 0
        self._held_since_us: dict[int, int] = {}
        self._records = records
        self._retained = RetainedPublications(config.linger_periods * config.heartbeat_us, records)
        self._seen = make_seen_ids(config)
        self._reading: dict[bytes, TopicKeys] = {}
        self._interests: dict[str, Sequence[Conjunction]] = {}
        self._advertised: dict[str, None] = {}

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        for keys in self._epochs.current_keys(topic, now).for_all():
            if not self.overlay.originates(keys.token):
                self._start_chain(keys, now)
        self._advertised[topic] = None
        self._update_tokens(now)

    def unadvertise(self, topic: str, now: int) -> None:
        self._epochs.current_keys(topic, now)
        self._advertised.pop(topic, None)
        for keys in self._own_chains.active_keys():
            if keys.record.topic == topic:
                self._own_chains.stop(keys.token)
                self.overlay.withdraw_advert(keys.token, now)

    def schema(self, topic: str, now: int) -> Schema:
        return self._epochs.current_keys(topic, now).record.schema

    def draft(self, topic: str, publication: Publication, now: int) -> PendingPublication:
        keys = self._epochs.current_keys(topic, now).for_publication(publication)
        self.advertise(topic, now)
        pending = self._records.draft(topic, keys.cell, publication)
        check_publishable(keys, pending.content)
        self._retained.make_room()
        return pending

    def send(self, record: int, pending: PendingPublication, now: int) -> None:
        is_sent = True
        try:
            keys = self._epochs.current_keys(pending.topic, now).for_publication(pending.content.publication)
            self.advertise(pending.topic, now)
            held_us = self._held_since_us.setdefault(record, now) + _HOLDS_MAX * self._hold_us
            until_us = min(self._own_chains.started_us(keys.token, now) + self._hold_us, held_us)
            if now < until_us:
                self._retained.add(record, pending, now, is_sent=False, until_us=until_us)
                return
            del self._held_since_us[record]
            self._pass_on(make_notify(keys, pending.content, self._entropy), None, now)
        except LocalError:
            is_sent = False  # The grant has ended; it may be renewed while this waits.
        self._retained.add(record, pending, now, is_sent=is_sent)

    def resume(self, record: int, pending: PendingPublication, now: int) -> None:
        with suppress(LocalError):
            self.advertise(pending.topic, now)
        self._retained.add(record, pending, now, is_sent=False)

    def withdraw(self, record: int) -> None:
        self._held_since_us.pop(record, None)
        self._retained.remove(record)

    def delay(self, members: int, now: int) -> Delay | None:
        """A sent publication is retained for a while, but does not count as delayed."""
        stays = [entry for entry in self._retained.entries if not entry.is_sent]
        if not stays:
            return None
        why = (
            "nodes swap positions" if self._hold_us else "subscribers find the way to a publisher that has just started"
        )
        return Delay(why, max(entry.until_us for entry in stays))

    def subscribe(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        self._epochs.current_keys(topic, now).for_interests(interests)
        self._interests[topic] = interests
        self._update_tokens(now)
        return self.ready_us(topic, now)

    def ready_us(self, topic: str, now: int) -> int | None:
        return now

    def unsubscribe(self, topic: str, now: int) -> None:
        self._interests.pop(topic, None)
        self._update_tokens(now)

    def is_own_topic(self, notify: Notify) -> bool:
        return notify.token in self._reading or self.overlay.originates(notify.token)

    # --- the network

    def receive(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, Notify):
            raise MalformedError("only notifications travel outside heartbeats")
        self._pass_on(message, source, now)

    def handle(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, Advert):
            check_advert(message, self._authority, self._epochs.verification_epoch(message.certificate, now))
            self.overlay.routes.admit(message, now)
        self.overlay.handle(message, source, now)

    def on_neighbour_lost(self, neighbour: Address, now: int) -> None:
        self.overlay.forget_neighbour(neighbour, now)
        self._own_chains.request_all()

    def beat(self, now: int) -> None:
        if self._epochs.has_changed(now):
            self._update_tokens(now)
        self._drop_expired_chains(now)
        self._own_chains.request(self.overlay.take_lost_chains())
        for keys in self._own_chains.due_keys(now):
            self._start_chain(keys, now)
        for entry in self._retained.pop_due(now):
            self.send(entry.record, entry.pending, now)
        self.overlay.beat(now)
        self.overlay.policy.beat(now)

    def next_event(self) -> Event | None:
        return None

    def sizes(self) -> dict[str, int]:
        return {"seen": len(self._seen)}

    # --- internal

    def _pass_on(self, notify: Notify, source: Address | None, now: int) -> None:
        """Flood a notification inside its mesh (P1 2.2), and open it if the owner subscribes. Only an authentic
        notification counts as seen."""
        name, token = notification_id(notify), notify.token
        if name in self._seen:
            return
        if not self.overlay.is_in_mesh(token):
            raise StaleError("a notification of a mesh that this node is not in")
        check_notify(notify, self.overlay.publishers(token))
        self._seen.add(name)
        self._post([neighbour for neighbour in self.overlay.mesh_neighbours(token) if neighbour != source], notify)
        self.overlay.policy.on_forwarded(token, now)
        if (keys := self._reading.get(token)) is not None:
            self._deliver(keys.record.topic, lambda: open_notify(keys, notify), now)

    def _update_tokens(self, now: int) -> None:
        """Subscribe and advertise with the current tokens."""
        wanted = {
            keys.token: keys
            for topic, interests in self._interests.items()
            for whole in self._epochs.subscription_keys(topic, now)
            for keys in whole.for_interests(interests)
        }
        ended = [token for token in self._reading if token not in wanted]
        fresh = [token for token in wanted if token not in self._reading]
        self._reading = wanted
        for token in fresh:
            self.overlay.add_subscription(token, now)
        for token in ended:
            self.overlay.remove_subscription(token, now)
        for topic in self._advertised:
            for keys in (part for whole in self._epochs.advertising_keys(topic, now) for part in whole.for_all()):
                if not self.overlay.originates(keys.token):
                    with suppress(LocalError):  # The table is full now: the owner gets the error when it publishes.
                        self._start_chain(keys, now)

    def _drop_expired_chains(self, now: int) -> None:
        """Drop chains whose time is over, this node's own included."""
        ended = self._epochs.oldest_epoch(now)
        for keys in self._own_chains.active_keys():
            if keys.certificate is not None and keys.certificate.leaf.last < ended:
                self._own_chains.stop(keys.token)
        self.overlay.expire(now, ended)

    def _start_chain(self, keys: TopicKeys, now: int) -> None:
        advert = make_advert(keys, self._entropy)
        if (defences := self._config.defences).anchors:
            advert = anchor_advert(advert, keys, self._config.d_max, now + defences.anchor_life_us)
        self.overlay.originate(advert, now)
        self._own_chains.start(keys, now)


class OwnChains:
    """The chains of this node, and when a fresh one is due. Bounded by the topics that the owner advertises.

    A lost chain cannot lead its loser back to the origin (`routes`), so the origin starts another. It does so at most
    every `pause_us`, because any neighbour can claim to have lost a chain. If chains expire, a fresh one is due every
    `renew_us`.
    """

    def __init__(self, pause_us: int, renew_us: int | None = None) -> None:
        self._pause_us, self._renew_us = pause_us, renew_us
        self._started: dict[bytes, tuple[TopicKeys, int]] = {}
        self._interests: dict[bytes, None] = {}

    def start(self, keys: TopicKeys, now: int) -> None:
        """A chain for this topic begins."""
        self._started[keys.token] = (keys, now)
        self._interests.pop(keys.token, None)

    def stop(self, token: bytes) -> None:
        self._started.pop(token, None)
        self._interests.pop(token, None)

    def started_us(self, token: bytes, now: int) -> int:
        """The time at which the chain of this topic began; now, if there is none."""
        return self._started[token][1] if token in self._started else now

    def active_keys(self) -> list[TopicKeys]:
        """The keys of all chains that have been started and not stopped."""
        return [keys for keys, _ in self._started.values()]

    def request(self, tokens: Iterable[bytes]) -> None:
        """Request fresh chains for these topics of this node."""
        self._interests |= {token: None for token in tokens if token in self._started}

    def request_all(self) -> None:
        self.request(list(self._started))

    def due_keys(self, now: int) -> list[TopicKeys]:
        """The topics whose fresh chain is due."""
        started = [self._started[token] for token in self._interests]
        wanted = {keys.token: keys for keys, since in started if now - since >= self._pause_us}
        if self._renew_us is not None:
            aged = [keys for keys, since in self._started.values() if now - since >= self._renew_us]
            wanted |= {keys.token: keys for keys in aged}
        return list(wanted.values())


class RetainedPublications:
    """Bounded like its records. All are retained for the same time, but for those that wait for nodes to swap."""

    def __init__(self, linger_us: int, records: Outbox) -> None:
        self._linger_us, self._records = linger_us, records
        self.entries: deque[RetainedPublication] = deque()

    def add(
        self, record: int, pending: PendingPublication, now: int, *, is_sent: bool, until_us: int | None = None
    ) -> None:
        until_us = now + self._linger_us if until_us is None else until_us
        self.entries.append(RetainedPublication(until_us, record, pending, is_sent))

    def pop_due(self, now: int) -> list[RetainedPublication]:
        """The publications to send now. Settles those that were sent long enough ago."""
        ended = [entry for entry in self.entries if entry.until_us <= now]
        if ended:
            self.entries = deque(entry for entry in self.entries if entry.until_us > now)
        for entry in ended:
            if entry.is_sent:
                self._records.settle(entry.record, entry.pending)
        return [entry for entry in ended if not entry.is_sent]

    def make_room(self) -> None:
        """If the records are full, settle the publication that was sent first."""
        while (
            self._records.is_full
            and (oldest := next((entry for entry in self.entries if entry.is_sent), None)) is not None
        ):
            self.entries.remove(oldest)
            self._records.settle(oldest.record, oldest.pending)

    def remove(self, record: int) -> None:
        self.entries = deque(entry for entry in self.entries if entry.record != record)


class RetainedPublication(NamedTuple):
    """A publication that waits to be sent, or to be settled if it has been sent."""

    until_us: int
    record: int
    pending: PendingPublication
    is_sent: bool


_HOLDS_MAX: Final = 4
"""Most times the hold that a publication waits for its mesh to be shuffled."""


def _policy(config: MeshConfig, overlay: MeshOverlay, rng: Random) -> HidingPolicy:
    policy: HidingPolicy = BaselinePolicy(overlay)
    if config.cover.rule != "none":
        policy = ProbabilisticForwarding(config.cover, overlay, rng, config.tokens_max)
    if config.shellgame.start != "never":
        policy = ShellGamePolicy(config, overlay, policy, rng)
    return policy
