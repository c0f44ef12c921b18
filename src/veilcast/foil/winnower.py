"""The winnower: selects the true events from all candidates that the broker delivers, each once.

A fake is recognised by its slot, and the candidate in the true slot must be a notification of the topic with its
publisher's signature. But every candidate is opened, or tried: otherwise a broker that sends one candidate ten thousand
times, with one bit changed, would see from the time taken whether its slot is the true one. Only the signature is
checked once.

Claim: the winnower returns only events that a publisher of the topic has published, whatever the broker does. The
broker can withhold events, and nothing else. Opened events are recognised by their bytes, which are the same in every
repeat; by place in the stream they could be displaced by another publisher of the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from veilcast.core.bounded import BoundedMap, BoundedSet
from veilcast.core.outbox import PendingPublication
from veilcast.core.sealed_notification import decode_notification
from veilcast.crypto.derive import digest
from veilcast.errors import ForgedError
from veilcast.foil.event import CandidateHead, open_body, split_candidate
from veilcast.foil.positions import PositionChain, chain_number, derive_topic_chain, true_slot
from veilcast.foil.session_periods import SessionPeriod

FindKnownChain: TypeAlias = Callable[[SessionPeriod, str, CandidateHead], PositionChain | None]
"""The known part of an event's chain; None if it is unknown so far."""


class Winnower:
    """Bounded: the last `seen_max` opened events. `counts` has the others: fakes, duplicates, forged and unknown
    ones."""

    def __init__(self, root: bytes, chains: FindKnownChain, seen_max: int) -> None:
        self._root, self._chains = root, chains
        self._seen: BoundedSet[bytes] = BoundedSet(seen_max)
        self.counts: Counter[str] = Counter()
        self.chain_unknown = False
        """True if the last candidate could not be judged because its chain is unknown."""

    def __len__(self) -> int:
        return len(self._seen)

    def winnow(self, period: SessionPeriod, topic: str, payload: bytes) -> PendingPublication | None:
        """The event, if this is the true candidate of an unseen one; raises `RemoteError` for an invalid candidate."""
        head, sealed = split_candidate(payload)
        chain = self._chains(period, topic, head)
        self.chain_unknown = chain is None
        if chain is None:
            self.counts["unknown"] += 1
            return None
        secret = chain.at(head.number)
        was_seen, is_true = _payload_id(payload) in self._seen, true_slot(secret, head.candidates) == head.slot
        try:
            note = open_body(head, secret, sealed)
        except ForgedError:
            self.counts["forged" if is_true else "fake"] += 1
            return None
        if not is_true or was_seen:
            self.counts["double" if is_true else "fake"] += 1
            return None
        return PendingPublication(topic, decode_notification(period.keys(topic), note, self._root, period.epoch))

    def mark_seen(self, payload: bytes) -> None:
        """The subscriber has this event: recognise it from now on."""
        self._seen.add(_payload_id(payload))


def _payload_id(payload: bytes) -> bytes:
    return digest(payload, purpose=b"vc/foil-seen", size=16)


class TopicChainCache:
    """Hardened: derived from the topic's keys. Bounded: the last `chains_max` chains."""

    def __init__(self, chains_max: int) -> None:
        self._known: BoundedMap[tuple[int, str, bytes, int], PositionChain] = BoundedMap(chains_max)

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, period: SessionPeriod, topic: str, head: CandidateHead) -> PositionChain:
        key = (period.number, topic, head.stream, chain_number(head.number))
        chain = self._known.get(key)
        if chain is None:
            chain = self._known[key] = derive_topic_chain(period.keys(topic), head.stream, key[3])
        return chain
