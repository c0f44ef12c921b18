"""The node: every member's machine, which forwards for all, and publishes and subscribes for its owner.

All messages from others arrive on streams whose other end is hidden; answers go back on the same stream. A node stores
only its publications (`core.outbox`) and its guards. After a restart, subscribers send it their instructions again, and
it installs the trees of its own subscriptions again.

A node limits the rate of messages on one stream, and of instructions on all streams together, before it does any work.
A sender is hidden, and can open another stream when one is exhausted. So messages that fill tables also count for all
streams together, and a flood of them shuts out honest senders for as long as it lasts: that is the price of anonymous
senders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.core.inbox import Inbox
from veilcast.core.member import OutboxMember, first_event
from veilcast.core.outbox import Outbox, PendingPublication, publication_id
from veilcast.core.publication import NumberedPublication
from veilcast.core.rate_limit import PeerRateLimits, Rate, TokenBucket
from veilcast.core.subscriptions import SharedInterest
from veilcast.core.timers import TimerTable
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.machine import Address, Delay, Entropy, Event, Frame, Listen, Note
from veilcast.topics import Conjunction, Schema
from veilcast.tree.config import TreeConfig
from veilcast.tree.directory_client import DirectoryClient
from veilcast.tree.guards import GUARDS_RECORD
from veilcast.tree.hardened import HardenedTreeProfile
from veilcast.tree.hop_queue import HopQueue
from veilcast.tree.paper import PaperTreeProfile
from veilcast.tree.profile import TreeProfile, TreeProfileContext
from veilcast.tree.publisher import TreePublisher
from veilcast.tree.streams import RequestStreams
from veilcast.wire import decode, encode
from veilcast.wire.base import Message
from veilcast.wire.tree import (
    ForwardPublication,
    Install,
    ListingHead,
    ListingPage,
    NodeEnrolled,
    Offer,
    RefusalCode,
    RequestAck,
    RequestRefused,
)


class TreeNode(OutboxMember):
    """A `NodeMember` (`node.modes`), with the notices of `Peers` and `Durable`. It asks for `Listen("tree")`.

    Others reach this node at `address`. `records` holds the records that earlier runs stored and did not settle:
    publications, and the guards. The node rejects listings of a directory in `revoked`. `refused` counts rejected input
    by error class; `excess` counts notifications that no subscription had asked for.
    """

    def __init__(
        self,
        config: TreeConfig,
        keyring: Keyring,
        directories: Sequence[Address],
        address: Address,
        rng: Random,
        entropy: Entropy,
        now: int,
        records: Mapping[int, bytes] | None = None,
        revoked: RevokedKeys | None = None,
    ) -> None:
        super().__init__()
        stored_records = records or {}
        self._events: deque[Event] = deque([Listen("tree")])
        self._limits: PeerRateLimits[Address] = PeerRateLimits(
            config.callers_max, {_MESSAGE: Rate(config.messages_every_us, config.messages_burst)}
        )
        self._installs = TokenBucket(config.installs_every_us, config.installs_burst)
        self._streams = RequestStreams(config, rng, self._post)
        self._directory_client = DirectoryClient(
            config, keyring, directories, address, self._streams, self._listing_changed, rng, entropy, now, revoked
        )
        home, address_of = self._directory_client.home, self._directory_client.address_of
        self._hop_queue = HopQueue(
            config, self._streams, home, address_of, lambda carry, now: self._profile.forward(carry, now), rng
        )
        context = TreeProfileContext(
            config,
            keyring,
            home,
            self._streams,
            self._hop_queue,
            address_of,
            self._deliver,
            self._refuse,
            rng,
            entropy,
            now,
            stored_records,
        )
        self._profile: TreeProfile = (
            HardenedTreeProfile(context) if config.profile == "hardened" else PaperTreeProfile(context)
        )
        self._inbox = Inbox(
            unread_max=config.unread_max, seen_max=config.delivered_max, again_us=config.deliver_again_us
        )
        self._outbox = Outbox(entropy, stored_records, config.records_max, GUARDS_RECORD)
        self._publisher = TreePublisher(
            config,
            home,
            self._streams,
            self._profile,
            lambda: self._directory_client.listing,
            self._outbox,
            rng,
            entropy,
        )
        self._timers = TimerTable(
            {
                "requests, and streams to open or close": self._streams,
                "enrolment, and download of the listing": self._directory_client,
                "messages to forward again": self._hop_queue,
                "trees, probes and expiries of the profile": self._profile,
                "deliveries to repeat": self._inbox,
                "copies to send, and overdue publications": self._publisher,
            }
        )
        self._send_unsettled(now)

    # --- the owner

    def withdraw(self, record: int, now: int) -> None:
        self._publisher.withdraw(record)
        self._outbox.drop(record)
        self.version += 1

    def unsubscribe(self, number: int, now: int) -> None:
        self._profile.remove(number, now)
        self._inbox.end_subscription(number)
        self.version += 1

    def acknowledge(self, note: bytes, now: int) -> None:
        self._inbox.acknowledge(note)
        self.version += 1

    # --- the driver

    def receive(self, data: bytes, source: Address, now: int) -> None:
        self.version += 1
        try:
            if source in self._streams:
                self._handle_answer(decode(data), source, now)
            elif self._limits.take(source, _MESSAGE, now):
                self._handle_request(decode(data), source, now)
            else:
                raise ExcessError("the stream exceeds its rate limit")
        except Exception as error:
            self._refuse(error)

    def handle_timer(self, now: int) -> None:
        self.version += 1
        self._timers.handle(now)

    def next_timer(self) -> int | None:
        return self._timers.next_us()

    def next_event(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        parts = (self._streams, self._profile, self._publisher, self._outbox)
        return first_event(*(part.next_event for part in parts), self._inbox.next_delivery)

    def peer_up(self, peer: Address, now: int) -> None:
        self.version += 1
        if "@" in peer:  # Inbound streams count from their first message.
            self._streams.peer_up(peer, now)

    def peer_lost(self, peer: Address, now: int) -> None:
        self.version += 1
        self._streams.peer_lost(peer, now)
        self._limits.forget(peer)

    # --- what an owner may want to know

    def group_size(self) -> int:
        """Number of listed nodes: the anonymity set of a publisher or subscriber."""
        return max(1, len(self._directory_client.listing))

    def silent_directories(self) -> list[Address]:
        """The directories that do not answer. Nodes come and go, and others take their places."""
        return self._directory_client.silent_directories()

    def delay(self, now: int) -> Delay | None:
        return self._publisher.delay(now)

    @property
    def refusal(self) -> RefusalCode | None:
        """Why too few directories list this node; None if enough do, or have not answered yet."""
        return self._directory_client.refusal

    @property
    def name(self) -> bytes:
        """The name of this node in the listing."""
        return self._directory_client.home

    # --- checkers

    def sizes(self) -> dict[str, int]:
        """Entries in each table."""
        return {
            "streams": len(self._streams),
            "callers": len(self._limits),
            "listed": len(self._directory_client.listing),
            "held": len(self._hop_queue),
            "held each": self._hop_queue.longest_queue,
            "inbox": len(self._inbox),
            "delivered": self._inbox.seen_count,
            "pending": len(self._outbox),
            **self._profile.sizes(),
        }

    @property
    def dropped(self) -> int:
        """Messages that could not be forwarded in time, or for which the queue was full."""
        return self._hop_queue.dropped

    # --- inside

    def _schema_of(self, topic: str, now: int) -> Schema:
        return self._profile.schema(topic, now)

    def _check_sendable(self, pending: PendingPublication, now: int) -> None:
        self._profile.build_offer(pending, now)

    def _send(self, record: int, pending: PendingPublication, now: int) -> None:
        self._publisher.add(record, pending, now)

    def _add_subscription(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        self._profile.add(number, topic, interest, now)

    def _handle_request(self, message: Message, source: Address, now: int) -> None:
        try:
            with self.faults.refuse_exceptions():
                match message:
                    case Install():
                        if not self._installs.take(now):
                            raise ExcessError("the node exceeds its rate of instructions")
                        self._profile.install(message, now)
                    case Offer():
                        # A stream may go into debt for its copies: its messages are then refused until it is paid off.
                        self._limits.charge(source, _MESSAGE, now, self._profile.offer(message, now))
                    case ForwardPublication():
                        self._profile.forward(message, now)
                    case _:
                        raise MalformedError("not for a node")
            self._post(source, RequestAck(message.number))
        except ForgedError:
            raise  # An outsider gets no answer.
        except RemoteError as error:
            if isinstance(message, Install | Offer | ForwardPublication):
                self._post(source, RequestRefused(message.number, _refusal_code(message, error)))
            raise

    def _handle_answer(self, message: Message, source: Address, now: int) -> None:
        if not isinstance(message, RequestAck | RequestRefused | NodeEnrolled | ListingHead | ListingPage):
            raise MalformedError("not an answer")
        self._streams.handle_answer(source, message, now)

    def _deliver(self, topic: str, content: NumberedPublication, interests: Iterable[SharedInterest], now: int) -> None:
        """Never raises: the last forwarder of a notification sees this node as one more hop."""
        publication = content.publication
        try:
            numbers = [
                number for shared in interests if shared.interest.matches(publication) for number in shared.numbers
            ]
            note = Note(publication_id(PendingPublication(topic, content)), publication)
        except Exception as error:
            self._refuse(error)
            return
        self.excess += not numbers
        self._inbox.put(numbers, note, None, now)

    def _listing_changed(self, now: int) -> None:
        self._profile.update_listing(self._directory_client.listing, now)

    def _post(self, peer: Address, message: Message) -> None:
        self._frames.append(Frame(peer, encode(message)))


def _refusal_code(message: Message, error: RemoteError) -> RefusalCode:
    if isinstance(error, ExcessError):
        return RefusalCode.FULL
    return (
        RefusalCode.UNKNOWN
        if isinstance(error, StaleError) and isinstance(message, ForwardPublication)
        else RefusalCode.MALFORMED
    )


_MESSAGE: Final = "message"
