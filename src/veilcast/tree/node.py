"""The node: every member's machine, which forwards for all, and publishes and subscribes for its owner.

All that others send comes on streams whose other end is hidden; what is asked for on ours is answered there. A node
keeps nothing but its publications (`authority.letters`) and its guards: what it was told to forward it is told again
after it has started anew, and what it subscribes to is planted again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from random import Random

from veilcast.authority.content import Content
from veilcast.authority.keyring import Keyring
from veilcast.authority.letters import Letter, Records, letter_id
from veilcast.authority.revoked import Revoked
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError, VeilcastError
from veilcast.faults import Faults
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Interest, Listen, Note, Publication
from veilcast.parts.alarms import earliest
from veilcast.parts.inbox import Inbox
from veilcast.parts.ways import way
from veilcast.parts.wishes import Wish
from veilcast.topics import check_interest, check_publication, topic_of, topics_of
from veilcast.tree.config import TreeConfig
from veilcast.tree.guards import GUARDS
from veilcast.tree.hardened import Hardened
from veilcast.tree.hops import Hops
from veilcast.tree.limits import Limits
from veilcast.tree.membership import Membership
from veilcast.tree.paper import Paper
from veilcast.tree.profile import Outfit, Part
from veilcast.tree.publishing import Publishing
from veilcast.tree.purposes import DIRECTORY
from veilcast.tree.streams import Streams
from veilcast.wire import decode, encode
from veilcast.wire.messages import Message
from veilcast.wire.tree import Carry, Code, Enrolled, Head, Heard, Install, Offer, Page, Refused


class TreeNode:
    """A `LiveMember` (node.modes), with the notices of `Peers` and `Durable`. It asks for `Listen("tree")`.

    `directory` is where the listing is, `address` where this node can be reached by others. `records` is what earlier
    lives had stored and did not settle: publications, and who its guards are. A listing of a directory that is among
    the `revoked` is not taken. `refused` counts what others sent in vain, by kind of error; `excess` what came to us
    without our wanting it.
    """

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        directory: Address,
        address: Address,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        revoked: Revoked | None = None,
    ) -> None:
        kept = records or {}
        self.faults = Faults()
        self.refused: Counter[str] = Counter()
        self.excess = 0
        self.version = 0
        self._frames: list[Frame] = []
        self._events: deque[Event] = deque([Listen("tree")])
        self._limits = Limits(config)
        self._streams = Streams(config, rng, self._post)
        self._directory = way(directory, DIRECTORY)
        self._membership = Membership(
            config, keyring, directory, address, self._streams, self._listed, rng, entropy, now, revoked
        )
        home, where = self._membership.home, self._membership.where
        self._hops = Hops(config, self._streams, home, where, lambda carry, now: self._part.carry(carry, now), rng)
        outfit = Outfit(
            config,
            keyring,
            home,
            self._streams,
            self._hops,
            where,
            self._deliver,
            self._refuse,
            rng,
            entropy,
            now,
            kept,
        )
        self._part: Part = Hardened(outfit) if config.profile == "hardened" else Paper(outfit)
        self._inbox = Inbox(
            unread_max=config.unread_max, seen_max=config.delivered_max, again_us=config.deliver_again_us
        )
        self._records = Records(entropy, kept, config.records_max, GUARDS)
        self._publishing = Publishing(
            config, home, self._streams, self._part, lambda: self._membership.listing, self._records, rng, entropy
        )
        self._timed = (self._streams, self._membership, self._hops, self._part, self._inbox, self._publishing)
        self._subscribed = 0
        for record, letter in self._records.kept():
            self._publishing.send(record, letter, now)

    # --- the owner

    def publish(self, publication: Publication, now: int) -> int:
        """Send on every topic that the publication is labelled with, or on none."""
        letters, topics = [], topics_of(publication)
        check_publication(publication, {topic: self._part.schema(topic, now) for topic in topics})
        for topic in topics:
            letter = self._records.draft(topic, None, publication)
            self._part.offer_of(letter, now)  # Raises for whatever could never be sent.
            letters.append(letter)
        self.version += 1
        return self._records.keep(letters)

    def withdraw(self, record: int, now: int) -> None:
        self._publishing.withdraw(record)
        self._records.drop(record)
        self.version += 1

    def subscribe(self, interest: Interest, now: int) -> int:
        """A `Waiting` event says from when on it stands."""
        topic, wanted = topic_of(interest)
        check_interest(wanted, topic, self._part.schema(topic, now))
        self._part.add(self._subscribed + 1, topic, wanted, now)
        self._subscribed += 1
        self.version += 1
        return self._subscribed

    def unsubscribe(self, number: int, now: int) -> None:
        self._part.remove(number, now)
        self._inbox.forget(number)
        self.version += 1

    def acknowledge(self, note: bytes, now: int) -> None:
        self._inbox.acknowledge(note)
        self.version += 1

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        try:
            if source in self._streams:
                self._hear(decode(data), source, now)
            elif self._limits.allows(source, now):
                self._answer(decode(data), source, now)
            else:
                raise ExcessError("more than one stream is given")
        except Exception as error:
            self._refuse(error)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        for part in self._timed:
            part.handle(now)

    def next_timer(self) -> int | None:
        return earliest(*(part.next_us() for part in self._timed))

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        frames, self._frames = self._frames[:limit], self._frames[limit:]
        return frames

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        for part in (self._streams, self._part, self._publishing, self._records):
            if (event := part.next_event()) is not None:
                return event
        return self._inbox.next_delivery()

    def stored(self, record: int, now: int) -> None:
        self.version += 1
        for letter in self._records.stored(record):
            self._publishing.send(record, letter, now)

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        if "@" in peer:  # Whoever calls us is heard when it says something.
            self._streams.peer_up(peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._streams.peer_lost(peer, now)
        self._limits.gone(peer)

    # --- what an owner may want to know

    def group_size(self) -> int:
        """All who are listed: among so many a publisher or subscriber hides."""
        return max(1, len(self._membership.listing))

    def swaps_played(self) -> int:
        return 0

    def unreached(self) -> Address | None:
        """The way to the directory, if it was called in vain. Nodes come and go, and others take their places."""
        in_vain = self._streams.in_vain(self._directory) or self._membership.is_unanswered
        return self._directory if in_vain else None

    def delay(self, now: int) -> Delay | None:
        return self._publishing.delay(now)

    @property
    def refusal(self) -> Code | None:
        """Why the directory does not list this node; None if it does, or has not answered yet."""
        return self._membership.refusal

    @property
    def name(self) -> bytes:
        """What this node is called in the listing."""
        return self._membership.home

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """How much each table holds."""
        return {
            "streams": len(self._streams),
            "callers": len(self._limits),
            "listed": len(self._membership.listing),
            "held": len(self._hops),
            "held each": self._hops.most,
            "inbox": len(self._inbox),
            "delivered": self._inbox.remembered,
            "pending": len(self._records),
            **self._part.sizes(),
        }

    @property
    def dropped(self) -> int:
        """What should have been handed on, and could not be in time, or for want of room."""
        return self._hops.dropped

    # --- inside

    def _answer(self, message: Message, source: Address, now: int) -> None:
        try:
            with self.faults.treat():
                match message:
                    case Install():
                        if not self._limits.allows_install(now):
                            raise ExcessError("more instructions than a node takes")
                        self._part.install(message, now)
                    case Offer():
                        self._limits.charge(source, self._part.offer(message, now), now)
                    case Carry():
                        self._part.carry(message, now)
                    case _:
                        raise MalformedError("not for a node")
            self._post(source, Heard(message.number))
        except ForgedError:
            raise  # Whoever is no member hears nothing.
        except RemoteError as error:
            if isinstance(message, Install | Offer | Carry):
                self._post(source, Refused(message.number, _code(message, error)))
            raise

    def _hear(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, Heard | Refused | Enrolled | Head | Page):
            raise MalformedError("not an answer")
        self._streams.hear(source, message, now)

    def _deliver(self, topic: str, content: Content, wishes: Iterable[Wish], now: int) -> None:
        """Never raises: to the last carrier of a note it is as if the note went on."""
        publication = content.publication
        try:
            readers = [number for wish in wishes if wish.interest.matches(publication) for number in wish.readers]
            note = Note(letter_id(Letter(topic, content)), publication)
        except Exception as error:
            self._refuse(error)
            return
        self.excess += not readers
        self._inbox.put(readers, note, None, now)

    def _listed(self, now: int) -> None:
        self._part.listed(self._membership.listing, now)

    def _refuse(self, error: Exception) -> None:
        if not isinstance(error, VeilcastError):
            self.faults.caught(error)
        self.refused[type(error).__name__] += 1

    def _post(self, peer: Address, message: Message) -> None:
        self._frames.append(Frame(peer, encode(message)))


def _code(message: Message, error: RemoteError) -> Code:
    if isinstance(error, ExcessError):
        return Code.FULL
    return Code.UNKNOWN if isinstance(error, StaleError) and isinstance(message, Carry) else Code.MALFORMED
