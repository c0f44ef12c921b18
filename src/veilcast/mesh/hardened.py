"""The hardened profile (configuration H): an elected root advertises, publications reach the root over a stem, and all
members of a mesh, most of them covers, join in batches behind permanent parents.

Tokens change with every epoch. The lineage, which certificates name, stays. A notification travels in the mesh of its
own epoch and in the later meshes of its lineage that have formed: around an epoch edge clocks differ, and some members
have left the old mesh while others are not in the new one. So neither an edge nor the delay at the root loses a
notification. A notification carries its publisher's certificate, because the root's advertisement does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import ceil

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, TopicKeys
from veilcast.core.member_topics import CACHED_EPOCHS_MAX
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import check_certified_notify, check_publishable, notification_id, open_certified_notify
from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.noise import Keypair
from veilcast.crypto.topic_token import lineage_of
from veilcast.errors import AuthorityError, ConfigError, LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Event, Publication
from veilcast.mesh.advertisements import check_call
from veilcast.mesh.anchors import make_route_table
from veilcast.mesh.batch_join import BatchJoinPolicy
from veilcast.mesh.cover_stems import CoverStems, ParcelAddress, check_parcel, read_parcel
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.mass_failure import MassFailure
from veilcast.mesh.outbox import StemOutbox
from veilcast.mesh.profile import ProfileContext
from veilcast.mesh.replay import make_seen_ids
from veilcast.mesh.roots import (
    RootAnchorRules,
    RootDelay,
    RootElections,
    check_root_advert,
    extract_call,
    leading_origin,
)
from veilcast.mesh.routes import AdvertisedOrigin
from veilcast.mesh.send_slots import SendSlots
from veilcast.mesh.stem import Cargo, StemChoices, Stems, cargo_id
from veilcast.mesh.sticky_choices import StickyChoices
from veilcast.mesh.topic_overlay import MeshOverlay
from veilcast.topics import Conjunction, Schema
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Advert, Call, Greet, Notify, Parcel, Stem, StemReceipt


class HardenedProfile:
    """A `MeshProfile`, and the `StemContext` of its own stems."""

    def __init__(self, context: ProfileContext) -> None:
        config, keyring, members, beats, rng, entropy, post, deliver, records, kept, keep, now = context
        rules, period_us = config.hardening, config.heartbeat_us
        life_us = 2 * keyring.epoch_us + rules.grace_periods * period_us
        defences = msgspec.structs.replace(config.defences, anchor_life_us=life_us)
        config = msgspec.structs.replace(config, defences=defences)
        if keyring.epoch_us < 3 * rules.lead_periods * period_us:
            raise ConfigError("hardening.lead_periods is more than a third of an epoch; beat faster or lead by less")
        self._keyring, self._members, self._post, self._deliver = keyring, members, post, deliver
        self._rules, self._epoch_us, self._records = rules, keyring.epoch_us, records
        self._lead_us, self._grace_us = rules.lead_periods * period_us, rules.grace_periods * period_us
        self._cache = EpochKeyCache(keyring, CACHED_EPOCHS_MAX + ceil(rules.hold_back_epochs))
        choices = StickyChoices(keyring.membership.link)
        routes = make_route_table(
            config,
            RootAnchorRules(),
            lambda advert, name: choices.parent_rank(
                lineage_of(advert.certificate, advert.cell), members.identity(name)
            ),
        )
        self.overlay = MeshOverlay(config, members, beats, routes)
        self._join_policy = BatchJoinPolicy(
            rules, self.overlay, choices, self._holds_grant, period_us=period_us, epoch_us=self._epoch_us, rng=rng
        )
        self.overlay.policy = self._join_policy
        self._roots = RootElections(config, self.overlay, self._cache.at, entropy, epoch_us=self._epoch_us, now=now)
        beats_max = max(1, self._epoch_us // period_us)
        self.first_relay = FirstRelay(rules.relay, choices, members, keep, epoch_beats=beats_max, stored=kept)
        self._stems = Stems(
            self,
            StemChoices(rules, choices, members, self.first_relay),
            self._roots,
            circle_us=rules.retry_periods * period_us // 2,
            passages_max=rules.passages_max,
        )
        self._link_key = Keypair(keyring.membership.link)
        self._cover_stems = CoverStems(
            self._parcel_addresses,
            self._stems.launch,
            rng,
            entropy,
            stretch_us=rules.parcel_periods * period_us if rules.covers else 0,
            period_us=period_us,
            waiting_max=rules.pending_max,
            held_epochs=int(rules.hold_back_epochs),
        )
        send_slots = SendSlots(choices, rules.departure_epochs, epoch_us=self._epoch_us)
        self._epochs_ahead = send_slots.epochs_ahead
        self._outbox = StemOutbox(
            config,
            self._keys_of,
            self._has_root,
            self._has_way,
            self._roots.estimate_mesh_ready_us,
            lambda: self.first_relay.beats_until_choice,
            self._launch,
            self._cover_stems.hold_epochs,
            send_slots,
            records.settle,
            rng,
            entropy,
            epoch_us=self._epoch_us,
        )
        self.delay = self._outbox.delay
        self._root_delay = RootDelay(rng, hold_us=int(rules.hold_back_epochs * self._epoch_us), room=rules.pending_max)
        self._seen, self._flooded = make_seen_ids(config), make_seen_ids(config)
        self._mass_failure = MassFailure(period_us)
        self._beat_us, self._epoch = now, -1
        self._interests: dict[str, Sequence[Conjunction]] = {}
        self._subscribed: dict[bytes, str] = {}
        self._publishing: dict[bytes, str] = {}

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        self._outbox.advertise(topic, now)
        self._publishing[self._keys_of(topic, epoch_of(now, self._epoch_us)).record.lineage] = topic

    def unadvertise(self, topic: str, now: int) -> None:
        self._outbox.unadvertise(topic)
        self._publishing = {lineage: published for lineage, published in self._publishing.items() if published != topic}

    def schema(self, topic: str, now: int) -> Schema:
        return self._keys_of(topic, epoch_of(now, self._epoch_us)).record.schema

    def draft(self, topic: str, publication: Publication, now: int) -> PendingPublication:
        self.advertise(topic, now)
        keys = self._keys_of(topic, epoch_of(now, self._epoch_us)).for_publication(publication)
        pending = self._records.draft(topic, keys.cell, publication)
        check_publishable(keys, pending.content)
        return pending

    def send(self, record: int, pending: PendingPublication, now: int) -> None:
        self._outbox.put(record, pending, now)

    def resume(self, record: int, pending: PendingPublication, now: int) -> None:
        with suppress(LocalError):  # The grant has ended; it may be renewed while this waits.
            self.advertise(pending.topic, now)
        self._outbox.put(record, pending, now)

    def withdraw(self, record: int) -> None:
        self._outbox.withdraw(record)
        self._cover_stems.clear()

    def subscribe(self, topic: str, interests: Sequence[Conjunction], now: int) -> int | None:
        self._keys_of(topic, epoch_of(now, self._epoch_us)).for_interests(
            interests
        )  # Raises if the grant does not cover an interest.
        before, self._interests[topic] = self._subscription_keys(topic, now), interests
        lineages = {keys.lineage for keys in self._subscription_keys(topic, now)}
        for keys in before:
            if keys.lineage not in lineages:
                self._subscribed.pop(keys.lineage, None)
                self.overlay.remove_subscription(keys.token, now)
        self._subscribe_now(topic, now)
        return self.ready_us(topic, now)

    def ready_us(self, topic: str, now: int) -> int | None:
        return self._join_policy.ready_us(
            [(keys.lineage, keys.token) for keys in self._subscription_keys(topic, now)], now
        )

    def unsubscribe(self, topic: str, now: int) -> None:
        self._subscribed = {
            lineage: subscribed for lineage, subscribed in self._subscribed.items() if subscribed != topic
        }
        for keys in self._subscription_keys(topic, now):
            self.overlay.remove_subscription(keys.token, now)
        self._interests.pop(topic, None)

    def is_own_topic(self, notify: Notify) -> bool:
        if (certificate := notify.certificate) is None:
            return False
        reads = lineage_of(certificate, notify.cell) in self._subscribed
        return reads or certificate.leaf.lineage in self._publishing

    # --- the network

    def receive(self, message: Message, source: Address, now: int) -> None:
        match message:
            case Notify():
                self._pass_on(message, source, now)
            case Stem():
                self._stems.receive(message, source, now)
            case StemReceipt():
                self._stems.receive_acknowledgement(message, source)
            case _:
                raise MalformedError("not a message that travels outside heartbeats")

    def handle(self, message: Message, source: Address, now: int) -> None:
        epoch = epoch_of(now, self._epoch_us)
        if isinstance(message, Call):
            check_call(message, self._keyring.root, self._first_kept_epoch(now), epoch + self._epochs_ahead)
            self._roots.flood_call(message, source, now)
            return
        if isinstance(message, Advert):
            # Subscriptions count when a mesh begins to form. Clocks differ by at most the grace time.
            if epoch_of(now + self._lead_us + self._grace_us, self._epoch_us) < message.certificate.leaf.first:
                raise StaleError("a mesh that forms too early")
            check_root_advert(message, self._keyring.root, self._first_kept_epoch(now), epoch)
            self.overlay.routes.admit(message, now)
            self._roots.add_call(extract_call(message), now)
            if message.cell is not None and not self._roots.has_call(message.token):
                raise StaleError("more cells than a topic can have")
        self.overlay.handle(message, source, now)
        if isinstance(message, Greet):
            self._roots.send_open_calls(source, now)
            for note in self._mass_failure.recent_notifications(now) if self._mass_failure.is_active(now) else ():
                self._post((source,), note)

    def on_neighbour_lost(self, neighbour: Address, now: int) -> None:
        self.overlay.forget_neighbour(neighbour, now)

    def beat(self, now: int) -> None:
        self._beat_us = now
        there = self.overlay.present_neighbours()
        if self._mass_failure.observe(len(there), sum(self._members.is_fresh(name, now) for name in there), now):
            self._begin_mass_failure(now)
        self.first_relay.beat(now, mass_failure=self._mass_failure.is_active(now))
        if epoch_of(now, self._epoch_us) != self._epoch:
            self._epoch = epoch_of(now, self._epoch_us)
            self._cache.forget_before(self._oldest(now))
            for topic in self._interests:
                self._subscribe_now(topic, now)
            self._unsubscribe_past_tokens(now)
        self.overlay.expire(now, self._first_kept_epoch(now))
        self._roots.request_fresh_chains(self.overlay.take_lost_chains())
        self._roots.beat(now)
        self.overlay.policy.beat(now)
        self._outbox.beat(now)
        self._cover_stems.beat(now)
        while (held := self._root_delay.pop_due(now)) is not None:
            self._release(*held, now)

    def next_event(self) -> Event | None:
        return self._outbox.next_event()

    def sizes(self) -> dict[str, int]:
        return {
            "seen": max(len(self._seen), len(self._flooded)),
            "calls": self._roots.size(),
            "passages": self._stems.size(),
            "held": len(self._root_delay),
            "parcels": self._cover_stems.size(),
        }

    # --- StemContext

    def present_neighbours(self) -> list[Address]:
        there, now = self.overlay.present_neighbours(), self._beat_us
        if not self._mass_failure.is_active(now):
            return there
        return [name for name in there if self._members.was_heard_within(name, now)]

    def reachable_origins(self, token: bytes) -> list[AdvertisedOrigin]:
        return self.overlay.reachable_origins(token)

    def post(self, neighbour: Address, message: Message) -> None:
        self._post((neighbour,), message)

    def check_cargo(self, cargo: Cargo, now: int) -> None:
        epoch = epoch_of(now, self._epoch_us)
        if isinstance(cargo, Parcel):
            check_parcel(cargo)
            if not self._has_root(cargo.token):
                raise StaleError("a parcel for a root that this node does not know")
        elif isinstance(cargo, Call):
            check_call(cargo, self._keyring.root, self._first_kept_epoch(now), epoch + self._epochs_ahead)
        else:
            check_certified_notify(cargo, self._keyring.root, epoch - 1, epoch + 1)

    def deliver_at_root(self, cargo: Cargo, name: bytes, now: int) -> bool:
        if isinstance(cargo, Parcel):
            self._accept_parcel(cargo, now)
            return False
        if isinstance(cargo, Call):
            self._roots.add_call(cargo, now)
            return True
        return self._hold(cargo, name, None, now)

    def _hold(self, cargo: Notify, name: bytes, release_us: int | None, now: int) -> bool:
        """As the root, hold a notification until `release_us`, or for a time that this node draws. True if it is
        finished."""
        if notification_id(cargo) in self._seen:
            return True
        if not self._root_delay.can_hold(name):
            return False
        ready_us = min((self._roots.own_mesh_ready_us(token) for token in self._meshes_of(cargo)), default=now)
        stands_us = max(ready_us, now if release_us is None else release_us)
        if self._root_delay.hold(name, cargo, stands_us, now, is_drawn=release_us is not None):
            return False
        self._pass_on(cargo, None, now)
        return True

    def flood_to_all(self, note: Notify, source: Address | None, now: int) -> bool:
        """During a mass failure, send a notification to all neighbours, and open it if the owner subscribes. False if
        there is no mass failure.

        The notification does not count as seen: once there is a root it also travels through the mesh, to members that
        this flood did not reach.
        """
        if not self._mass_failure.is_active(now):
            return False
        if (name := notification_id(note)) not in self._flooded:
            epoch = epoch_of(now, self._epoch_us)
            certificate = check_certified_notify(note, self._keyring.root, self._oldest(now), epoch + 1)
            self._flooded.add(name)
            if name not in self._seen:
                self._mass_failure.remember(note, now)
            self._post([neighbour for neighbour in self.overlay.present_neighbours() if neighbour != source], note)
            self._open(certificate, note, now)
        return True

    def confirm(self, name: bytes, receipt: bytes) -> None:
        lineage = self._outbox.find_lineage(name)
        if lineage is not None:
            self._roots.check_receipt(lineage, name, receipt)
            self._outbox.confirm(name)

    # --- internal

    def _parcel_addresses(self, now: int) -> Iterator[ParcelAddress]:
        """The roots of the meshes of this epoch, as far as this node knows them."""
        for call in self._roots.calls_of(epoch_of(now, self._epoch_us)):
            origin = leading_origin(self.overlay.reachable_origins(call.token))
            if origin is not None and origin.advert.root is not None:
                root = origin.advert.root.membership.leaf.subject
                topic = call.certificate.leaf.lineage
                yield ParcelAddress(topic, lineage_of(call.certificate, call.cell), call.token, root)

    def _launch(self, cargo: Cargo, lineage: bytes, now: int) -> bool:
        """Send an own cargo: in a parcel where there is a root, and otherwise in the open. False while the first relay
        is away."""
        if isinstance(cargo, Parcel) or cargo.certificate is None:
            return self._stems.launch(cargo, lineage, now)
        data, topic = encode(cargo), lineage_of(cargo.certificate, cargo.cell)
        if not self._mass_failure.is_active(now) and self._cover_stems.put(topic, data, now):
            return self._stems.has_first_relay(lineage)
        return self._cover_stems.launch_in_the_open(cargo, lineage, now)

    def _accept_parcel(self, parcel: Parcel, now: int) -> None:
        """As the root, take what a parcel contains, without an acknowledgement."""
        cargo = read_parcel(parcel, self._link_key)
        if isinstance(cargo, Call):
            self.check_cargo(cargo, now)
            self._roots.add_call(cargo, now)
        elif cargo is not None:
            epoch = epoch_of(now, self._epoch_us)
            last = epoch + 1 + int(self._rules.hold_back_epochs)
            first = check_certified_notify(cargo, self._keyring.root, epoch - 1, last).leaf.first
            release_us = self._cover_stems.release_us(first * self._epoch_us, (first + 1) * self._epoch_us, now)
            self._hold(cargo, cargo_id(encode(cargo)), release_us, now)

    def _confirm_own(self, certificate: CertificateChain, notify: Notify) -> None:
        """An own publication came back through the mesh. That proves nothing if a relay of the stem could read it."""
        if certificate.leaf.lineage in self._publishing:
            name = cargo_id(encode(notify))
            if self._cover_stems.was_sealed(name):
                self._outbox.confirm(name)

    def _begin_mass_failure(self, now: int) -> None:
        """A mass failure begins. Messages in flight may have ended at silent neighbours, so they are sent and forwarded
        once more."""
        self._stems.forget()
        self._outbox.resend_by(self._mass_failure.resend_us(now))
        for note in self._mass_failure.recent_notifications(now):
            with suppress(RemoteError):
                self.flood_to_all(note, None, now)

    def _release(self, name: bytes, notify: Notify, now: int) -> None:
        """Forward a notification whose delay at the root has ended. A node that is no longer the root drops it without
        acknowledgement, so the publisher sends it to the new root."""
        with suppress(RemoteError):
            self._pass_on(notify, None, now)
            if notify.certificate is not None:
                lineage = lineage_of(notify.certificate, notify.cell)
                self._stems.acknowledge(name, self._roots.make_receipt(lineage, name, now))

    def _pass_on(self, notify: Notify, source: Address | None, now: int) -> None:
        """Flood a notification inside a mesh of its lineage, and open it if the owner subscribes. Only an authentic
        notification counts as seen.

        During a mass failure the notification is first flooded to all neighbours. If it did not arrive through the
        mesh, the method stops there.
        """
        name = notification_id(notify)
        if name in self._seen:
            return
        was_flooded = source is not None and self.flood_to_all(notify, source, now)
        meshes = self._meshes_of(notify)
        near = dict.fromkeys(neighbour for token in meshes for neighbour in self.overlay.mesh_neighbours(token))
        if was_flooded and source not in near:
            return
        epoch = epoch_of(now, self._epoch_us)
        certificate = check_certified_notify(notify, self._keyring.root, self._oldest(now), epoch + 1)
        if not meshes:
            # Neighbours that observe a mass failure flood to nodes that do not. Opening the notification is invisible:
            # it is not forwarded and does not count as seen, so it will be forwarded if it comes through a mesh.
            self._open(certificate, notify, now)
            raise StaleError("a notification of a mesh that this node is not in")
        self._seen.add(name)
        self._confirm_own(certificate, notify)
        self._mass_failure.remember(notify, now)
        self._post([neighbour for neighbour in near if neighbour != source], notify)
        self._open(certificate, notify, now)

    def _open(self, certificate: CertificateChain, notify: Notify, now: int) -> None:
        if (topic := self._subscribed.get(lineage_of(certificate, notify.cell))) is None:
            return
        try:
            keys = self._keys_of(topic, certificate.leaf.first).for_cell(notify.cell)
        except AuthorityError:
            return  # The grant ends before that epoch.
        self._deliver(topic, lambda: open_certified_notify(keys, notify, certificate, self._keyring.root), now)

    def _meshes_of(self, notify: Notify) -> list[bytes]:
        """The tokens of this node's meshes in which a notification travels: that of its own epoch, and later ones of
        its lineage.

        A subscription alone does not put a node into the mesh: a subscriber that waits for the epoch edge behaves like
        all other nodes outside.
        """
        if (certificate := notify.certificate) is None:
            return []
        later = self._roots.tokens_of(lineage_of(certificate, notify.cell), certificate.leaf.first)
        return [token for token in dict.fromkeys((notify.token, *later)) if self._is_in_mesh(token)]

    def _is_in_mesh(self, token: bytes) -> bool:
        return bool(self.overlay.mesh_neighbours(token)) or self.overlay.originates(token)

    def _has_root(self, token: bytes) -> bool:
        return bool(self.overlay.reachable_origins(token))

    def _has_way(self, token: bytes) -> bool:
        """True if a message that leaves now has a destination: a root, or all neighbours during a mass failure."""
        return self._has_root(token) or self._mass_failure.is_active(self._beat_us)

    def _subscribe_now(self, topic: str, now: int) -> None:
        for keys in self._subscription_keys(topic, now):
            self._subscribed[keys.lineage] = topic
            self.overlay.add_subscription(keys.token, now)

    def _unsubscribe_past_tokens(self, now: int) -> None:
        """Unsubscribe from tokens of past epochs that had no advertisement. A mesh that existed is purged in its own
        time."""
        near = {keys.token: None for topic in self._interests for keys in self._subscription_keys(topic, now)}
        for token in self.overlay.subscribed_tokens():
            if token not in near and not self.overlay.routes.origins(token):
                self.overlay.remove_subscription(token, now)

    def _subscription_keys(self, topic: str, now: int) -> Sequence[TopicKeys]:
        """The keys of the subscribed parts of a topic, for this epoch and the next, as far as the grant reaches."""
        found: list[TopicKeys] = []
        epoch, interests = epoch_of(now, self._epoch_us), self._interests.get(topic, ())
        for near in (epoch, epoch + 1):
            with suppress(AuthorityError):
                found += self._keys_of(topic, near).for_interests(interests)
        return found

    def _first_kept_epoch(self, now: int) -> int:
        """The first epoch whose mesh is kept: this one, or the previous one during the grace time."""
        return epoch_of(now - self._grace_us, self._epoch_us)

    def _oldest(self, now: int) -> int:
        """The first epoch whose notifications may still be in flight."""
        return epoch_of(now, self._epoch_us) - 1 - ceil(self._rules.hold_back_epochs)

    def _holds_grant(self, lineage: bytes, epoch: int) -> bool:
        """True if the keyring has a grant of any role for the topic of this lineage in this epoch."""
        with suppress(AuthorityError):
            return any(keys.record.lineage == lineage for keys in self._cache.at(epoch).topics.values())
        return False

    def _keys_of(self, topic: str, epoch: int) -> TopicKeys:
        keys = self._cache.at(epoch).topic(topic)
        if keys.record.profile != "hardened":
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this node is hardened")
        return keys
