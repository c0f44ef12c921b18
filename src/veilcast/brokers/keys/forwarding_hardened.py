"""Keys through one broker by redistribution (`hardened`): receive, combine, deal, erase.

Each key and attempt passes once. It comes from the publisher, or from the replicas of the previous node
(`transfer_receiver`), and goes to every next hop with subscribers of the advertisement (`transfer_sender`). A repeated
or late message finds the transfer finished, or was dealt too long ago to know, and changes nothing.

A Byzantine holder may deal long before the others have anything to deal. So a transfer that has not begun is kept as
long as its key is fresh (`quota.UnstartedTransfers`) and is then dropped without a trace, because this broker has made
no statement on it. Statements of others wait until it has begun.

A replica that was killed and restarted has lost its state. It must not say that it lacks a share that it had: a holder
would show an honest replica's share, and the replica would have made two statements. So during the quiet period every
transfer that is seen for the first time is ignored for good.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from veilcast.brokers.config import BrokerConfig
from veilcast.brokers.evidence import FaultEvidence, FaultReason
from veilcast.brokers.keys.agreement import AgreementMessage
from veilcast.brokers.keys.bulk import check_key_id
from veilcast.brokers.keys.paper_split import KeyAttempt
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, PublisherShare, accept_publisher_share
from veilcast.brokers.keys.scheme import ReplicaId, ReplicaKeys, Scheme
from veilcast.brokers.keys.transfer_receiver import TransferReceiver, quiet_period_us
from veilcast.brokers.keys.transfer_sender import ExcuseQuota, TransferSender
from veilcast.brokers.keys.unresponsive import UnresponsiveReplicas
from veilcast.brokers.quota import IgnoredItems, PendingMessages, PublisherQuota, StoredDealing, UnstartedTransfers
from veilcast.brokers.routing.view import Outgoing, Peer, RoutingView, all_replicas, is_from
from veilcast.core.timers import Timers
from veilcast.crypto.sign import SigningKey
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.machine import Entropy
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FirstShare, NextShare, ShareReceived

TransferId: TypeAlias = tuple[KeyAttempt, Scheme | None, Scheme]
"""A key and attempt, from this node (or its publisher: None) to the own node."""


class HardenedKeyForwarder:
    """Bounded by `keys_max` and `done_max`, a quarter of each per publisher. Early messages are bounded per sender;
    unstarted transfers, and those ignored in the quiet period, by `done_max` per holder."""

    def __init__(
        self,
        config: BrokerConfig,
        routes: RoutingView,
        roster: ReplicaKeys,
        signing: SigningKey,
        entropy: Entropy,
        suspicions: FaultEvidence,
    ) -> None:
        self._config, self._routes, self._roster = config, routes, roster
        self._signing, self._entropy, self._suspicions = signing, entropy, suspicions
        # For longer than a key is fresh, by as much as clocks may differ.
        self._room: PublisherQuota[TransferId] = PublisherQuota(
            config.keys_max, config.done_max, _MEMORY_FACTOR * config.hold_us
        )
        # What a holder brings while we are quiet: nobody honest brings more, for it remembers no more for so long.
        self._shunned: IgnoredItems[TransferId] = IgnoredItems(config.done_max, _MEMORY_FACTOR * config.hold_us)
        self._hops: dict[TransferId, TransferReceiver] = {}
        self._handing: dict[TransferId, TransferSender] = {}
        self._by_origin: dict[KeyAttempt, dict[TransferId, None]] = {}
        self._dealt: dict[tuple[KeyAttempt, Scheme], int] = {}
        """Keys dealt under each own scheme, and until when that is remembered."""
        self._absences = UnresponsiveReplicas(UNRESPONSIVE_MAX)
        self._strikes = ExcuseQuota(_EXCUSE_MEMORY_FACTOR * config.hold_us)
        self._alarms: Timers[TransferId] = Timers()
        self._opened: UnstartedTransfers[TransferId] = UnstartedTransfers(config.done_max, config.keys_max)
        self._until: dict[TransferId, int] = {}
        """When an unstarted transfer is dropped, and when a started one is over."""
        # For longer than a holder would show what it has dealt: who loses what came early may then say so.
        tolerated = max(place.scheme.max_faulty for place in routes.own_replicas())
        keep_us = quiet_period_us(config.bound_us, tolerated)
        # Nobody honest speaks of more than `keys_max` hops in that time. Who lost a word would think it was silent.
        most = (_MESSAGES_PER_TRANSFER + 2 * tolerated) * config.keys_max
        self._words: PendingMessages[TransferId, ReplicaId, tuple[AgreementWord, AgreementMessage]] = PendingMessages(
            count=most, size=most * _MESSAGE_BYTES, senders=512, keep_us=keep_us
        )
        # Nobody honest has more than `keys_max` out that we have not taken, each for nearly as long as it is kept here:
        # what has to go for others is a liar's, and need not be remembered.
        most = 2 * config.keys_max
        self._portions: PendingMessages[bytes, ReplicaId, tuple[DealtShare, bytes]] = PendingMessages(
            count=most, size=most * _DEALT_SHARE_MAX, senders=512, keep_us=keep_us
        )

    def sizes(self) -> dict[str, int]:
        return {
            "passages": len(self._room),
            "passages past": self._room.past_count + len(self._shunned),
            "hops": len(self._hops),
            "handed": sum(map(len, self._handing.values())),
            "keys dealt": len(self._dealt),
            "early": len(self._words) + len(self._portions) + self._opened.inactive_count,
            "absences": len(self._absences),
        }

    # --- shares -------------------------------------------------------------------------------------------------------

    def on_first_share(self, message: FirstShare, source: Peer, now: int, *, quiet: bool) -> list[Outgoing]:
        """A share from the publisher."""
        publisher = self._publisher(message.advertisement, source)
        first = PublisherShare.decode(message.share)
        place = self._our_place(first.publisher_header.scheme)
        passage: TransferId = (first.publisher_header.key_attempt, None, place.scheme)
        check_key_id(first.publisher_header.key_attempt.key, publisher)
        first.publisher_header.check_fresh(now, self._config.hold_us)
        holding = accept_publisher_share(first, place, publisher)
        self._enter(passage, publisher, now, quiet=quiet)
        return self._hold(passage, holding, message.advertisement, now)

    def on_next_share(self, message: NextShare, source: ReplicaId, now: int, *, quiet: bool) -> list[Outgoing]:
        """A share from a holder of the previous node: an own one, or a disputed one."""
        try:
            portion = DealtShare.decode(message.share)
        except MalformedError:
            self._suspicions.record(source, FaultReason.BAD_DEALT_SHARE)
            raise
        return self._portion(portion, message.advertisement, source, now, quiet=quiet)

    def on_advertisement(self, advertisement: bytes, now: int, *, quiet: bool) -> list[Outgoing]:
        """Handle the shares that came before the advertisement."""
        sent: list[Outgoing] = []
        for source, (portion, label) in self._portions.take(advertisement):
            try:
                sent += self._portion(portion, label, source, now, quiet=quiet)
            except RemoteError:
                continue
        return sent

    def _portion(
        self, portion: DealtShare, advertisement: bytes, source: ReplicaId, now: int, *, quiet: bool
    ) -> list[Outgoing]:
        header = portion.holder_header
        place = self._our_place(header.new_scheme)
        holder = ReplicaId(header.old_scheme, header.holder)
        passage: TransferId = (header.key_attempt, header.old_scheme, place.scheme)
        if self._roster.key_of(holder) != self._roster.key_of(source):
            raise ForgedError("a portion of another holder's")
        if self._is_over(passage, now) or (passage in self._handing and passage not in self._hops):
            raise StaleError("this is over here")
        if quiet:
            self._shunned.add(passage, self._roster.key_of(source), now)
            raise StaleError("we may have seen this before, in an earlier life")
        try:
            publisher = self._publisher(advertisement, source)
        except StaleError:
            size = (
                len(portion.publisher_header.points) + len(header.old_points) + len(header.new_points) + _SHARE_OVERHEAD
            )
            self._portions.put(advertisement, source, (portion, advertisement), size, now)
            return []
        known = self._hop(passage, now)
        if known is None:  # What has been taken up is taken whole: who refused the rest would say that it lacks it.
            portion.publisher_header.check_fresh(now, self._config.hold_us)
        hop = known or self._new(passage, publisher)
        opening = not hop.has_begun
        if opening:
            self._opened.check_quota(passage, holder)
        try:
            check_key_id(header.key_attempt.key, publisher)
            sent = hop.accept_share(portion, advertisement, now)
        except (ForgedError, MalformedError):
            self._suspicions.record(holder, FaultReason.BAD_DEALT_SHARE)
            raise
        if opening:
            self._hops[passage] = hop
            self._until.setdefault(passage, max(now, portion.publisher_header.dealt_us + self._config.hold_us))
            kept = StoredDealing(portion.encode(), advertisement, publisher)
            self._fold(self._opened.store(passage, holder, header.name, kept))
        return sent + self._listen(passage, hop, now) + self._moved(passage, now)

    def _new(self, passage: TransferId, publisher: bytes) -> TransferReceiver:
        origin, old, new = passage
        assert old is not None, "what comes from the publisher is no hop"
        place, bound_us = self._our_place(new), self._config.bound_us
        return TransferReceiver(origin, old, place, publisher, self._roster, self._signing, bound_us, self._absences)

    def _hop(self, passage: TransferId, now: int) -> TransferReceiver | None:
        """The receiver of the transfer, activated if it was inactive."""
        if passage in self._hops or passage not in self._opened:
            return self._hops.get(passage)
        dealt = self._opened.stored_dealings(passage)
        hop = self._new(passage, dealt[0].publisher)
        for kept in dealt:
            hop.accept_share(DealtShare.decode(kept.dealt_share.reveal()), kept.advertisement, now)
        self._hops[passage] = hop
        self._fold(self._opened.activate(passage))
        return hop

    def _fold(self, passages: list[TransferId]) -> None:
        for passage in passages:
            del self._hops[passage]

    def _listen(self, passage: TransferId, hop: TransferReceiver, now: int) -> list[Outgoing]:
        """Handle the messages that came before the transfer began, those with a start proof first."""
        sent: list[Outgoing] = []
        for author, (spoken, said) in sorted(
            self._words.take(passage), key=lambda kept: kept[1][1].publisher_header is None
        ):
            if hop.has_begun or said.publisher_header is not None:
                sent += self._hear(hop, spoken, said, author, now, strict=False)
            else:
                self._words.put(passage, author, (spoken, said), len(spoken.word), now)
        return sent

    # --- words --------------------------------------------------------------------------------------------------------

    def on_agreement_message(self, message: AgreementWord, source: ReplicaId, now: int) -> list[Outgoing]:
        """A message from another replica of the own node."""
        said = AgreementMessage.decode(message.word)
        place, author = (
            self._our_place(said.new_scheme),
            self._roster.id_of(said.new_scheme, self._roster.key_of(source)),
        )
        if author is None or author == place or said.old_scheme.node != message.node:
            raise ForgedError("a word of nobody who has one")
        passage: TransferId = (KeyAttempt(message.key, message.attempt), said.old_scheme, said.new_scheme)
        hop = self._hops.get(passage) if said.publisher_header is None else self._hop(passage, now)
        if hop is not None and (hop.has_begun or said.publisher_header is not None):
            sent = self._hear(hop, message, said, author, now, strict=True)
            return sent + self._listen(passage, hop, now) + self._moved(passage, now)
        if not self._is_over(passage, now):
            self._words.put(passage, author, (message, said), len(message.word), now)
        return []

    def on_dispute(self, message: DisputeDealing, source: ReplicaId, now: int) -> list[Outgoing]:
        """A message from a replica that this broker dealt to."""
        origin = KeyAttempt(message.key, message.attempt)
        return [
            outgoing
            for passage in list(self._by_origin.get(origin, ()))
            if passage in self._handing
            for outgoing in self._handing[passage].answer_dispute(message, source, now)
        ]

    def on_acknowledgement(self, message: ShareReceived, source: ReplicaId, now: int) -> list[Outgoing]:
        """A replica that this broker dealt to has its share."""
        for passage in list(self._by_origin.get(KeyAttempt(message.key, message.attempt), ())):
            if passage in self._handing:
                self._handing[passage].record_acknowledgement(message, source)
                self._moved(passage, now)
        return []

    def _hear(
        self,
        hop: TransferReceiver,
        spoken: AgreementWord,
        said: AgreementMessage,
        author: ReplicaId,
        now: int,
        *,
        strict: bool,
    ) -> list[Outgoing]:
        try:
            return hop.accept_message(spoken.flood, said, author, now)
        except (ForgedError, MalformedError):
            self._suspicions.record(author, FaultReason.BAD_STATEMENT)
            if strict:
                # What came before it in the same message may have changed what is due.
                self._alarms.set((hop.key_attempt, hop.old_scheme, hop.place.scheme), now)
                raise
            return []
        except RemoteError:
            if strict:
                raise
            return []  # Others may be waiting behind it.

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle(self, now: int) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for passage in self._alarms.pop_due(now):
            if passage in self._hops:
                sent += self._hops[passage].handle(now)
            if passage in self._handing:
                self._handing[passage].handle(now)
            try:
                sent += self._moved(passage, now)
            except ExcessError:
                continue  # It is over, for want of room.
        self._portions.expire(now)
        self._words.expire(now)
        return sent

    def next_us(self) -> int | None:
        return self._alarms.next_us()

    def _moved(self, passage: TransferId, now: int) -> list[Outgoing]:
        """The transfer has changed: deal the share if it is complete, and set the next timer, or none."""
        sent: list[Outgoing] = []
        hop, handing = self._hops.get(passage), self._handing.get(passage)
        if hop is None and passage in self._opened:
            self._alarms.set(passage, self._until[passage])
            if self._until[passage] <= now:
                self._forget(passage)
            return sent
        if hop is not None and hop.has_begun and passage in self._opened:
            self._opened.remove(passage)
            try:
                self._room.admit(passage, hop.publisher, now)
            except ExcessError:
                self._drop(passage, now)
                raise
        if hop is not None:
            if hop.held_share is not None and handing is None and hop.advertisement is not None:
                taken = ShareReceived(hop.key_attempt.key, hop.key_attempt.attempt)
                sent += [Outgoing(holder, taken) for holder in all_replicas(hop.old_scheme)]
                sent += self._hold(passage, hop.held_share, hop.advertisement, now)
                hop.held_share = None
                handing = self._handing.get(passage)
            if hop.end_us is not None:
                self._until[passage] = hop.end_us
            if self._until[passage] <= now and not hop.has_begun:
                self._forget(passage)
                return sent
            if self._until[passage] <= now:
                self._suspicions.record_all(hop.equivocating_holders, FaultReason.TWO_DEALINGS)
                self._suspicions.record_all(hop.equivocating_replicas, FaultReason.TWO_STATEMENTS)
                del self._hops[passage], self._until[passage]
                hop = None
        if handing is not None and not len(handing):
            del self._handing[passage]
            handing = None
        if hop is None and handing is None:
            self._drop(passage, now)
            return sent
        times = [handing.next_us() if handing else None]
        times += [hop.next_us(), self._until[passage]] if hop else []
        self._alarms.set(passage, min(time for time in times if time is not None))
        return sent

    # --- passages -----------------------------------------------------------------------------------------------------

    def _hold(self, passage: TransferId, holding: HeldShare, advertisement: bytes, now: int) -> list[Outgoing]:
        """The own share is complete: deal it, and keep nothing of it."""
        handing = TransferSender(advertisement, self._routes, self._roster, self._strikes, self._config.bound_us)
        try:
            branches = self._routes.subscriber_branches(advertisement) if self._is_news(passage, now) else ()
        except StaleError:
            branches = ()
        sent = handing.send(holding, branches, self._signing, self._entropy, now)
        self._handing[passage] = handing
        self._by_origin.setdefault(passage[0], {})[passage] = None
        return sent + (self._moved(passage, now) if passage not in self._hops else [])

    def _is_news(self, passage: TransferId, now: int) -> bool:
        """True if this key was not dealt before. A key can arrive on two ways: a Byzantine publisher sends it to this
        node and to one before it; or holders switch to another scheme, and with a Byzantine holder both schemes have
        enough. A replica that deals twice under one name looks Byzantine."""
        while self._dealt and (first := next(iter(self._dealt.items())))[1] <= now:
            del self._dealt[first[0]]
        origin, _, ours = passage
        if (origin, ours) in self._dealt or len(self._dealt) >= 2 * self._config.done_max:
            return False
        # As long as what comes of it is on its way, or remembered, at the next node.
        self._dealt[origin, ours] = now + _MEMORY_FACTOR * self._config.hold_us
        return True

    def _is_over(self, passage: TransferId, now: int) -> bool:
        return self._room.is_past(passage, now) or self._shunned.contains(passage, now)

    def _enter(self, passage: TransferId, publisher: bytes, now: int, *, quiet: bool) -> None:
        if quiet:
            self._room.reject(passage, publisher, now)
            raise StaleError("we may have seen this before, in an earlier life")
        if passage in self._handing:
            raise StaleError("this has been handed on already")
        self._room.admit(passage, publisher, now)

    def _forget(self, passage: TransferId) -> None:
        """Drop a transfer that has not begun. No statement was made on it, so it may still come."""
        self._opened.remove(passage)
        self._hops.pop(passage, None)
        del self._until[passage]
        self._alarms.cancel(passage)

    def _drop(self, passage: TransferId, now: int) -> None:
        """The transfer is over, with any result."""
        hop = self._hops.pop(passage, None)
        self._until.pop(passage, None)
        self._alarms.cancel(passage)
        self._room.finish(passage, now)
        self._room.reject(passage, hop.publisher if hop else b"", now)
        of_origin = self._by_origin.get(passage[0], {})
        of_origin.pop(passage, None)
        if not of_origin:
            self._by_origin.pop(passage[0], None)

    def _publisher(self, advertisement: bytes, source: Peer) -> bytes:
        if not is_from(source, self._routes.source_of(advertisement)):
            raise ForgedError("a share for an advertisement that came another way")
        return self._routes.publisher_of(advertisement)

    def _our_place(self, scheme: Scheme) -> ReplicaId:
        for place in self._routes.own_replicas():
            if place.scheme == scheme:
                return place
        raise StaleError("a share for a scheme of which we are none")


_MEMORY_FACTOR: Final = 2
_EXCUSE_MEMORY_FACTOR: Final = 5
"""Ten minutes by default."""
UNRESPONSIVE_MAX: Final = 4_096
_MESSAGES_PER_TRANSFER: Final = 6
"""Messages of one replica in a transfer, without the relays of each round after the first, of rolls and of
settlements."""
_MESSAGE_BYTES: Final = 1 << 11
"""Average size of one of these messages, in nodes of up to seven replicas, before shares are shown."""
_SHARE_OVERHEAD: Final = 512
"""Upper bound of the other fields of a dealt share, in bytes."""
_DEALT_SHARE_MAX: Final = 1 << 12
"""Upper bound of a dealt share, between nodes of up to seventy replicas, in bytes."""
