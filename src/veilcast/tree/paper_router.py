"""The paper's routing (P2 4.2): a Bloom filter for each destination, and three ways to keep messages from circulating.

A publication goes to every destination whose filter matches it. By topic alone, a node sends to every parent that it
has for the topic, in whichever tree the message arrived. With "labels", as in the paper, a message carries a filter of
the labels of all nodes that have forwarded it. "seen" makes each node remember the messages that it forwarded. "trees"
keeps the trees apart, as the paper's own count of messages assumes: filters then belong to trees rather than parents,
only the origin matches, and from there on a message names its tree.

A node seals nothing that it uses for forwarding, and accepts instructions from any sender.

Loop labels. P2: "each message will carry a header with a Bloom Filter storing unique labels that nodes can check to see
if they have already forwarded the same message"; labels are random and change at intervals. A label here is `hashes`
different bits of `bits`, redrawn every `every_us`. The previous label still counts, because a message may come round
just after the change.

Cost of labels. A node may find its label's bits set by others, and drop a message that it never saw. With u bits set in
a header of m bits and labels of k bits, this happens with probability C(u, k) / C(m, k). Each node that forwards the
message sets as many new bits as its draw gives. So the probability of a loss on a path is a sum over the number of bits
set, and exact (`loss_probability`). With k = 4, a message that passes 10 nodes is lost with .81 % in 128 bits, and with
.061 % in 256. (Bits drawn one by one, as hashes give them, can coincide: the usual formula then says .9 % and .07 %.)

Leakage of labels. The number of bits set is about k times the number of nodes passed, and no bit is set at the first
node. Labels stop cycles, not copies: a message that arrives on two paths has two headers
(`tests/papers/test_p2_tree_flaws.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from random import Random
from typing import Final

import msgspec

from veilcast.core.bounded import BoundedMap
from veilcast.crypto.derive import digest
from veilcast.crypto.noise import Keypair
from veilcast.errors import ConfigError, ExcessError, LocalError, MalformedError, StaleError
from veilcast.tree.config import TreeConfig
from veilcast.tree.destination_filters import DestinationFilters
from veilcast.tree.hop_queue import HopQueue
from veilcast.tree.instruction_bundles import Instruction, open_layer
from veilcast.tree.membership_proof import bundle_context
from veilcast.wire.geometry import MOMENT_MAX, NOTE_ID
from veilcast.wire.tree import ForwardPublication, Install, Offer


class PaperRouter:
    """Bounded: `filters_max` filters, and `seen_max` messages that are recognised when they arrive again."""

    def __init__(
        self,
        config: TreeConfig,
        box: Keypair,
        hop_queue: HopQueue,
        read_passing: Callable[[Offer, int], None],
        accept_arrival: Callable[[ForwardPublication, int], bool],
        rng: Random,
        now: int,
    ) -> None:
        """`read_passing` sees every message that passes; `accept_arrival` takes a message at the end of its tree, and
        returns whether it was."""
        self._config, self._box, self._hop_queue = config, box, hop_queue
        self._read_passing, self._accept_arrival = read_passing, accept_arrival
        self._separate_trees = config.routing == "trees"
        self._filters = DestinationFilters(
            config.filter_geometry, destinations=config.filters_max, counting=config.counting
        )
        self._labels = LoopLabels(LABEL_HEADER, every_us=config.label_us, rng=rng, now=now)
        self._parents: dict[bytes, bytes] = {}
        """Parent in each tree, where "trees" are kept apart."""
        self._seen: BoundedMap[tuple[bytes, bytes], None] = BoundedMap(config.seen_max)

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def seen_count(self) -> int:
        return len(self._seen)

    def install(self, install: Install, now: int) -> None:
        """Add the elements to the filter of this node's parent, and pass the rest on."""
        if install.proof is not None or install.until_us != MOMENT_MAX or len(install.groups) != 1:
            raise MalformedError("not an instruction of the paper's profile")
        layer = open_layer(self._box, install.sealed, context=bundle_context(install.until_us, install.groups))
        if not self._is_new(_INSTALLED, digest(install.sealed, purpose=b"vc/tree-poured", size=NOTE_ID)):
            return  # Counting filters would count it twice.
        self._apply(layer.instruction, install)
        for child, bundle in layer.children:
            self._hop_queue.send(child, msgspec.structs.replace(install, number=0, sealed=bundle), now)

    def offer(self, offer: Offer, now: int) -> None:
        """A publication, from its publisher or from a node below this one."""
        if offer.proof is not None or (offer.labels is not None) != (self._config.routing == "labels"):
            raise MalformedError("not an offer of the paper's profile, or of another routing")
        marked = offer
        if offer.labels is not None:
            labels = self._labels.mark(offer.labels, now)
            if labels is None:
                return
            marked = msgspec.structs.replace(offer, labels=labels)
        elif not self._is_new(b"", offer.message):
            return
        self._read_passing(offer, now)
        for destination in self._filters.match(offer.groups):
            if self._separate_trees:
                self._hop_queue.send(
                    self._parents[destination], ForwardPublication(0, destination, offer.message, offer.body), now
                )
            else:
                self._hop_queue.send(destination, msgspec.structs.replace(marked, number=0), now)

    def forward(self, carry: ForwardPublication, now: int) -> None:
        """A publication in one tree; only with routing "trees"."""
        if not self._separate_trees:
            raise MalformedError("trees have no names with this routing")
        if not self._is_new(carry.entry, carry.message) or self._accept_arrival(carry, now):
            return
        parent = self._parents.get(carry.entry)
        if parent is None:
            del self._seen[carry.entry, carry.message]
            raise StaleError("the tree is unknown")
        self._hop_queue.send(parent, msgspec.structs.replace(carry, number=0), now)

    def _apply(self, instruction: Instruction, install: Install) -> None:
        destination = instruction.entry if self._separate_trees else instruction.parent
        (elements,) = install.groups
        try:
            if install.removes:
                self._filters.remove(destination, elements)
            elif (
                not self._separate_trees
                or self._parents.setdefault(instruction.entry, instruction.parent) == instruction.parent
            ):
                self._filters.add(destination, elements)
        except LocalError as error:
            raise ExcessError("the filter is full") from error

    def _is_new(self, entry: bytes, message: bytes) -> bool:
        new = (entry, message) not in self._seen
        self._seen.renew((entry, message), None)
        return new


class LabelHeader(msgspec.Struct, frozen=True):
    """Size of a header, and the number of bits of a label."""

    bits: int = 128
    hashes: int = 4

    def __post_init__(self) -> None:
        if not (8 <= self.bits <= LABEL_BITS_MAX and self.bits % 8 == 0):
            raise ConfigError(f"a header has 8 to {LABEL_BITS_MAX} bits, in whole bytes")
        if not 1 <= self.hashes < self.bits:
            raise ConfigError("a label has at least one bit, and not all")

    def empty(self) -> bytes:
        return bytes(self.bits // 8)

    def draw(self, rng: Random) -> int:
        """A label, as a number with its bits set."""
        return sum(1 << bit for bit in rng.sample(range(self.bits), self.hashes))

    def read(self, header: bytes) -> int:
        if len(header) != self.bits // 8:
            raise MalformedError("a header of another size")
        return int.from_bytes(header, "big")

    def loss_probability(self, path: int) -> float:
        """Probability that one of `path` different nodes in a row mistakes the message for one that it has
        forwarded."""
        survives = {0: 1.0}
        for _ in range(path):
            after: dict[int, float] = {}
            for filled, chance in survives.items():
                for new in range(1, min(self.hashes, self.bits - filled) + 1):
                    draws = comb(self.bits - filled, new) * comb(filled, self.hashes - new)
                    after[filled + new] = after.get(filled + new, 0.0) + chance * draws / comb(self.bits, self.hashes)
            survives = after
        return 1.0 - sum(survives.values())


class LoopLabels:
    """The labels of one node."""

    def __init__(self, headers: LabelHeader, *, every_us: int, rng: Random, now: int) -> None:
        if every_us < 1:
            raise ConfigError("labels change at intervals of at least a microsecond")
        self._headers = headers
        self._every_us = every_us
        self._rng = rng
        self._label = self._previous = headers.draw(rng)
        self._until_us = now + every_us

    def mark(self, header: bytes, now: int) -> bytes | None:
        """The header with this node's label; None if it has the label already. `MalformedError` for an invalid
        header."""
        self._change(now)
        marks = self._headers.read(header)
        if any(marks & label == label for label in (self._label, self._previous)):
            return None
        return (marks | self._label).to_bytes(len(header), "big")

    def _change(self, now: int) -> None:
        if now < self._until_us:
            return
        # After a whole interval without a message, no message with the previous label can be in flight.
        self._previous = self._label if now < self._until_us + self._every_us else self._headers.draw(self._rng)
        self._label = self._headers.draw(self._rng)
        self._until_us = now + self._every_us


LABEL_BITS_MAX: Final = 1024
_INSTALLED: Final = b"install"
"""Stands for the tree of an instruction in `_seen`."""
LABEL_HEADER: Final = LabelHeader()
"""128 bits, four for each label."""
