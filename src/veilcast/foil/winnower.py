"""The winnower: of all that the broker brings, the true events, each once.

A fake is known by its slot, and what is in the right one must be a note of the topic with its publisher's signature.
But whatever comes is opened, or tried to: else a broker that sends one candidate ten thousand times, with a bit of it
changed, would see by the time that it takes whether its slot is the true one. Only the signature is looked at once.

Nothing leaves here but what a publisher of the topic has published, whatever the broker does; it may withhold, and no
more. What was opened before is known by its bytes, which are the same in every repeat; its place in its stream another
publisher of the topic could take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from veilcast.core.outbox import PendingPublication
from veilcast.core.sealed_notification import decode_notification
from veilcast.crypto.derive import digest
from veilcast.errors import ForgedError
from veilcast.foil.event import CandidateHead, open_body, split_candidate
from veilcast.foil.positions import PositionChain, chain_number, derive_topic_chain, true_slot
from veilcast.foil.session_periods import SessionPeriod

FindKnownChain: TypeAlias = Callable[[SessionPeriod, str, CandidateHead], PositionChain | None]
"""What is known of the chain of an event; None if nothing is, yet."""


class Winnower:
    """Bounded: the last `seen_max` events that were opened. `counts` has what was not: fakes, doubles, and what is
    forged or unknown."""

    def __init__(self, root: bytes, chains: FindKnownChain, seen_max: int) -> None:
        self._root, self._chains, self._seen_max = root, chains, seen_max
        self._seen: dict[bytes, None] = {}
        self.counts: Counter[str] = Counter()
        self.chain_unknown = False
        """Whether nothing could be said of the last one, for want of its chain."""

    def __len__(self) -> int:
        return len(self._seen)

    def winnow(self, span: SessionPeriod, topic: str, payload: bytes) -> PendingPublication | None:
        """The event, if this is the true candidate of one that was not seen; raises `RemoteError` for what is none."""
        head, sealed = split_candidate(payload)
        chain = self._chains(span, topic, head)
        self.chain_unknown = chain is None
        if chain is None:
            self.counts["unknown"] += 1
            return None
        secret = chain.at(head.number)
        seen, true = _name(payload) in self._seen, true_slot(secret, head.candidates) == head.slot
        try:
            note = open_body(head, secret, sealed)
        except ForgedError:
            self.counts["forged" if true else "fake"] += 1
            return None
        if not true or seen:
            self.counts["double" if true else "fake"] += 1
            return None
        return PendingPublication(topic, decode_notification(span.keys(topic), note, self._root, span.epoch))

    def mark_seen(self, payload: bytes) -> None:
        """What this had is with its reader: know it from now on."""
        self._seen[_name(payload)] = None
        while len(self._seen) > self._seen_max:
            del self._seen[next(iter(self._seen))]


def _name(payload: bytes) -> bytes:
    return digest(payload, purpose=b"vc/foil-seen", size=16)


class TopicChainCache:
    """Hardened: by the topic's keys. Bounded: the last `chains_max` that were looked for."""

    def __init__(self, chains_max: int) -> None:
        self._most = chains_max
        self._known: dict[tuple[int, str, bytes, int], PositionChain] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, span: SessionPeriod, topic: str, head: CandidateHead) -> PositionChain:
        key = (span.number, topic, head.stream, chain_number(head.number))
        chain = self._known.get(key)
        if chain is None:
            chain = self._known[key] = derive_topic_chain(span.keys(topic), head.stream, key[3])
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return chain
