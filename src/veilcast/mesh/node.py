"""The mesh node: one machine for publisher, subscriber, forwarder and cover, which look alike from outside.

There are two kinds of frames (P0 4.1): heartbeats, all of one size, which carry every message except notifications; and
notifications, which travel at once. A heartbeat begins with a zero byte; a notification never does. `overlay` handles
the messages in heartbeats. This module has the owner's calls, the heartbeat timer (the only timer), and notifications.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final, TypeAlias

from veilcast.authority.keyring import Keyring
from veilcast.core.outbox import Outbox
from veilcast.core.publication import NumberedPublication, stream_place_id
from veilcast.errors import AuthorityError, LocalError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.link.address_groups import PrefixOf
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Interest, Left, Note, Publication, Waiting
from veilcast.mesh.certified import CertifiedNeighbourhood
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.credentials import COOKIE_PERIODS, Credentials
from veilcast.mesh.forwarding_load import ForwardingLoad
from veilcast.mesh.hardened import HardenedProfile
from veilcast.mesh.heartbeat import NUMBERS, Heartbeats, read_heartbeat
from veilcast.mesh.limits import NeighbourQueues, NeighbourRateLimits
from veilcast.mesh.neighbour_links import NEIGHBOUR_RECORD, NeighbourLinks
from veilcast.mesh.neighbour_record import NeighbourRecord, RelayRecord, read_neighbour_record
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.neighbourhood import FixedNeighbourhood, Neighbourhood
from veilcast.mesh.ordered_inbox import OrderedInbox
from veilcast.mesh.paper import PaperProfile
from veilcast.mesh.profile import MeshProfile, ProfileContext
from veilcast.mesh.replay import HeartbeatHistory
from veilcast.mesh.scamp import ScampNeighbourhood
from veilcast.topics import Conjunction, check_interest, check_publication, topic_of, topics_of
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.mesh import Admit, Answer, ForwardJoin, Greet, Join, Keep, Knock, Notify, Replace, Show


class MeshNode:
    """A `Member` that implements `Peers` and `Durable`.

    `neighbours` are those of a fixed neighbourhood, or the contacts through which a node called `name` finds its own. A
    certified neighbourhood also needs the `prefix` of addresses. `records` are the records that earlier runs stored and
    did not settle: publications, which are sent again, and the anchors and the first relay of a certified
    neighbourhood. `sent` counts sent messages by kind. `refused` counts refused messages by kind of error. `load`
    counts forwarded notifications, own and others'.
    """

    def __init__(
        self,
        config: MeshConfig,
        keyring: Keyring,
        rng: Random,
        entropy: Entropy,
        neighbours: Sequence[Address],
        now: int,
        name: Address | None = None,
        prefix: PrefixOf | None = None,
        records: Mapping[int, bytes] | None = None,
    ) -> None:
        if len(neighbours) > config.neighbours_max:
            raise LocalError(f"{len(neighbours)} neighbours are more than the {config.neighbours_max} allowed")
        period = config.heartbeat_us
        self._heartbeat_bytes = config.heartbeat_bytes
        fixed = neighbours if config.membership == "fixed" else ()
        self._members = NeighbourTable(fixed, period_us=period, silent_periods=config.silent_periods, now=now)
        self._queues = NeighbourQueues(config)
        # Each node draws its own phase; otherwise all heartbeats would coincide.
        self._heartbeats = Heartbeats(
            period_us=period,
            size=config.heartbeat_bytes,
            queue_max=config.queue_max,
            first_us=now + rng.randrange(period),
            first_number=rng.randrange(NUMBERS),
            new_queue=self._queues.make,
        )
        self._frames: list[Frame] = []
        records = records or {}
        kept = read_neighbour_record(records[NEIGHBOUR_RECORD]) if NEIGHBOUR_RECORD in records else NeighbourRecord()
        self._records = Outbox(entropy, records, config.records_max, NEIGHBOUR_RECORD)
        context = ProfileContext(
            config,
            keyring,
            self._members,
            self._heartbeats,
            rng,
            entropy,
            self._post,
            self._deliver,
            self._records,
            kept.relay,
            self._store_relay,
            now,
        )
        profile = PaperProfile(context) if config.profile == "paper" else HardenedProfile(context)
        self._profile: MeshProfile = profile
        self.overlay = profile.overlay
        guests_max = 2 * config.neighbours_max
        self._links = NeighbourLinks(
            self._members, self._heartbeats, self._profile.on_neighbour_lost, kept, guests_max=guests_max
        )
        self.neighbourhood: Neighbourhood = FixedNeighbourhood(self._links, fixed)
        if config.membership == "scamp":
            self.neighbourhood = ScampNeighbourhood(config, name, neighbours, self._links, rng, now)
        elif config.membership == "certified":
            if name is None or prefix is None:
                raise LocalError("a node among certified members must know its own address, and prefixes of others")
            credentials = Credentials(keyring, name, entropy, COOKIE_PERIODS * period)
            anchors, relay = (
                map(Address, kept.anchors),
                profile.first_relay if isinstance(profile, HardenedProfile) else None,
            )
            self.neighbourhood = CertifiedNeighbourhood(
                config, name, neighbours, self._links, credentials, prefix, rng, now, anchors, relay
            )
        self._rate_limits, self._heartbeat_history = NeighbourRateLimits(config), HeartbeatHistory(config)
        self._inbox = OrderedInbox(
            unread_max=config.unread_max,
            streams_max=config.unread_max,
            again_us=config.deliver_again_us,
            gap_us=config.late_us,
        )
        self._subscriptions: dict[int, tuple[str, Conjunction]] = {}
        self._subscribed = 0
        self._readiness = SubscriptionReadiness()
        self._notes = 0
        self._departure: Departure | None = None
        self._last_neighbour_us = now
        """Time at which a neighbour was last present."""
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.sent = self._heartbeats.sent
        self.load = ForwardingLoad()
        for record, pending in self._records.unsettled():
            profile.resume(record, pending, now)

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        """Announce that this node publishes on the topic. A repeated call changes nothing."""
        self._profile.advertise(topic, now)

    def unadvertise(self, topic: str, now: int) -> None:
        self._profile.unadvertise(topic, now)

    def publish(self, publication: Publication, now: int) -> int:
        """Send to every topic that the publication is labelled with, or to none."""
        topics = topics_of(publication)
        check_publication(publication, {topic: self._profile.schema(topic, now) for topic in topics})
        return self._records.keep([self._profile.draft(topic, publication, now) for topic in topics])

    def withdraw(self, record: int, now: int) -> None:
        self._profile.withdraw(record)
        self._records.drop(record)

    def subscribe(self, interest: Interest, now: int) -> int:
        """Valid from the next heartbeat on. If joining waits for an epoch edge, a `Waiting` event gives the time."""
        topic, conjunction = topic_of(interest)
        check_interest(conjunction, topic, self._profile.schema(topic, now))
        until_us = self._profile.subscribe(topic, [*self._interests(topic), conjunction], now)
        self._subscribed += 1
        self._subscriptions[self._subscribed] = (topic, conjunction)
        self._readiness.add(self._subscribed, until_us, now)
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        if number not in self._subscriptions:
            raise LocalError(f"there is no subscription {number}")
        topic, _ = self._subscriptions.pop(number)
        if left := self._interests(topic):
            with suppress(AuthorityError):  # The grant has ended, so nothing is read any more.
                self._profile.subscribe(topic, left, now)
        else:
            self._profile.unsubscribe(topic, now)

    def acknowledge(self, note: bytes, now: int) -> None:
        self._inbox.acknowledge(note)

    def leave(self, now: int) -> None:
        """Tell the neighbours in the next heartbeat; the event `Left` follows one heartbeat after it.

        By then the links have sent the goodbyes. With cells, an observer sees what it would see without them: cells
        at the same times, until the process ends.
        """
        if self._departure is None:
            self._departure = Departure()
            self.neighbourhood.leave(now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            is_beat = data[:1] == b"\0"
            if source not in self._members and not (is_beat and self.neighbourhood.accepts_strangers):
                raise StaleError("not a neighbour")
            if is_beat:
                self._hear(data, source, now)
            else:
                message = decode(data)
                self._rate_limits.charge(message, source, now)
                self._profile.receive(message, source, now)
                self._notes += 1
        except RemoteError as error:
            self._count_refusal(error)
        except Exception as error:
            self.faults.count_exception(error)

    def handle_timer(self, now: int) -> None:
        if now < self._heartbeats.next_us:
            return
        if self._departure is not None and self._departure.is_told:
            self._heartbeats.skip(now)
            self._departure.end()
            return
        for neighbour in self._members.find_silent(now):
            self.peer_lost(neighbour, now)
        if self._members.present:
            self._last_neighbour_us = now
        self._inbox.beat(now)
        self._profile.beat(now)
        topics = {number: topic for number, (topic, _) in self._subscriptions.items()}
        self._readiness.beat(topics, self._profile.ready_us, now)
        self.neighbourhood.beat(now)
        self._frames += self._heartbeats.beat(self._links.take_heartbeat_targets(), now)
        if self._departure is not None:
            self._departure.beat(self._heartbeats.count_queued())

    def next_timer(self) -> int | None:
        return self._heartbeats.next_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        if not self._frames:
            return []
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        if self._readiness.events:
            return self._readiness.events.pop(0)
        if self._departure is not None and self._departure.events:
            return self._departure.events.pop()
        own = self._links.next_event() or self._records.next_event()
        return own or self._inbox.next_delivery() or self._profile.next_event()

    def stored(self, record: int, now: int) -> None:
        for pending in self._records.stored(record):
            self._profile.send(record, pending, now)

    def peer_up(self, peer: Address, now: int) -> None:
        # The connection is up. In an open neighbourhood only the heartbeat of the peer proves that it keeps this node.
        if not self.neighbourhood.accepts_strangers and peer in self._members and self._members.mark_present(peer):
            self.overlay.greet(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._links.mark_lost(peer, now)
        self.neighbourhood.on_neighbour_lost(peer, now)

    # --- status for the owner

    def group_size(self) -> int:
        """Members that this node has met or heard of, including itself."""
        known = self.neighbourhood.sizes()
        return 1 + max(known.get("passive", 0), known.get("neighbours", 0), len(self._members.present))

    def delay(self, now: int) -> Delay | None:
        delay = self._profile.delay(self.group_size(), now)
        return Delay("this node has no neighbour") if delay is not None and self.alone_us(now) else delay

    def alone_us(self, now: int) -> int:
        """Time without any neighbour, in microseconds; 0 if there is one."""
        return 0 if self._members.present else max(1, now - self._last_neighbour_us)

    def swaps_played(self) -> int:
        return self.overlay.policy.swaps_completed()

    # --- checkers

    @property
    def version(self) -> int:
        """Rises whenever a table changes."""
        return self.overlay.version + self._links.version + self._notes

    def knows(self, peer: Address) -> bool:
        """True if this node accepts frames from the peer."""
        return peer in self._members

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table."""
        return {
            "routes": self.overlay.routes.count_offers(),
            "branches": self.overlay.branches.size(),
            "queued": self._heartbeats.count_queued(),
            "inbox": self._inbox.size(),
            "pending": len(self._records),
            "policy": self.overlay.policy.size(),
            **self._profile.sizes(),
            **self.neighbourhood.sizes(),
        }

    # --- internal

    def _hear(self, data: bytes, source: Address, now: int) -> None:
        beat = read_heartbeat(data, self._heartbeat_bytes)
        if source in self._members:
            if self._members.is_repeated(source, beat.number):
                # A message must not act twice: a copied subscription would double at every step of its walk.
                raise StaleError("a heartbeat that was heard already")
            if self._members.is_overtaken(source, beat.number):
                # When this heartbeat was missed, the node requested all state again.
                raise StaleError("a heartbeat that a later one overtook")
            if not self._heartbeat_history.take(source, beat.number):
                raise StaleError("a heartbeat of the past")
            was_present = source in self._members.present
            if not self._members.hear(source, beat.number, now):
                self._rate_limits.charge(Greet(), source, now)  # Counts as a greeting: all state is sent again.
                if was_present:
                    self.overlay.forget_neighbour(source, now)
                self.overlay.greet(source)
        for rider in beat.riders:
            try:
                self._handle(decode(rider), source, now)
            except RemoteError as error:
                self._count_refusal(error)
            except Exception as error:
                self.faults.count_exception(error)

    def _handle(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, _MEMBERSHIP_MESSAGES):
            self.neighbourhood.on_message(message, source, now)
        elif self._members.reaches(source):
            self._rate_limits.charge(message, source, now)
            with self._queues.charging(source):
                self._profile.handle(message, source, now)
        else:
            raise StaleError("not a neighbour")

    def _post(self, neighbours: Sequence[Address], message: Message) -> None:
        data = encode(message) if neighbours else b""
        self._frames += [Frame(neighbour, data) for neighbour in neighbours]
        self.sent[type(message).__name__] += len(neighbours)
        if isinstance(message, Notify):
            self.load = self.load.plus(len(neighbours), len(data), own=self._profile.is_own_topic(message))
        self._notes += 1

    def _deliver(self, topic: str, opened: Callable[[], NumberedPublication], now: int) -> None:
        """Put a notification into the inbox for the matching subscriptions. Without a match only its sequence number
        counts.

        Any fault in the notification ends here. A node without a subscription notices nothing of the fault, and
        neighbours must not be able to tell the two apart.
        """
        try:
            content = opened()
            readers = [
                number
                for number, (read, interest) in self._subscriptions.items()
                if read == topic and interest.matches(content.publication)
            ]
            note = Note(stream_place_id(topic, content), content.publication)
            self._inbox.put((topic, content.stream), content.number, note, readers, now)
        except RemoteError as error:
            self._count_refusal(error)
        except Exception as error:
            self.faults.count_exception(error)

    def _store_relay(self, relay: RelayRecord) -> None:
        """Store the first relay. In a fixed neighbourhood the next run has the same neighbours and makes the same
        choice."""
        if self.neighbourhood.accepts_strangers:
            self._links.store_relay(relay)

    def _interests(self, topic: str) -> list[Conjunction]:
        return [interest for read, interest in self._subscriptions.values() if read == topic]

    def _count_refusal(self, error: RemoteError) -> None:
        self.refused[type(error).__name__] += 1


class Departure:
    """The last heartbeats of a node that leaves: those that carry its goodbyes, and a period of silence after them."""

    def __init__(self) -> None:
        self._beats = 0
        self.is_told = False
        """True if the goodbyes are in heartbeats that have been made."""
        self.events: list[Left] = []

    def beat(self, queued: int) -> None:
        """A heartbeat was made, and this many messages wait for later ones."""
        self._beats += 1
        self.is_told = not queued or self._beats == GOODBYE_BEATS

    def end(self) -> None:
        if self._beats:
            self._beats = 0
            self.events.append(Left())


class SubscriptionReadiness:
    """The subscriptions that are not ready yet, and the events that tell the owner when they will be. The node bounds
    their number."""

    def __init__(self) -> None:
        self._announced_us: dict[int, int | None] = {}
        self.events: list[Waiting] = []

    def add(self, number: int, until_us: int | None, now: int) -> None:
        """Add a new subscription. If it is not ready at once, an event tells the owner when it will be."""
        if until_us is None or until_us > now:
            self._announced_us[number] = until_us
            self.events.append(Waiting(number, until_us))

    def beat(self, topics: Mapping[int, str], ready_time: ReadyTime, now: int) -> None:
        """Update all times. `topics` are those of all current subscriptions."""
        for number, announced_us in list(self._announced_us.items()):
            if number not in topics:
                del self._announced_us[number]
                continue
            until_us = ready_time(topics[number], now)
            if until_us is not None and until_us <= now:
                del self._announced_us[number]
                until_us = now if announced_us is None or announced_us > now else announced_us
            else:
                self._announced_us[number] = until_us
            if until_us != announced_us:
                self.events.append(Waiting(number, until_us))


ReadyTime: TypeAlias = Callable[[str, int], int | None]
"""From a topic and the time now: when a subscription begins to receive notifications; None while that is unknown."""
_MEMBERSHIP_MESSAGES: Final = (Join, ForwardJoin, Keep, Replace, Knock, Answer, Show, Admit)
GOODBYE_BEATS: Final = 3
"""Most heartbeats in which goodbyes wait behind other messages."""
