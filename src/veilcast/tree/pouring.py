"""The paper's routing (P2 4.2): a Bloom filter for each destination, and three ways to keep messages from circling.

Whatever matches a destination's filter goes there. By topic alone, a node sends to every parent that it has for it, in
whichever tree a message came: "labels" is the paper, where a message carries a filter of the labels of all who have
forwarded it, and "seen" has each node remember the messages that it forwarded. "trees" keeps the trees apart, as the
paper's own count of messages supposes: filters are then of trees and not of parents, only the origin matches, and from
there on a message names its tree.

Nothing is sealed that a node forwards by, and instructions are taken from everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from veilcast.crypto.derive import digest
from veilcast.crypto.noise import Keypair
from veilcast.errors import ExcessError, LocalError, MalformedError, StaleError
from veilcast.link.recent import remember
from veilcast.tree.bundles import Instruction, open_layer
from veilcast.tree.config import TreeConfig
from veilcast.tree.filters import Filters
from veilcast.tree.hops import Hops
from veilcast.tree.labels import Headers, Labels
from veilcast.tree.proofs import context_of
from veilcast.wire.geometry import MOMENT_MAX, NOTE_ID
from veilcast.wire.tree import Carry, Install, Offer


class Pouring:
    """Bounded: `filters_max` filters, `seen_max` messages that are known when they come again."""

    def __init__(
        self,
        config: TreeConfig,
        box: Keypair,
        hops: Hops,
        arrive: Callable[[Offer, int], None],
        end: Callable[[Carry, int], bool],
        rng: Random,
        now: int,
    ) -> None:
        """`arrive` is shown all that passes; `end` takes what has come to the end of its tree, and says if it has."""
        self._config, self._box, self._hops = config, box, hops
        self._arrive, self._end = arrive, end
        self._trees = config.routing == "trees"
        self._filters = Filters(config.filter_geometry, destinations=config.filters_max, counting=config.counting)
        self._labels = Labels(HEADERS, every_us=config.label_us, rng=rng, now=now)
        self._parents: dict[bytes, bytes] = {}
        """Of each tree, where "trees" are kept apart."""
        self._seen: dict[tuple[bytes, bytes], None] = {}

    def __len__(self) -> int:
        return len(self._filters)

    @property
    def seen(self) -> int:
        return len(self._seen)

    def install(self, install: Install, now: int) -> None:
        """Pour what is wanted into the filter of our parent, and hand on the rest."""
        if install.proof is not None or install.until_us != MOMENT_MAX or len(install.groups) != 1:
            raise MalformedError("not an instruction of the paper's profile")
        layer = open_layer(self._box, install.sealed, context=context_of(install.until_us, install.groups))
        if not self._is_new(_INSTALLED, digest(install.sealed, purpose=b"vc/tree-poured", size=NOTE_ID)):
            return  # Filters that count would count it twice.
        self._pour(layer.instruction, install)
        for child, bundle in layer.children:
            self._hops.send(child, msgspec.structs.replace(install, number=0, sealed=bundle), now)

    def offer(self, offer: Offer, now: int) -> None:
        """A publication, from its publisher or from a node below us."""
        if offer.proof is not None or (offer.labels is not None) != (self._config.routing == "labels"):
            raise MalformedError("not an offer of the paper's profile, or of another way to route")
        marked = offer
        if offer.labels is not None:
            labels = self._labels.mark(offer.labels, now)
            if labels is None:
                return
            marked = msgspec.structs.replace(offer, labels=labels)
        elif not self._is_new(b"", offer.message):
            return
        self._arrive(offer, now)
        for destination in self._filters.match(offer.groups):
            if self._trees:
                self._hops.send(self._parents[destination], Carry(0, destination, offer.message, offer.body), now)
            else:
                self._hops.send(destination, msgspec.structs.replace(marked, number=0), now)

    def carry(self, carry: Carry, now: int) -> None:
        """A publication on its way in one tree; only where these are kept apart."""
        if not self._trees:
            raise MalformedError("no tree has a name here")
        if not self._is_new(carry.entry, carry.message) or self._end(carry, now):
            return
        parent = self._parents.get(carry.entry)
        if parent is None:
            del self._seen[carry.entry, carry.message]
            raise StaleError("nothing is known of this tree")
        self._hops.send(parent, msgspec.structs.replace(carry, number=0), now)

    def _pour(self, told: Instruction, install: Install) -> None:
        destination = told.entry if self._trees else told.parent
        (elements,) = install.groups
        try:
            if install.removes:
                self._filters.take_out(destination, elements)
            elif not self._trees or self._parents.setdefault(told.entry, told.parent) == told.parent:
                self._filters.pour(destination, elements)
        except LocalError as error:
            raise ExcessError("no filter has room for this") from error

    def _is_new(self, entry: bytes, message: bytes) -> bool:
        new = (entry, message) not in self._seen
        remember(self._seen, (entry, message), None, self._config.seen_max)
        return new


_INSTALLED: Final = b"install"
"""In the place of a tree: seen as an instruction."""
HEADERS: Final = Headers()
"""As the notes have measured them: 128 bits, four for each label."""
