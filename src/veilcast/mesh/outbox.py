"""The outbox of a hardened publisher: publications on their way to the root, and calls for a root.

A publication is sent over the stem, and repeated until the root acknowledges it or, sent in a parcel, until it comes
back through the mesh. While the first relay is away or there
is no root it waits, however long. The owner is told at intervals, and only the owner can withdraw it. After an epoch
edge it is sealed again with the new epoch's keys; subscribers identify it by its number in the publisher's stream.

For every topic that the owner advertises, a call goes out for this epoch while there is no root. Another goes out for
the next epoch at a random moment, so that the root can prepare its mesh. With send slots, publications wait for a slot,
and calls use the last slot that is early enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final, Protocol

from veilcast.authority.keyring import TopicKeys
from veilcast.core.outbox import PendingPublication
from veilcast.core.publication import make_certified_notify
from veilcast.crypto.topic_token import lineage_of
from veilcast.errors import AuthorityError, LocalError
from veilcast.machine import Delay, Entropy, Overdue
from veilcast.mesh.advertisements import make_call
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.send_slots import SendSlots
from veilcast.mesh.stem import Cargo, cargo_id
from veilcast.wire import encode
from veilcast.wire.mesh import Notify


class LaunchStem(Protocol):
    def __call__(self, cargo: Cargo, lineage: bytes, now: int) -> bool: ...


class StemOutbox:
    """Bounded like the records; and one call for this epoch and for each epoch that send slots reach ahead to, for each
    advertised topic or cell."""

    def __init__(
        self,
        config: MeshConfig,
        keys_of: Callable[[str, int], TopicKeys],
        has_root: Callable[[bytes], bool],
        has_way: Callable[[bytes], bool],
        forms_us: Callable[[bytes, bytes, int, int], int],
        settling: Callable[[], int],
        launch: LaunchStem,
        hold_epochs: Callable[[bytes, int], int],
        send_slots: SendSlots,
        settle: Callable[[int, PendingPublication], None],
        rng: Random,
        entropy: Entropy,
        *,
        epoch_us: int,
    ) -> None:
        rules, period_us = config.hardening, config.heartbeat_us
        self._keys_of, self._launch, self._send_slots, self._settle = keys_of, launch, send_slots, settle
        self._has_root, self._has_way, self._forms_us = has_root, has_way, forms_us
        self._settling, self._period_us, self._hold_epochs = settling, period_us, hold_epochs
        self._last_release: dict[bytes, int] = {}
        self._rng, self._entropy, self._epoch_us = rng, entropy, epoch_us
        held_us = int(rules.hold_back_epochs * epoch_us) + _STRETCHES * rules.parcel_periods * period_us
        self._retry_us = rules.retry_periods * period_us + held_us
        self._travel_us = _TRAVEL_PERIODS * period_us + held_us
        self._call_us, self._lead_us = rules.call_periods * period_us, rules.lead_periods * period_us
        usual = 2 * rules.departure_epochs + rules.hold_back_epochs
        self._wait_us = int((rules.wait_epochs + usual) * epoch_us)
        self._pending: list[_PendingNotification] = []
        self._calls: dict[str, dict[int, list[_PendingCall]]] = {}
        self._overdue: deque[Overdue] = deque(maxlen=rules.pending_max)

    def advertise(self, topic: str, now: int) -> None:
        """Call for a root, in this epoch and in every epoch to come."""
        if self._keys_of(topic, now // self._epoch_us).signing is None:
            raise LocalError(f"only a publisher of {topic!r} can publish on it")
        self._calls.setdefault(topic, {})

    def unadvertise(self, topic: str) -> None:
        self._calls.pop(topic, None)

    def put(self, record: int, publication: PendingPublication, now: int) -> None:
        """Add a publication, and send it at once if there is a way."""
        self._calls.setdefault(publication.topic, {})
        pending = _PendingNotification(record, publication, now)
        self._pending.append(pending)
        with suppress(LocalError):  # The grant has ended; it may be renewed while this waits.
            pending.next_try_us = self._send_slots.next_us(self._lineage_of(publication.topic, now), now)
        if now >= pending.next_try_us:
            self._try(pending, now)

    def withdraw(self, record: int) -> None:
        self._pending = [pending for pending in self._pending if pending.record != record]

    def find_lineage(self, name: bytes) -> bytes | None:
        """The lineage whose root must acknowledge this cargo; None if no such cargo waits."""
        notes = [
            note for pending in self._pending if name in pending.cargo_ids and (note := pending.notify) is not None
        ]
        calls = [one for calls in self._calls.values() for several in calls.values() for one in several]
        known = [lineage_of(note.certificate, note.cell) for note in notes if note.certificate is not None]
        return next(iter([*known, *(call.lineage for call in calls if call.cargo_id == name)]), None)

    def confirm(self, name: bytes) -> None:
        """The root has this cargo."""
        confirmed = [pending for pending in self._pending if name in pending.cargo_ids]
        for pending in confirmed:
            self._pending.remove(pending)
            self._settle(pending.record, pending.publication)
        for calls in self._calls.values():
            for call in (one for several in calls.values() for one in several):
                call.is_acknowledged = call.is_acknowledged or call.cargo_id == name

    def resend_by(self, again_us: int) -> None:
        """Publications in flight are presumed lost; send them again by this time. One that waits for its send slot is
        not in flight: otherwise an adversary that causes a mass failure could choose when it leaves."""
        for pending in self._pending:
            if pending.notify is not None:
                pending.next_try_us = min(pending.next_try_us, again_us)

    def beat(self, now: int) -> None:
        for pending in self._pending:
            if now - pending.since_us > self._wait_us:
                pending.since_us = now
                pending.forget_old_ids()
                self._overdue.append(Overdue(pending.record, pending.publication.content.publication))
            if now >= pending.next_try_us:
                self._try(pending, now)
        epoch = now // self._epoch_us
        for topic, calls in self._calls.items():
            for past in [known for known in calls if known < epoch]:
                del calls[past]
            for named in range(epoch, epoch + self._send_slots.epochs_ahead + 1):
                if named in calls and all(self._is_idle(call, named, now) for call in calls[named]):
                    continue
                try:
                    keys = self._keys_of(topic, named)
                except AuthorityError:
                    continue  # The grant ends before this epoch.
                if keys.signing is None:
                    continue  # The grant to publish ends before this epoch.
                parts = keys.for_all()
                if named not in calls:
                    calls[named] = [_PendingCall(self._moment(keys.record.lineage, named, now)) for _ in parts]
                for part, call in zip(parts, calls[named], strict=True):
                    self._call(part, named, call, now)

    def delay(self, members: int, now: int) -> Delay | None:
        """Why the last waiting publication has not reached its subscribers, in a network of `members` members."""
        return self._delay_of(self._pending[-1], members, now) if self._pending else None

    def _delay_of(self, pending: _PendingNotification, members: int, now: int) -> Delay:
        publication, epoch = pending.publication, now // self._epoch_us
        try:
            keys = self._keys_of(publication.topic, epoch).for_publication(publication.content.publication)
        except LocalError:
            return Delay(f"no grant of the keyring allows to publish on {publication.topic!r} now")
        blocked = pending.is_blocked or any(
            one.is_blocked for one in self._calls.get(publication.topic, {}).get(epoch, ())
        )
        settling_us = self._settling() * self._period_us
        if blocked and not settling_us:
            return Delay("the neighbour through which this node publishes is away")
        departs_us = max(now, pending.next_try_us) if pending.notify is None else now
        forms_us = self._forms_us(keys.token, keys.lineage, members, now + settling_us)
        until_us = max(departs_us, forms_us) + self._travel_us
        if settling_us:
            return Delay("this node still chooses the neighbour through which it publishes", until_us)
        if departs_us >= forms_us and departs_us > now:
            return Delay("it waits for the next of the moments at which this node lets publications leave", until_us)
        if not self._has_root(keys.token):
            return Delay("the topic has no root yet, and its members draw lots for one", until_us)
        if forms_us > now:
            return Delay("the topic's mesh is forming", until_us)
        return Delay("the topic's root is to confirm it", until_us)

    def next_event(self) -> Overdue | None:
        return self._overdue.popleft() if self._overdue else None

    def _lineage_of(self, topic: str, now: int) -> bytes:
        return self._keys_of(topic, now // self._epoch_us).record.lineage

    def _moment(self, lineage: bytes, epoch: int, now: int) -> int:
        """Time to call for an epoch: at a send slot, or at any time, that leaves the root enough time to prepare."""
        latest_us = epoch * self._epoch_us - 2 * self._lead_us
        if not self._send_slots.is_unrestricted:
            last_us = self._send_slots.last_before_us(lineage, max(now, latest_us))
            return last_us if last_us >= now else self._send_slots.next_us(lineage, now)
        return now if epoch * self._epoch_us <= now else now + self._rng.randrange(max(1, latest_us - now))

    def _is_idle(self, call: _PendingCall, epoch: int, now: int) -> bool:
        """True if there is nothing to do. A root that has the call may fail before it begins."""
        return now < call.next_try_us or (call.is_acknowledged and now < epoch * self._epoch_us - self._lead_us // 2)

    def _call(self, keys: TopicKeys, epoch: int, call: _PendingCall, now: int) -> None:
        lineage = keys.record.lineage
        if self._is_idle(call, epoch, now) or self._has_root(keys.token):
            return
        if call.is_acknowledged and not self._send_slots.is_unrestricted:
            call.is_acknowledged, call.next_try_us = False, self._send_slots.next_us(lineage, now)
            return
        cargo = make_call(keys)
        call.is_blocked = not self._launch(cargo, lineage, now)
        if not call.is_blocked:
            call.cargo_id = cargo_id(encode(cargo))
            call.next_try_us = self._send_slots.retry_us(lineage, now + self._call_us, now)
            call.lineage = lineage_of(cargo.certificate, cargo.cell)

    def _try(self, pending: _PendingNotification, now: int) -> None:
        try:
            self._send(pending, now)
        except LocalError:
            pending.next_try_us = now + self._retry_us  # The grant has ended; it may be renewed while this waits.

    def _send(self, pending: _PendingNotification, now: int) -> None:
        notify, epoch = pending.notify, now // self._epoch_us
        if notify is None or pending.epoch < epoch:
            notify = self._seal(pending, now)
        if not self._has_way(notify.token if pending.epoch == epoch else self._keys_in(pending, epoch).token):
            return
        pending.is_blocked = not self._launch(notify, pending.lineage, now)
        if not pending.is_blocked:
            pending.next_try_us = self._send_slots.retry_us(pending.lineage, now + self._retry_us, now)

    def _keys_in(self, pending: _PendingNotification, epoch: int) -> TopicKeys:
        return self._keys_of(pending.publication.topic, epoch).for_publication(pending.publication.content.publication)

    def _seal(self, pending: _PendingNotification, now: int) -> Notify:
        """Seal with the keys of the epoch in which the root is to release it: this one, or a later one that is drawn.
        A publication is never put off less than an earlier one of its lineage: subscribers get them in order."""
        epoch, content = now // self._epoch_us, pending.publication.content
        keys = self._keys_in(pending, epoch)
        lineage = keys.lineage
        if self._hold_epochs(lineage, now):
            drawn = epoch + self._rng.randrange(self._hold_epochs(lineage, now) + 1)
            with suppress(AuthorityError, LocalError):  # The grant ends before that epoch.
                later = max(drawn, self._last_release.get(lineage, 0))
                keys, epoch = self._keys_in(pending, later), later
            self._last_release[lineage] = epoch
        pending.notify = notify = make_certified_notify(keys, content, self._entropy)
        pending.epoch = epoch
        pending.lineage = keys.record.lineage  # The lineage of the whole topic: its cells share one first relay.
        pending.cargo_ids[cargo_id(encode(notify))] = None
        return notify


class _PendingNotification:
    """A publication that no root has acknowledged, as it is sealed in this epoch, and all its recent cargo ids."""

    __slots__ = (
        "cargo_ids",
        "epoch",
        "is_blocked",
        "lineage",
        "next_try_us",
        "notify",
        "publication",
        "record",
        "since_us",
    )

    def __init__(self, record: int, publication: PendingPublication, now: int) -> None:
        self.record, self.publication, self.since_us, self.next_try_us = record, publication, now, now
        self.epoch = -1
        self.is_blocked = False
        """True if it could not leave at the last try, because the first relay was away."""
        self.lineage = b""
        self.notify: Notify | None = None
        self.cargo_ids: dict[bytes, None] = {}

    def forget_old_ids(self) -> None:
        """Keep the last id only: no receipt for an older one can be in flight any more."""
        self.cargo_ids = dict.fromkeys(list(self.cargo_ids)[-1:])


class _PendingCall:
    """A call for a root in one epoch: when it is due, its cargo id, and whether a root has it."""

    __slots__ = ("cargo_id", "is_acknowledged", "is_blocked", "lineage", "next_try_us")

    def __init__(self, due_us: int) -> None:
        self.next_try_us, self.cargo_id, self.lineage, self.is_acknowledged = due_us, b"", b"", False
        self.is_blocked = False


_STRETCHES: Final = 3
"""Stretches that a parcel may take: it leaves at the end of the next one, and is released at the end of the one after.
"""
_TRAVEL_PERIODS: Final = 2
"""Heartbeats that a publication takes from its publisher to its subscribers, once the mesh has formed."""
