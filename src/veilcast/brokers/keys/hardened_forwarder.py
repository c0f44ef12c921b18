"""Keys through one broker by redistribution (`hardened`): receive, combine, deal, erase.

Each key and attempt passes once. It comes from the publisher, or from the replicas of the previous node
(`transfer_receiver`), and goes to every next hop with subscribers of the advertisement (`transfer_sender`).

1. Property: an honest replica deals a key once to each node, and makes one statement of each kind on it.
   Assumption: it has not been restarted (see 3). Beyond its quota, a publisher's keys are refused (`quota`).
   Reason: a repeated or late message finds the transfer finished, or its key too old, and changes nothing. A key is
   fresh from `hold_us` before the dealing time that it names to `hold_us` after it. So a finished transfer is
   remembered for 2 `hold_us` (`_MEMORY_FACTOR`): with 1, the key of a publisher whose clock is ahead would be
   forgotten while it is fresh.

2. Property: a transfer that has not begun leaves no trace when it is dropped.
   Reason: a Byzantine holder may deal long before the others have anything to deal, so such a transfer is kept as long
   as its key is fresh (`quota.UnstartedTransfers`). This broker has made no statement on it, so it may still come.
   Statements of others wait until it has begun.

3. Property: a replica that was killed and restarted has no share of an honest replica shown, and makes no second
   statement that counts.
   Assumption: `is_quiet` until the quiet period (`transfer_receiver`, property 10) is over and all claims are here.
   Reason: it has lost its state. If it said that it lacks a share that it had, the holder would show an honest share.
   So it ignores permanently every transfer that it sees in that time. When a Byzantine replica shows it an older one
   afterwards, no honest holder shows what it dealt, and the rounds in which a statement counts are over.
   Planted fault: `test_without_the_quiet_period_a_restarted_replica_would_reveal_keys`.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from veilcast.brokers.evidence import FaultReason
from veilcast.brokers.keys.agreement import AgreementMessage
from veilcast.brokers.keys.bulk_key import check_key_id
from veilcast.brokers.keys.forwarder_base import ForwarderInputs, KeyForwarder
from veilcast.brokers.keys.redistribution import DealtShare, HeldShare, PublisherShare, accept_publisher_share
from veilcast.brokers.keys.scheme import KeyAttempt, ReplicaId, Scheme
from veilcast.brokers.keys.share_reception import ShareReception
from veilcast.brokers.keys.transfer_receiver import TransferReceiver, quiet_period_us
from veilcast.brokers.keys.transfer_sender import ExcuseQuota, TransferSender
from veilcast.brokers.keys.unresponsive_replicas import UnresponsiveReplicas
from veilcast.brokers.quota import IgnoredItems, PendingMessages, PublisherQuota, StoredDealing, UnstartedTransfers
from veilcast.brokers.routing.view import Outgoing, Peer, all_replicas, is_from
from veilcast.core.timers import Timers
from veilcast.errors import ExcessError, ForgedError, MalformedError, RemoteError, StaleError
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, DisputeDealing, FirstShare, NextShare, ShareReceived

TransferId: TypeAlias = tuple[KeyAttempt, Scheme | None, Scheme]
"""A key and attempt, from this node (or its publisher: None) to the own node."""


class HardenedKeyForwarder(KeyForwarder):
    """Bounded by `keys_max` and `done_max`, a quarter of each per publisher. Early messages are bounded per sender;
    unstarted transfers, and those ignored in the quiet period, by `done_max` per holder."""

    def __init__(self, inputs: ForwarderInputs, now: int) -> None:
        super().__init__(inputs, now)
        config = inputs.config
        # Past transfers are remembered for longer than a key is fresh, by as much as clocks may differ.
        self._quota: PublisherQuota[TransferId] = PublisherQuota(
            config.keys_max, config.done_max, _MEMORY_FACTOR * config.hold_us
        )
        # Transfers seen in the quiet period. An honest holder sends no more: it remembers no more in that time.
        self._ignored: IgnoredItems[TransferId] = IgnoredItems(config.done_max, _MEMORY_FACTOR * config.hold_us)
        self._receivers: dict[TransferId, TransferReceiver] = {}
        self._senders: dict[TransferId, TransferSender] = {}
        self._by_attempt: dict[KeyAttempt, dict[TransferId, None]] = {}
        self._dealt: dict[tuple[KeyAttempt, Scheme], int] = {}
        """Keys dealt under each own scheme, and until when that is remembered."""
        self._unresponsive = UnresponsiveReplicas(UNRESPONSIVE_MAX)
        self._excuses = ExcuseQuota(_EXCUSE_MEMORY_FACTOR * config.hold_us)
        self._timers: Timers[TransferId] = Timers()
        self._unstarted: UnstartedTransfers[TransferId] = UnstartedTransfers(config.done_max, config.keys_max)
        self._deadlines: dict[TransferId, int] = {}
        """When an unstarted transfer is dropped, and when a started one is over."""
        # Early messages are kept for longer than a holder shows its dealings: a replica that loses an early message may
        # say so afterwards without harm.
        keep_us = quiet_period_us(config.bound_us, self._max_faulty)
        # An honest replica has no more than `keys_max` transfers in that time. If a message of it were lost, it would
        # count as silent.
        most = (_MESSAGES_PER_TRANSFER + 2 * self._max_faulty) * config.keys_max
        self._early_messages: PendingMessages[TransferId, ReplicaId, tuple[AgreementWord, AgreementMessage]] = (
            PendingMessages(count=most, size=most * _MESSAGE_BYTES, senders=512, keep_us=keep_us)
        )
        # An honest holder has no more than `keys_max` dealings out that were not accepted here, each for nearly as long
        # as it is kept here. So an evicted share is a Byzantine holder's, and need not be remembered.
        most = 2 * config.keys_max
        self._early_shares: PendingMessages[bytes, ReplicaId, tuple[DealtShare, bytes]] = PendingMessages(
            count=most, size=most * _DEALT_SHARE_MAX, senders=512, keep_us=keep_us
        )

    def sizes(self) -> dict[str, int]:
        return {
            "passages": len(self._quota),
            "passages past": self._quota.past_count + len(self._ignored),
            "hops": len(self._receivers),
            "handed": sum(map(len, self._senders.values())),
            "keys dealt": len(self._dealt),
            "early": len(self._early_messages) + len(self._early_shares) + self._unstarted.inactive_count,
            "absences": len(self._unresponsive),
            **super().sizes(),
        }

    def _on_message(self, message: Message, source: Peer, now: int) -> list[Outgoing]:
        if isinstance(message, FirstShare):
            return self._on_first_share(message, source, now)
        if not isinstance(source, ReplicaId):
            raise ForgedError("a client takes no part in the transfer between brokers")
        match message:
            case NextShare():
                return self._on_next_share(message, source, now)
            case AgreementWord():
                return self._on_agreement_message(message, source, now)
            case DisputeDealing():
                return self._on_dispute(message, source, now)
            case ShareReceived():
                return self._on_acknowledgement(message, source, now)
        raise ForgedError("not a message about keys")

    # --- shares -------------------------------------------------------------------------------------------------------

    def _on_first_share(self, message: FirstShare, source: Peer, now: int) -> list[Outgoing]:
        """A share from the publisher."""
        publisher = self._publisher(message.advertisement, source)
        first = PublisherShare.decode(message.share)
        own_id = self._own_id(first.publisher_header.scheme)
        transfer: TransferId = (first.publisher_header.key_attempt, None, own_id.scheme)
        check_key_id(first.publisher_header.key_attempt.key, publisher)
        first.publisher_header.check_fresh(now, self._config.hold_us)
        held = accept_publisher_share(first, own_id, publisher)
        self._admit(transfer, publisher, now)
        return self._deal_held_share(transfer, held, message.advertisement, now)

    def _on_next_share(self, message: NextShare, source: ReplicaId, now: int) -> list[Outgoing]:
        """A share from a holder of the previous node: an own one, or a disputed one."""
        try:
            share = DealtShare.decode(message.share)
        except MalformedError:
            self._evidence.record(source, FaultReason.BAD_DEALT_SHARE)
            raise
        return self._on_dealt_share(share, message.advertisement, source, now)

    def _on_early_shares(self, advertisement: bytes, now: int) -> list[Outgoing]:
        sent: list[Outgoing] = []
        for source, (share, named) in self._early_shares.take(advertisement):
            try:
                sent += self._on_dealt_share(share, named, source, now)
            except RemoteError:
                continue
        return sent

    def _on_dealt_share(self, share: DealtShare, advertisement: bytes, source: ReplicaId, now: int) -> list[Outgoing]:
        header = share.holder_header
        own_id = self._own_id(header.new_scheme)
        holder = ReplicaId(header.old_scheme, header.holder)
        transfer: TransferId = (header.key_attempt, header.old_scheme, own_id.scheme)
        if self._replica_keys.key_of(holder) != self._replica_keys.key_of(source):
            raise ForgedError("a dealt share of another holder")
        if self._is_over(transfer, now) or (transfer in self._senders and transfer not in self._receivers):
            raise StaleError("this is over here")
        if self.is_quiet(now):
            self._ignored.add(transfer, self._replica_keys.key_of(source), now)
            raise StaleError("this may have been seen before, in an earlier run")
        try:
            publisher = self._publisher(advertisement, source)
        except StaleError:
            size = (
                len(share.publisher_header.points) + len(header.old_points) + len(header.new_points) + _SHARE_OVERHEAD
            )
            self._early_shares.put(advertisement, source, (share, advertisement), size, now)
            return []
        known = self._receiver(transfer, now)
        if known is None:  # A known transfer is accepted whole: a replica that refused the rest would lack it.
            share.publisher_header.check_fresh(now, self._config.hold_us)
        receiver = known or self._make_receiver(transfer, publisher)
        is_unstarted = not receiver.has_begun
        if is_unstarted:
            self._unstarted.check_quota(transfer, holder)
        try:
            check_key_id(header.key_attempt.key, publisher)
            sent = receiver.accept_share(share, advertisement, now)
        except (ForgedError, MalformedError):
            self._evidence.record(holder, FaultReason.BAD_DEALT_SHARE)
            raise
        if is_unstarted:
            self._receivers[transfer] = receiver
            self._deadlines.setdefault(transfer, max(now, share.publisher_header.dealt_us + self._config.hold_us))
            stored = StoredDealing(share.encode(), advertisement, publisher)
            self._deactivate(self._unstarted.store(transfer, holder, header.name, stored))
        return sent + self._handle_early_messages(transfer, receiver, now) + self._advance(transfer, now)

    def _make_receiver(self, transfer: TransferId, publisher: bytes) -> TransferReceiver:
        key_attempt, old, new = transfer
        assert old is not None, "a share from the publisher needs no receiver"
        reception = ShareReception(key_attempt, old, self._own_id(new), publisher, self._replica_keys, self._signing)
        return TransferReceiver(reception, self._config.bound_us, self._unresponsive)

    def _receiver(self, transfer: TransferId, now: int) -> TransferReceiver | None:
        """The receiver of the transfer, activated if it was inactive."""
        if transfer in self._receivers or transfer not in self._unstarted:
            return self._receivers.get(transfer)
        dealt = self._unstarted.stored_dealings(transfer)
        receiver = self._make_receiver(transfer, dealt[0].publisher)
        for stored in dealt:
            receiver.accept_share(DealtShare.decode(stored.dealt_share.reveal()), stored.advertisement, now)
        self._receivers[transfer] = receiver
        self._deactivate(self._unstarted.activate(transfer))
        return receiver

    def _deactivate(self, transfers: list[TransferId]) -> None:
        for transfer in transfers:
            del self._receivers[transfer]

    def _handle_early_messages(self, transfer: TransferId, receiver: TransferReceiver, now: int) -> list[Outgoing]:
        """Handle the messages that came before the transfer began, those with a start proof first."""
        sent: list[Outgoing] = []
        for author, (message, content) in sorted(
            self._early_messages.take(transfer), key=lambda stored: stored[1][1].publisher_header is None
        ):
            if receiver.has_begun or content.publisher_header is not None:
                sent += self._handle_message(receiver, message, content, author, now, strict=False)
            else:
                self._early_messages.put(transfer, author, (message, content), len(message.word), now)
        return sent

    # --- agreement messages -------------------------------------------------------------------------------------------

    def _on_agreement_message(self, message: AgreementWord, source: ReplicaId, now: int) -> list[Outgoing]:
        """A message from another replica of the own node."""
        content = AgreementMessage.decode(message.word)
        own_id, author = (
            self._own_id(content.new_scheme),
            self._replica_keys.id_of(content.new_scheme, self._replica_keys.key_of(source)),
        )
        if author is None or author == own_id or content.old_scheme.node != message.node:
            raise ForgedError("a statement of a replica that takes no part")
        transfer: TransferId = (KeyAttempt(message.key, message.attempt), content.old_scheme, content.new_scheme)
        receiver = self._receivers.get(transfer) if content.publisher_header is None else self._receiver(transfer, now)
        if receiver is not None and (receiver.has_begun or content.publisher_header is not None):
            sent = self._handle_message(receiver, message, content, author, now, strict=True)
            return sent + self._handle_early_messages(transfer, receiver, now) + self._advance(transfer, now)
        if not self._is_over(transfer, now):
            self._early_messages.put(transfer, author, (message, content), len(message.word), now)
        return []

    def _on_dispute(self, message: DisputeDealing, source: ReplicaId, now: int) -> list[Outgoing]:
        """A message from a replica that this broker dealt to."""
        key_attempt = KeyAttempt(message.key, message.attempt)
        return [
            outgoing
            for transfer in list(self._by_attempt.get(key_attempt, ()))
            if transfer in self._senders
            for outgoing in self._senders[transfer].answer_dispute(message, source, now)
        ]

    def _on_acknowledgement(self, message: ShareReceived, source: ReplicaId, now: int) -> list[Outgoing]:
        """A replica that this broker dealt to has its share."""
        for transfer in list(self._by_attempt.get(KeyAttempt(message.key, message.attempt), ())):
            if transfer in self._senders:
                self._senders[transfer].record_acknowledgement(message, source)
                self._advance(transfer, now)
        return []

    def _handle_message(
        self,
        receiver: TransferReceiver,
        message: AgreementWord,
        content: AgreementMessage,
        author: ReplicaId,
        now: int,
        *,
        strict: bool,
    ) -> list[Outgoing]:
        try:
            return receiver.accept_message(message.flood, content, author, now)
        except (ForgedError, MalformedError):
            self._evidence.record(author, FaultReason.BAD_STATEMENT)
            if strict:
                # Earlier statements of the same message may have changed what is due.
                self._timers.set((receiver.key_attempt, receiver.old_scheme, receiver.own_id.scheme), now)
                raise
            return []
        except RemoteError:
            if strict:
                raise
            return []  # Other messages may be waiting behind it.

    # --- time ---------------------------------------------------------------------------------------------------------

    def handle(self, now: int) -> None:
        for transfer in self._timers.pop_due(now):
            if transfer in self._receivers:
                self.outbox += self._receivers[transfer].handle(now)
            if transfer in self._senders:
                self._senders[transfer].handle(now)
            try:
                self.outbox += self._advance(transfer, now)
            except ExcessError:
                continue  # The transfer is over: its publisher is over its quota.
        self._early_shares.expire(now)
        self._early_messages.expire(now)

    def next_us(self) -> int | None:
        return self._timers.next_us()

    def _advance(self, transfer: TransferId, now: int) -> list[Outgoing]:
        """The transfer has changed: deal the share if it is complete, and set the next timer, or none."""
        sent: list[Outgoing] = []
        receiver, sender = self._receivers.get(transfer), self._senders.get(transfer)
        if receiver is None and transfer in self._unstarted:
            self._timers.set(transfer, self._deadlines[transfer])
            if self._deadlines[transfer] <= now:
                self._forget(transfer)
            return sent
        if receiver is not None and receiver.has_begun and transfer in self._unstarted:
            self._unstarted.remove(transfer)
            try:
                self._quota.admit(transfer, receiver.publisher, now)
            except ExcessError:
                self._drop(transfer, now)
                raise
        if receiver is not None:
            if receiver.held_share is not None and sender is None and receiver.advertisement is not None:
                receipt = ShareReceived(receiver.key_attempt.key, receiver.key_attempt.attempt)
                sent += [Outgoing(holder, receipt) for holder in all_replicas(receiver.old_scheme)]
                sent += self._deal_held_share(transfer, receiver.held_share, receiver.advertisement, now)
                receiver.held_share = None
                sender = self._senders.get(transfer)
            if receiver.end_us is not None:
                self._deadlines[transfer] = receiver.end_us
            if self._deadlines[transfer] <= now and not receiver.has_begun:
                self._forget(transfer)
                return sent
            if self._deadlines[transfer] <= now:
                self._evidence.record_all(receiver.equivocating_holders, FaultReason.TWO_DEALINGS)
                self._evidence.record_all(receiver.equivocating_replicas, FaultReason.TWO_STATEMENTS)
                del self._receivers[transfer], self._deadlines[transfer]
                receiver = None
        if sender is not None and not len(sender):
            del self._senders[transfer]
            sender = None
        if receiver is None and sender is None:
            self._drop(transfer, now)
            return sent
        times = [sender.next_us() if sender else None]
        times += [receiver.next_us(), self._deadlines[transfer]] if receiver else []
        self._timers.set(transfer, min(time for time in times if time is not None))
        return sent

    # --- transfers ----------------------------------------------------------------------------------------------------

    def _deal_held_share(self, transfer: TransferId, held: HeldShare, advertisement: bytes, now: int) -> list[Outgoing]:
        """The own share is complete: deal it, and keep nothing of it."""
        sender = TransferSender(advertisement, self._routes, self._replica_keys, self._excuses, self._config.bound_us)
        try:
            branches = self._routes.subscriber_branches(advertisement) if self._is_first_dealing(transfer, now) else ()
        except StaleError:
            branches = ()
        sent = sender.send(held, branches, self._signing, self._entropy, now)
        self._senders[transfer] = sender
        self._by_attempt.setdefault(transfer[0], {})[transfer] = None
        return sent + (self._advance(transfer, now) if transfer not in self._receivers else [])

    def _is_first_dealing(self, transfer: TransferId, now: int) -> bool:
        """True if this key was not dealt before. A key can arrive on two ways: a Byzantine publisher sends it to this
        node and to one before it; or holders switch to another scheme, and with a Byzantine holder both schemes have
        enough. A replica that deals twice under one name looks Byzantine."""
        while self._dealt and (first := next(iter(self._dealt.items())))[1] <= now:
            del self._dealt[first[0]]
        key_attempt, _, own_scheme = transfer
        if (key_attempt, own_scheme) in self._dealt or len(self._dealt) >= 2 * self._config.done_max:
            return False
        # For as long as the next node transfers or remembers the key.
        self._dealt[key_attempt, own_scheme] = now + _MEMORY_FACTOR * self._config.hold_us
        return True

    def _is_over(self, transfer: TransferId, now: int) -> bool:
        return self._quota.is_past(transfer, now) or self._ignored.contains(transfer, now)

    def _admit(self, transfer: TransferId, publisher: bytes, now: int) -> None:
        if self.is_quiet(now):
            self._quota.reject(transfer, publisher, now)
            raise StaleError("this may have been seen before, in an earlier run")
        if transfer in self._senders:
            raise StaleError("this was dealt already")
        self._quota.admit(transfer, publisher, now)

    def _forget(self, transfer: TransferId) -> None:
        """Drop a transfer that has not begun. No statement was made on it, so it may still come."""
        self._unstarted.remove(transfer)
        self._receivers.pop(transfer, None)
        del self._deadlines[transfer]
        self._timers.cancel(transfer)

    def _drop(self, transfer: TransferId, now: int) -> None:
        """The transfer is over, with any result."""
        receiver = self._receivers.pop(transfer, None)
        self._deadlines.pop(transfer, None)
        self._timers.cancel(transfer)
        self._quota.finish(transfer, now)
        self._quota.reject(transfer, receiver.publisher if receiver else b"", now)
        of_attempt = self._by_attempt.get(transfer[0], {})
        of_attempt.pop(transfer, None)
        if not of_attempt:
            self._by_attempt.pop(transfer[0], None)

    def _publisher(self, advertisement: bytes, source: Peer) -> bytes:
        if not is_from(source, self._routes.source_of(advertisement)):
            raise ForgedError("a share from another hop than its advertisement")
        return self._routes.publisher_of(advertisement)

    def _own_id(self, scheme: Scheme) -> ReplicaId:
        for own_id in self._routes.own_replicas():
            if own_id.scheme == scheme:
                return own_id
        raise StaleError("a share for a scheme without this replica")


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
