"""The mesh node: one machine for publisher, subscriber, forwarder and cover, which look alike from outside.

Frames are of two kinds (P0 4.1): heartbeats, all of one size, in which everything but notes rides; and notes, which
travel at once. A heartbeat begins with a zero byte, a note never does. What rides is the business of `overlay`; here
are the owner's calls, the rhythm, and the notes. There is one timer, the heartbeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from veilcast.authority.content import Content, place_id
from veilcast.authority.keyring import Keyring
from veilcast.authority.letters import Records
from veilcast.errors import AuthorityError, LocalError, RemoteError, StaleError
from veilcast.faults import Faults
from veilcast.link.prefixes import Prefix
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Interest, Note, Publication
from veilcast.mesh.buckets import Buckets
from veilcast.mesh.caps import Backlogs
from veilcast.mesh.certified import Certified
from veilcast.mesh.conduct import Conduct, Outfit
from veilcast.mesh.config import Config
from veilcast.mesh.credentials import COOKIE_PERIODS, Credentials
from veilcast.mesh.hardened import Hardened
from veilcast.mesh.heartbeat import NUMBERS, Heartbeats, read_heartbeat
from veilcast.mesh.inbox import Inbox
from veilcast.mesh.links import OF_NEIGHBOURHOOD, Links
from veilcast.mesh.load import Load
from veilcast.mesh.membership import Membership
from veilcast.mesh.neighbour_record import NeighbourRecord, RelayRecord, read_neighbour_record
from veilcast.mesh.neighbourhood import Fixed, Neighbourhood
from veilcast.mesh.paper import Paper
from veilcast.mesh.readiness import SubscriptionReadiness
from veilcast.mesh.replays import Heard
from veilcast.mesh.scamp import Scamp
from veilcast.topics import Conjunction, check_interest, check_publication, topic_of, topics_of
from veilcast.wire import decode, encode
from veilcast.wire.messages import Admit, Answer, ForwardJoin, Greet, Join, Keep, Knock, Message, Notify, Replace, Show


class MeshNode:
    """A `Member`, with the notices of `Peers` and `Durable`.

    `neighbours` are those of a fixed neighbourhood, or the contacts by which a node called `name` finds its own. Among
    certified members it needs the `prefix` of addresses. `records` is what earlier lives had stored and did not settle:
    publications, which are sent again, and the anchors and the first relay of a certified neighbourhood.
    `sent` counts what we sent, by kind of message; `refused` what others sent in vain, by kind of error;
    `load` is what we carry of notes, for ourselves and for others.
    """

    def __init__(
        self,
        config: Config,
        keyring: Keyring,
        rng: Random,
        entropy: Entropy,
        neighbours: Sequence[Address],
        now: int,
        name: Address | None = None,
        prefix: Prefix | None = None,
        records: Mapping[int, bytes] | None = None,
    ) -> None:
        if len(neighbours) > config.neighbours_max:
            raise LocalError(f"{len(neighbours)} neighbours are more than the {config.neighbours_max} allowed")
        period = config.heartbeat_us
        self._heartbeat_bytes = config.heartbeat_bytes
        fixed = neighbours if config.membership == "fixed" else ()
        self._members = Membership(fixed, period_us=period, silent_periods=config.silent_periods, now=now)
        self._backlogs = Backlogs(config)
        # Each node beats at a phase of its own, or all would be heard at once.
        self._beats = Heartbeats(
            period_us=period,
            size=config.heartbeat_bytes,
            queue_max=config.queue_max,
            first_us=now + rng.randrange(period),
            first_number=rng.randrange(NUMBERS),
            new_queue=self._backlogs.make,
        )
        self._frames: list[Frame] = []
        records = records or {}
        kept = read_neighbour_record(records[OF_NEIGHBOURHOOD]) if OF_NEIGHBOURHOOD in records else NeighbourRecord()
        self._records = Records(entropy, records, config.records_max, OF_NEIGHBOURHOOD)
        outfit = Outfit(
            config,
            keyring,
            self._members,
            self._beats,
            rng,
            entropy,
            self._post,
            self._deliver,
            self._records,
            kept.relay,
            self._keep_relay,
            now,
        )
        conduct = Paper(outfit) if config.profile == "paper" else Hardened(outfit)
        self._conduct: Conduct = conduct
        self.overlay = conduct.overlay
        guests_max = 2 * config.neighbours_max
        self._links = Links(self._members, self._beats, self._conduct.lost, kept, guests_max=guests_max)
        self.neighbourhood: Neighbourhood = Fixed()
        if config.membership == "scamp":
            self.neighbourhood = Scamp(config, name, neighbours, self._links, rng, now)
        elif config.membership == "certified":
            if name is None or prefix is None:
                raise LocalError("a node among certified members must know its own address, and prefixes of others")
            credentials = Credentials(keyring, name, entropy, COOKIE_PERIODS * period)
            anchors, relay = map(Address, kept.anchors), conduct.first_relay if isinstance(conduct, Hardened) else None
            self.neighbourhood = Certified(
                config, name, neighbours, self._links, credentials, prefix, rng, now, anchors, relay
            )
        self._buckets, self._heard = Buckets(config), Heard(config)
        self._inbox = Inbox(
            unread_max=config.unread_max,
            streams_max=config.unread_max,
            again_us=config.deliver_again_us,
            gap_us=config.late_us,
        )
        self._subscriptions: dict[int, tuple[str, Conjunction]] = {}
        self._subscribed = 0
        self._readiness = SubscriptionReadiness()
        self._notes = 0
        self._met_us = now
        """When a neighbour was there last."""
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.sent = self._beats.sent
        self.load = Load()
        for record, letter in self._records.kept():
            conduct.recall(record, letter, now)

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        """Announce that we publish on this topic; nothing to do if we have."""
        self._conduct.advertise(topic, now)

    def unadvertise(self, topic: str, now: int) -> None:
        self._conduct.unadvertise(topic, now)

    def publish(self, publication: Publication, now: int) -> int:
        """Send to every topic that the publication is labelled with, or to none."""
        topics = topics_of(publication)
        check_publication(publication, {topic: self._conduct.schema(topic, now) for topic in topics})
        return self._records.keep([self._conduct.draft(topic, publication, now) for topic in topics])

    def withdraw(self, record: int, now: int) -> None:
        self._conduct.withdraw(record)
        self._records.drop(record)

    def subscribe(self, interest: Interest, now: int) -> int:
        """From the next heartbeat on; or, where joining waits for an edge, from when a `Waiting` event says."""
        topic, wanted = topic_of(interest)
        check_interest(wanted, topic, self._conduct.schema(topic, now))
        until_us = self._conduct.read(topic, [*self._interests(topic), wanted], now)
        self._subscribed += 1
        self._subscriptions[self._subscribed] = (topic, wanted)
        self._readiness.add(self._subscribed, until_us, now)
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        if number not in self._subscriptions:
            raise LocalError(f"there is no subscription {number}")
        topic, _ = self._subscriptions.pop(number)
        if left := self._interests(topic):
            with suppress(AuthorityError):  # The grant has ended, and nothing is read by it any more.
                self._conduct.read(topic, left, now)
        else:
            self._conduct.unread(topic, now)

    def acknowledge(self, note: bytes, now: int) -> None:
        self._inbox.acknowledge(note)

    def leave(self, now: int) -> None:
        """Tell the neighbours, with the next heartbeat; after it the owner may stop the node."""
        self.neighbourhood.leave(now)

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        try:
            is_beat = data[:1] == b"\0"
            if source not in self._members and not (is_beat and self.neighbourhood.hospitable):
                raise StaleError("not a neighbour")
            if is_beat:
                self._hear(data, source, now)
            else:
                message = decode(data)
                self._buckets.charge(message, source, now)
                self._conduct.receive(message, source, now)
                self._notes += 1
        except RemoteError as error:
            self._refuse(error)
        except Exception as error:
            self.faults.caught(error)

    def handle_timer(self, now: int) -> None:
        if now < self._beats.next_us:
            return
        for neighbour in self._members.silent(now):
            self.peer_lost(neighbour, now)
        if self._members.present:
            self._met_us = now
        self._inbox.beat(now)
        self._conduct.beat(now)
        topics = {number: topic for number, (topic, _) in self._subscriptions.items()}
        self._readiness.beat(topics, self._conduct.ready_us, now)
        self.neighbourhood.beat(now)
        self._frames += self._beats.beat(self._links.take_addressees(), now)

    def next_timer(self) -> int | None:
        return self._beats.next_us

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        if not self._frames:
            return []
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        if self._readiness.news:
            return self._readiness.news.pop(0)
        own = self._links.next_event() or self._records.next_event()
        return own or self._inbox.next_delivery() or self._conduct.next_event()

    def stored(self, record: int, now: int) -> None:
        for letter in self._records.stored(record):
            self._conduct.send(record, letter, now)

    def peer_up(self, peer: Address, now: int) -> None:
        # There is a way. Whether one that we have found keeps us too, its own heartbeat will say.
        if not self.neighbourhood.hospitable and peer in self._members and self._members.arrive(peer):
            self.overlay.greet(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._links.end(peer, now)
        self.neighbourhood.lost(peer, now)

    # --- what an owner may want to know

    def group_size(self) -> int:
        """How many members there are, as far as we have met them or were told, and we."""
        known = self.neighbourhood.sizes()
        return 1 + max(known.get("passive", 0), known.get("neighbours", 0), len(self._members.present))

    def delay(self, now: int) -> Delay | None:
        delay = self._conduct.delay(self.group_size(), now)
        return Delay("this node has no neighbour") if delay is not None and self.alone_us(now) else delay

    def alone_us(self, now: int) -> int:
        """How long this node has had no neighbour; 0 if it has one."""
        return 0 if self._members.present else max(1, now - self._met_us)

    def swaps_played(self) -> int:
        return self.overlay.policy.played()

    # --- checkers

    @property
    def version(self) -> int:
        """Rises whenever a table changes."""
        return self.overlay.version + self._links.version + self._notes

    def knows(self, peer: Address) -> bool:
        """Whether we would listen to this one."""
        return peer in self._members

    def sizes(self) -> dict[str, int]:
        """How much each table holds."""
        return {
            "routes": self.overlay.routes.size(),
            "branches": self.overlay.branches.size(),
            "queued": self._beats.queued(),
            "inbox": self._inbox.size(),
            "pending": len(self._records),
            "policy": self.overlay.policy.size(),
            **self._conduct.sizes(),
            **self.neighbourhood.sizes(),
        }

    # --- inside

    def _hear(self, data: bytes, source: Address, now: int) -> None:
        beat = read_heartbeat(data, self._heartbeat_bytes)
        if source in self._members:
            if self._members.has_heard(source, beat.number):
                # What rides must not act twice: a copy of a subscription would become two at every step of its walk.
                raise StaleError("a heartbeat that was heard already")
            if self._members.is_overtaken(source, beat.number):
                # When it was missed, all that it could say was asked for anew.
                raise StaleError("a heartbeat that a later one overtook")
            if not self._heard.take(source, beat.number):
                raise StaleError("a heartbeat of the past")
            was_present = source in self._members.present
            if not self._members.hear(source, beat.number, now):
                self._buckets.charge(Greet(), source, now)  # As if it had greeted us: all is told again.
                if was_present:
                    self.overlay.forget(source, now)
                self.overlay.greet(source)
        for rider in beat.riders:
            try:
                self._act(decode(rider), source, now)
            except RemoteError as error:
                self._refuse(error)
            except Exception as error:
                self.faults.caught(error)

    def _act(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, _OF_MEMBERSHIP):
            self.neighbourhood.received(message, source, now)
        elif self._members.reaches(source):
            self._buckets.charge(message, source, now)
            with self._backlogs.blaming(source):
                self._conduct.act(message, source, now)
        else:
            raise StaleError("not a neighbour")

    def _post(self, neighbours: Sequence[Address], message: Message) -> None:
        data = encode(message) if neighbours else b""
        self._frames += [Frame(neighbour, data) for neighbour in neighbours]
        self.sent[type(message).__name__] += len(neighbours)
        if isinstance(message, Notify):
            self.load = self.load.plus(len(neighbours), len(data), own=self._conduct.concerns(message))
        self._notes += 1

    def _deliver(self, topic: str, opened: Callable[[], Content], now: int) -> None:
        """A note of one of our topics, for whom it concerns; where it concerns nobody, it only has its place.

        Whatever is wrong with the note ends here. A node that does not read the topic notices nothing of it either, and
        neighbours must not tell the two apart.
        """
        try:
            content = opened()
            readers = [
                number
                for number, (read, interest) in self._subscriptions.items()
                if read == topic and interest.matches(content.publication)
            ]
            note = Note(place_id(topic, content), content.publication)
            self._inbox.put((topic, content.stream), content.number, note, readers, now)
        except RemoteError as error:
            self._refuse(error)
        except Exception as error:
            self.faults.caught(error)

    def _keep_relay(self, relay: RelayRecord) -> None:
        """Where the owner names the neighbours, they are the same in the next life, and so is the choice."""
        if self.neighbourhood.hospitable:
            self._links.record_relay(relay)

    def _interests(self, topic: str) -> list[Conjunction]:
        return [interest for read, interest in self._subscriptions.values() if read == topic]

    def _refuse(self, error: RemoteError) -> None:
        self.refused[type(error).__name__] += 1


_OF_MEMBERSHIP: Final = (Join, ForwardJoin, Keep, Replace, Knock, Answer, Show, Admit)
