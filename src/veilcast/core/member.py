"""The base of a member's machine: what `machine.Member` asks of every mode in the same way.

A mode derives its machine from `MemberBase` and fills in the methods at the end of the class. The base does what is the
same in every mode: it checks a publication against its topics and hands it to the outbox, and numbers subscriptions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from veilcast.core.host import MachineBase
from veilcast.core.outbox import Outbox, PendingPublication
from veilcast.machine import Event, Interest, Publication
from veilcast.topics import Conjunction, Schema, check_interest, check_publication, topic_of, topics_of


class MemberBase(MachineBase):
    """State and calls that the members of all modes have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.excess = 0
        """Notifications that arrived and that no subscription wanted."""
        self._subscribed = 0
        """The number of the last subscription."""

    def group_size(self) -> int:
        """The number of members that this member knows of; one that knows of nobody counts itself."""
        return 1

    def swaps_played(self) -> int:
        return 0


class OutboxMember(MemberBase, ABC):
    """A member that publishes through an `Outbox`, and whose subscriptions have one topic each."""

    _outbox: Outbox

    def publish(self, publication: Publication, now: int) -> int:
        """Publish on every topic that the publication is labelled with, or on none."""
        drafts = self.draft(publication, now)
        self.version += 1
        return self._outbox.keep(drafts)

    def draft(self, publication: Publication, now: int) -> list[PendingPublication]:
        """The publication in its place on each of its topics. Raises `LocalError` if it could not be sent."""
        topics = topics_of(publication)
        check_publication(publication, {topic: self._schema_of(topic, now) for topic in topics})
        drafts = []
        for topic in topics:
            draft = self._outbox.draft(topic, None, publication)
            self._check_sendable(draft, now)
            drafts.append(draft)
        return drafts

    def subscribe(self, interest: Interest, now: int) -> int:
        """Start a subscription. A `Waiting` event tells from when on it gets what is published."""
        topic, wanted = topic_of(interest)
        check_interest(wanted, topic, self._schema_of(topic, now))
        self._add_subscription(self._subscribed + 1, topic, wanted, now)
        self._subscribed += 1
        self.version += 1
        return self._subscribed

    def stored(self, record: int, now: int) -> None:
        """The driver confirms that a record is on the disk: its publication leaves."""
        self.version += 1
        for pending in self._outbox.stored(record):
            self._send(record, pending, now)

    def _send_unsettled(self, now: int) -> None:
        """Send the publications of earlier lives."""
        for record, pending in self._outbox.unsettled():
            self._send(record, pending, now)

    @abstractmethod
    def _schema_of(self, topic: str, now: int) -> Schema:
        """The schema of a topic that this member has keys for. Raises `LocalError` for any other topic."""

    @abstractmethod
    def _check_sendable(self, pending: PendingPublication, now: int) -> None:
        """Raise `LocalError` if this can never be sent: no publisher's key, or too long."""

    @abstractmethod
    def _send(self, record: int, pending: PendingPublication, now: int) -> None:
        """Send a publication that is on the disk."""

    @abstractmethod
    def _add_subscription(self, number: int, topic: str, interest: Conjunction, now: int) -> None:
        """Start the subscription of this number."""


def first_event(*sources: Callable[[], Event | None]) -> Event | None:
    """The next event of the first source that has one."""
    for source in sources:
        if (event := source()) is not None:
            return event
    return None
