"""The subscriber's side: collects contents and keys from the replicas of the edge node until a content can be opened.

A content is accepted if the publisher of a known advertisement signed its manifest and the manifest belongs to its
routing. Blocks are checked with the manifest. So a Byzantine replica can corrupt, repeat or withhold what it should
send, and is recognized by that, while others send the same. It cannot invent anything.

Old content without a key is stored like new content. So a content is charged to the replicas that send a part of it,
each within its own quota (`quota.ReplicaQuota`): what one replica repeats evicts nothing that others send.

Missing blocks are requested from one random replica at a time; a missing key, from all of them. When the application
has acknowledged the publication, all replicas get `Done`: all wait for it, also those that left the delivery to others.
A replica that sends it again gets `Done` again. A publication that matches no subscription any more is done, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from veilcast.authority.keyring import TopicKeys
from veilcast.brokers.config import BrokerClientConfig
from veilcast.brokers.content.coding import ATTEMPTS_MAX, ContentAssembly, ContentBlock, ContentManifest
from veilcast.brokers.content.sealed_publication import open_publication
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.reassembly import KeyName, KeyReassembly
from veilcast.brokers.keys.scheme import ReplicaId
from veilcast.brokers.quota import ReplicaQuota
from veilcast.brokers.routing.known_advertisements import KnownAdvertisement, KnownAdvertisements
from veilcast.core.bounded import remember
from veilcast.core.connector import backoff
from veilcast.core.outbox import PendingPublication
from veilcast.core.timers import Timers
from veilcast.errors import ForgedError, MalformedError, RemoteError, StaleError
from veilcast.faults import FaultError, Faults
from veilcast.machine import Address
from veilcast.wire.brokers import ConfirmContent, ForwardContent, LastShare, RequestBlocks, Routing, WantKey
from veilcast.wire.geometry import RELAYED_MAX
from veilcast.wire.mesh import Message

Deliver: TypeAlias = Callable[[PendingPublication, bytes, int], bool]
"""Deliver a publication with the id of its content; True if it is done at once, False if the application must
acknowledge it."""


class ContentSubscriber:
    """Bounded: of content that cannot be opened yet, `contents_max` from the replicas of one scheme, an equal part from
    each (and the same from another scheme, while the node changes); twice `unread_max` opened contents that are not
    done; and the last `seen_max` done contents."""

    def __init__(
        self,
        config: BrokerClientConfig,
        adverts: KnownAdvertisements,
        openings: KeyReassembly,
        replicas: Callable[[], list[Address]],
        send: Callable[[Address, Message], None],
        say: Callable[[Message], None],
        room: Callable[[], bool],
        deliver: Deliver,
        suspicions: FaultEvidence,
        refuse: Callable[[RemoteError], None],
        faults: Faults,
        rng: Random,
        pull: Callable[[KeyName, TopicKeys], None] | None = None,
    ) -> None:
        """`pull` asks the repository for a key, where keys travel out of band."""
        self._config, self._adverts, self._openings, self._replicas = config, adverts, openings, replicas
        self._send, self._say, self._deliver, self._refuse = send, say, deliver, refuse
        self._suspicions, self._faults, self._rng, self._pull = suspicions, faults, rng, pull
        self._room, self._hardened = room, config.profile == "hardened"
        self._texts: dict[bytes, _PendingContent] = {}
        self._holds = ReplicaQuota(config.contents_max)
        self._opened: dict[bytes, int] = {}
        """Contents that the application has not acknowledged, and the last attempt seen of each."""
        self._done: dict[bytes, int] = {}
        """Done contents, and when all replicas were last told so."""
        self._wants: dict[KeyName, int] = {}
        """Missing keys, and the number of requests for each."""
        self._alarms: Timers[_TimerName] = Timers()

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def opened_count(self) -> int:
        return len(self._opened)

    @property
    def done_count(self) -> int:
        return len(self._done)

    # --- what comes

    def on_carry(self, carry: ForwardContent, source: Address, bearer: ReplicaId, now: int) -> None:
        id_ = carry.routing.content
        if carry.attempt > ATTEMPTS_MAX:
            raise MalformedError("an attempt that nobody makes")
        if id_ in self._done:
            self._done_again(id_, carry.attempt, source, now)
            return
        if id_ in self._opened:
            self._opened[id_] = max(self._opened[id_], carry.attempt)
            return
        text = self._texts.get(id_) or self._take(id_, carry, now)
        for _, other in self._holds.charge((text.advertisement.id, id_), bearer):
            self._drop(other)
        text.attempt = max(text.attempt, carry.attempt)
        if carry.block is None:
            return
        if carry.manifest != text.manifest:
            # Its publisher may have signed two of them; who brings the other has done nothing wrong.
            raise ForgedError("a second manifest of one content")
        waits = text.assembly.is_complete
        try:
            text.assembly.add(ContentBlock(id_, carry.index, carry.block), bearer)
        except ForgedError:
            self._suspicions.record(bearer, FaultReason.BAD_BLOCK)
            raise
        if text.assembly.is_complete and not waits:
            self._alarms.cancel(("missing", id_))
            self._open(id_, now)

    def on_share(self, share: LastShare, bearers: Sequence[ReplicaId], now: int) -> None:
        advert = self._adverts.get(share.advertisement)
        name = self._openings.add(advert, share.share, bearers)
        if name is not None:
            self._alarms.cancel(("want", name))
            self._wants.pop(name, None)
            self.retry_pending(now, name)

    def retry_pending(self, now: int, name: KeyName | None = None) -> None:
        """Try to open complete contents: those of this key, or all."""
        for id_, text in list(self._texts.items()):
            if text.assembly.is_complete and name in (None, text.key_name):
                self._open(id_, now)

    def confirm(self, content: bytes, now: int) -> None:
        """The application has it, or wants it no more."""
        attempt = self._opened.pop(content, 0)
        remember(self._done, content, now, self._config.seen_max)
        self._say(ConfirmContent(content, attempt))

    def end_advertisement(self, advertisement: bytes) -> None:
        """Drop everything under the advertisement."""
        self._openings.end_advertisement(advertisement)
        for id_, text in list(self._texts.items()):
            if text.key_name[0] == advertisement:
                self._drop(id_)

    # --- time

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def handle(self, now: int) -> None:
        # What one of them drops, others of the same moment may be about.
        for due in self._alarms.pop_due(now):
            match due:
                case ("missing", bytes(id_)):
                    if id_ in self._texts:
                        self._ask_again(id_, now)
                case ("hold", bytes(id_)):
                    self._drop(id_)
                case ("want", (advertisement, key)):
                    if (advertisement, key) in self._wants:
                        self._want((advertisement, key), now)

    # --- inside

    def _take(self, id_: bytes, carry: ForwardContent, now: int) -> _PendingContent:
        """A new content: stored if a known publisher signed for it."""
        advert = self._adverts.get(carry.routing.advertisement)
        manifest = ContentManifest.decode(carry.manifest)
        if manifest.id != id_:
            raise ForgedError("a manifest of another content")
        if manifest.size > RELAYED_MAX:
            raise MalformedError("a content that is too long")
        assembly = ContentAssembly(manifest, advert.publisher)
        text = self._texts[id_] = _PendingContent(carry.routing, advert, carry.manifest, assembly)
        self._alarms.set(("missing", id_), now + self._config.missing_us)
        self._alarms.set(("hold", id_), now + self._config.hold_us)
        return text

    def _open(self, id_: bytes, now: int) -> None:
        """Open a complete content, if its key is known and the inbox has room."""
        text = self._texts[id_]
        opening = self._openings.get(text.key_name)
        if opening is None:
            if text.key_name not in self._wants:
                self._wants[text.key_name] = 0
                if self._pull is not None:
                    self._want(text.key_name, now)
                else:
                    self._alarms.set(("want", text.key_name), now + self._config.want_us)
            return
        if not self._room() or len(self._opened) >= 2 * self._config.unread_max:
            return  # The latter, where one publication is sealed again and again by its publisher.
        number = text.routing.number
        try:
            with self._faults.refuse_exceptions():
                key = opening.key(number, text.advertisement.keys.content if self._hardened else None)
                letter = open_publication(
                    key, text.assembly.content(), id_, text.advertisement.topic, padded=self._hardened
                )
        except StaleError as error:
            self._drop(id_)  # Opened before, and forgotten; or so far behind that it must be sealed again.
            self._refuse(error)
            return
        except RemoteError as error:
            self._refuse(error)  # Its publisher sealed what nobody can open: nothing will come of it.
            self._leave(id_, text)
            self.confirm(id_, now)
            return
        opening.forget(number)
        self._leave(id_, text)
        try:
            with self._faults.refuse_exceptions():
                is_settled = self._deliver(letter, id_, now)
        except FaultError as error:
            self._refuse(error)
            is_settled = True
        if is_settled:
            self.confirm(id_, now)

    def _done_again(self, id_: bytes, attempt: int, source: Address, now: int) -> None:
        """Confirm again to the sender, and from time to time to all replicas: the one that lacks the confirmation may
        be another."""
        if now < self._done[id_] + self._config.want_us:
            self._send(source, ConfirmContent(id_, attempt))
        else:
            self._done[id_] = now
            self._say(ConfirmContent(id_, attempt))

    def _leave(self, id_: bytes, text: _PendingContent) -> None:
        self._drop(id_)
        self._opened[id_] = text.attempt

    def _drop(self, id_: bytes) -> None:
        text = self._texts.pop(id_, None)
        self._alarms.cancel(("missing", id_))
        self._alarms.cancel(("hold", id_))
        if text is None:
            return
        self._holds.release((text.advertisement.id, id_))
        if all(other.key_name != text.key_name for other in self._texts.values()):
            self._wants.pop(text.key_name, None)
            self._alarms.cancel(("want", text.key_name))

    def _ask_again(self, id_: bytes, now: int) -> None:
        text, replicas = self._texts[id_], self._replicas()
        self._alarms.set(("missing", id_), now + self._config.missing_us)
        if replicas:
            self._send(self._rng.choice(replicas), RequestBlocks(id_, tuple(text.assembly.missing())))

    def _want(self, name: KeyName, now: int) -> None:
        self._wants[name] += 1
        self._alarms.set(("want", name), now + backoff(self._rng, self._config.want_us, self._wants[name]))
        if self._pull is not None:
            self._pull(name, self._adverts.get(name[0]).keys)
        else:
            self._say(WantKey(*name))


@dataclass(slots=True)
class _PendingContent:
    routing: Routing
    advertisement: KnownAdvertisement
    manifest: bytes
    assembly: ContentAssembly
    attempt: int = 0

    @property
    def key_name(self) -> KeyName:
        return self.routing.advertisement, self.routing.key


_TimerName: TypeAlias = tuple[Literal["missing", "hold"], bytes] | tuple[Literal["want"], KeyName]
