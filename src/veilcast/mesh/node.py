"""The mesh node: one machine for publisher, subscriber, forwarder and cover, which look alike from outside.

Frames are of two kinds (P0 4.1): heartbeats, all of one size, in which everything but notes rides; and notes, which
travel at once. A heartbeat begins with a zero byte, a note never does. What rides is the business of `overlay`; here
are the owner's calls, the rhythm, and the notes. There is one timer, the heartbeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring, TopicKeys
from veilcast.errors import LocalError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Entropy, Event, Frame, Interest, Note, Publication
from veilcast.mesh.adverts import make_advert
from veilcast.mesh.config import Config
from veilcast.mesh.content import check_notify, make_notify, note_id, open_notify
from veilcast.mesh.duplicates import Duplicates
from veilcast.mesh.heartbeat import NUMBERS, Heartbeats, read_heartbeat
from veilcast.mesh.inbox import Inbox
from veilcast.mesh.links import Links
from veilcast.mesh.membership import Membership
from veilcast.mesh.neighbourhood import Fixed, Neighbourhood
from veilcast.mesh.overlay import Overlay
from veilcast.mesh.publishing import Publishing
from veilcast.mesh.scamp import Scamp
from veilcast.topics import TOPIC, Conjunction, Equal
from veilcast.wire import decode, encode
from veilcast.wire.messages import ForwardJoin, Join, Keep, Message, Notify, Replace


class MeshNode:
    """A `Member`, with the notices of `Peers`.

    `neighbours` are those of a fixed neighbourhood, or the contacts by which a node called `name` finds its own.
    `sent` counts what we sent, by kind of message; `refused` what others sent in vain, by kind of error.
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
    ) -> None:
        if len(neighbours) > config.neighbours_max:
            raise LocalError(f"{len(neighbours)} neighbours are more than the {config.neighbours_max} allowed")
        period = config.heartbeat_us
        self._keyring, self._entropy, self._heartbeat_bytes = keyring, entropy, config.heartbeat_bytes
        fixed = neighbours if config.membership == "fixed" else ()
        self._members = Membership(fixed, period_us=period, silent_periods=config.silent_periods, now=now)
        # Each node beats at a phase of its own, or all would be heard at once.
        self._beats = Heartbeats(
            period_us=period,
            size=config.heartbeat_bytes,
            queue_max=config.queue_max,
            first_us=now + rng.randrange(period),
            first_number=rng.randrange(NUMBERS),
        )
        self.overlay = Overlay(config, keyring.root, self._members, self._beats, rng)
        self._links = Links(self._members, self._beats, self._forget, guests_max=config.neighbours_max)
        self.neighbourhood: Neighbourhood = Fixed()
        if config.membership == "scamp":
            self.neighbourhood = Scamp(config, name, neighbours, self._links, rng, now)
        self._publishing = Publishing(config.again_periods * period, entropy)
        self._seen = Duplicates(config.seen_max)
        self._inbox = Inbox(
            unread_max=config.unread_max,
            streams_max=config.unread_max,
            again_us=config.deliver_again_us,
            gap_us=config.gap_us,
        )
        self._subscriptions: dict[int, tuple[bytes, Interest]] = {}
        self._subscribed = 0
        self._reading: dict[bytes, TopicKeys] = {}
        self._frames: list[Frame] = []
        self._notes = 0
        self.refused: Counter[str] = Counter()
        self.sent = self._beats.sent

    # --- the owner

    def advertise(self, topic: str, now: int) -> None:
        """Announce that we publish on this topic; nothing to do if we have."""
        keys = self._keys(topic, now)
        if not self.overlay.originates(keys.token):
            self._start_chain(keys, now)

    def unadvertise(self, topic: str, now: int) -> None:
        token = self._keys(topic, now).token
        self._publishing.stopped(token)
        self.overlay.withdraw(token, now)

    def publish(self, publication: Publication, now: int) -> None:
        """Send to every topic that the publication is labelled with."""
        topics = [str(value) for attribute, value in publication.pairs if attribute == TOPIC]
        if not topics:
            raise LocalError("a publication on the mesh names its topic: it needs a label")
        for topic in dict.fromkeys(topics):
            self.advertise(topic, now)
            keys = self._keys(topic, now)
            content = self._publishing.content(keys.token, publication)
            self._pass_on(make_notify(keys, content, self._entropy), None, now)

    def subscribe(self, interest: Interest, now: int) -> int:
        keys = self._keys(_topic_of(interest), now)
        self._subscribed += 1
        self._subscriptions[self._subscribed] = (keys.token, interest)
        self._reading[keys.token] = keys
        self.overlay.read(keys.token, now)
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        if number not in self._subscriptions:
            raise LocalError(f"there is no subscription {number}")
        token, _ = self._subscriptions.pop(number)
        if all(token != other for other, _ in self._subscriptions.values()):
            del self._reading[token]
            self.overlay.unread(token, now)

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
                if not isinstance(message, Notify):
                    raise MalformedError("only notes travel outside heartbeats")
                self._pass_on(message, source, now)
        except RemoteError as error:
            self._refuse(error)

    def handle_timer(self, now: int) -> None:
        if now < self._beats.next_us:
            return
        for neighbour in self._members.silent(now):
            self.peer_lost(neighbour, now)
        self._publishing.want(self.overlay.take_lost())
        for keys in self._publishing.due(now):
            self._start_chain(keys, now)
        self._inbox.beat(now)
        self.overlay.policy.beat(now)
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
        return self._inbox.next_delivery()

    def peer_up(self, peer: Address, now: int) -> None:
        if peer in self._members and self._members.arrive(peer):
            self.overlay.greet(peer)

    def peer_lost(self, peer: Address, now: int) -> None:
        self._links.end(peer, now)
        self.neighbourhood.lost(peer, now)

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
            "seen": len(self._seen),
            "inbox": self._inbox.size(),
            "policy": self.overlay.policy.size(),
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
            was_present = source in self._members.present
            if not self._members.hear(source, beat.number, now):
                if was_present:
                    self.overlay.forget(source, now)
                self.overlay.greet(source)
        for rider in beat.riders:
            try:
                self._act(decode(rider), source, now)
            except RemoteError as error:
                self._refuse(error)

    def _act(self, message: Message, source: Address, now: int) -> None:
        if isinstance(message, _OF_MEMBERSHIP):
            self.neighbourhood.received(message, source, now)
        elif self._members.reaches(source):
            self.overlay.act(message, source, epoch_of(now, self._keyring.epoch_us), now)
        else:
            raise StaleError("not a neighbour")

    def _forget(self, neighbour: Address, now: int) -> None:
        self.overlay.forget(neighbour, now)
        self._publishing.want_all()

    def _pass_on(self, notify: Notify, source: Address | None, now: int) -> None:
        """Flood a note inside its mesh (P1 2.2), and read it if we can. Only what is genuine counts as seen."""
        name, token = note_id(notify), notify.token
        if name in self._seen:
            return
        if not self.overlay.takes_part(token):
            raise StaleError("a note of a mesh that we are not in")
        check_notify(notify, self.overlay.publishers(token))
        self._seen.add(name)
        self._notes += 1
        data = encode(notify)
        targets = [neighbour for neighbour in self.overlay.adjacent(token) if neighbour != source]
        self._frames += [Frame(neighbour, data) for neighbour in targets]
        self.sent["Notify"] += len(targets)
        if token in self._reading:
            self._read(notify, name, now)

    def _read(self, notify: Notify, name: bytes, now: int) -> None:
        content = open_notify(self._reading[notify.token], notify)
        readers = [
            number
            for number, (token, interest) in self._subscriptions.items()
            if token == notify.token and interest.matches(content.publication)
        ]
        note = Note(name, content.publication)
        self._inbox.put((notify.token, content.stream), content.number, note, readers, now)

    def _start_chain(self, keys: TopicKeys, now: int) -> None:
        self.overlay.originate(make_advert(keys, self._entropy), now)
        self._publishing.started(keys, now)

    def _refuse(self, error: RemoteError) -> None:
        self.refused[type(error).__name__] += 1

    def _keys(self, topic: str, now: int) -> TopicKeys:
        keys = self._keyring.at(epoch_of(now, self._keyring.epoch_us)).topic(topic)
        if keys.record.profile != "paper":
            raise LocalError(f"{topic!r} is a topic of the {keys.record.profile} profile; this mesh speaks the paper's")
        return keys


def _topic_of(interest: Interest) -> str:
    """The label that routes a subscription; its other constraints are the reader's own business."""
    if isinstance(interest, Conjunction):
        for constraint in interest.constraints:
            if isinstance(constraint, Equal) and constraint.attribute == TOPIC:
                return constraint.text
    raise LocalError("a subscription on the mesh names its topic: it needs a label")


_OF_MEMBERSHIP: Final = (Join, ForwardJoin, Keep, Replace)
