"""Cover stems: every member sends a parcel over its stem in every stretch of time, whether it publishes or not.

An insider on a stem sees when a message leaves its publisher, and of which neighbour it comes. Both add up over months.
With cover stems neither says anything:

1. Time is divided into stretches, for all members alike. In each, a member sends one parcel to the root of each topic
   that is due, at a random moment. The topics that are due in a stretch are the same for all, and their number is
   bounded.
2. A parcel is sealed for the root and has one of a few sizes. It holds a waiting publication or call, or nothing. So a
   relay, the first one too, sees the same of a member that publishes as of every other member.
3. The root never acknowledges a parcel. It releases what came in one stretch at random moments of the next. Then every
   present member has sent a parcel, so the release says only that the publisher was there in the stretch before. With
   `hold_back_epochs` the publisher draws the epoch of the release, and seals the publication with the keys of that
   epoch. With those of its own epoch it would show when it was sealed, however long a root held it.
4. The publisher holds a grant, so it is in the mesh of its topic. Its publication is settled when it comes back through
   the mesh, and is sent again in a later parcel until then.

Claim: all that leaves a member outside of the mesh, and its moments, have the same distribution whether it publishes or
not. Assumption: its publications fit the smallest size, and the topic has a root. Reason: the sender's random moments
are drawn before it looks for something to send, and the sealed bytes of two contents of one size differ in nothing that
a relay can compute.
Limit: a call for the first root of a topic, and publications in a mass failure, travel in the open (`stem`). A
publication beyond the smallest size makes its parcel larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from veilcast.core.bounded import BoundedMap
from veilcast.crypto.derive import digest
from veilcast.crypto.noise import Keypair
from veilcast.crypto.sealed_box import box, unbox
from veilcast.errors import MalformedError
from veilcast.machine import Entropy
from veilcast.mesh.stem import Cargo, cargo_id
from veilcast.wire import decode, encode
from veilcast.wire.geometry import BOX_OVERHEAD, LENGTH_PREFIX, PARCEL_SIZES
from veilcast.wire.mesh import Call, Notify, Parcel
from veilcast.wire.padding import pad, unpad


class ParcelAddress(NamedTuple):
    """The root of one topic, or of one of its cells: the token of its mesh, and its public link key."""

    topic_lineage: bytes
    lineage: bytes
    token: bytes
    root: bytes


class CoverStems:
    """One member's parcels. Bounded: at most `waiting_max` contents wait, of all topics together."""

    def __init__(
        self,
        addresses: Callable[[int], Iterable[ParcelAddress]],
        launch: Callable[[Cargo, bytes, int], bool],
        rng: Random,
        entropy: Entropy,
        *,
        stretch_us: int,
        period_us: int,
        waiting_max: int,
        held_epochs: int = 0,
    ) -> None:
        """`addresses` are those of the roots that this node knows now. `stretch_us` is 0 if there are no parcels;
        `period_us` is the time between two calls of `beat`."""
        self._addresses, self._launch, self._rng, self._entropy = addresses, launch, rng, entropy
        self._stretch_us, self._period_us, self._waiting_max = stretch_us, period_us, waiting_max
        self._held_epochs = held_epochs
        self._in_the_open: BoundedMap[bytes, None] = BoundedMap(waiting_max)
        self._waiting: dict[bytes, dict[bytes, None]] = {}
        self._sent: BoundedMap[bytes, None] = BoundedMap(4 * waiting_max)
        self._stretch = -1
        self._due_us: dict[bytes, int] = {}

    def put(self, lineage: bytes, content: bytes, now: int) -> bool:
        """Send these bytes with the next parcel to the root of this lineage; False if parcels cannot carry them."""
        if not self.carries(lineage, now) or len(content) > CONTENT_MAX:
            return False
        waiting = self._waiting.setdefault(lineage, {})
        if content not in waiting and sum(map(len, self._waiting.values())) >= self._waiting_max:
            return False
        waiting[content] = None
        return True

    def carries(self, lineage: bytes, now: int) -> bool:
        return self._stretch_us > 0 and any(each.lineage == lineage for each in self._addresses(now))

    def hold_epochs(self, lineage: bytes, now: int) -> int:
        """Epochs by which a publisher may put off a publication of this lineage: none if it travels in the open."""
        return self._held_epochs if self.carries(lineage, now) else 0

    def launch_in_the_open(self, cargo: Cargo, lineage: bytes, now: int) -> bool:
        """Send a cargo that relays can read; False while the first relay is away."""
        self._in_the_open.renew(cargo_id(encode(cargo)), None)
        return self._launch(cargo, lineage, now)

    def was_sealed(self, content_id: bytes) -> bool:
        """True if this content has left in parcels alone, so that no relay can have shown it to this node."""
        return content_id in self._sent and content_id not in self._in_the_open

    def clear(self) -> None:
        """Drop what waits: the outbox repeats what is not withdrawn."""
        self._waiting.clear()

    def beat(self, now: int) -> None:
        if self._stretch_us == 0:
            return
        stretch = now // self._stretch_us
        if stretch != self._stretch:
            self._begin(stretch, now)
        due = [lineage for lineage, due_us in self._due_us.items() if due_us <= now]
        known = {each.lineage: each for each in self._addresses(now)} if due else {}
        for lineage in due:
            del self._due_us[lineage]
            if lineage in known:
                self._send(known[lineage], now)

    def release_us(self, first_us: int, end_us: int, now: int) -> int:
        """Time at which the root releases a notification that a parcel brings now, for the epoch between these times: a
        random moment of the next stretch or, if the epoch is still to come, of that epoch."""
        stretch_us = (now // self._stretch_us + 1) * self._stretch_us
        if first_us > now:
            return first_us + self._rng.randrange(max(1, end_us - first_us - 2 * self._stretch_us))
        return stretch_us + self._rng.randrange(self._stretch_us)

    def size(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _begin(self, stretch: int, now: int) -> None:
        """Draw a moment for each topic that is due in this stretch. Of many topics, a part is due, the same for all."""
        self._stretch = stretch
        name = stretch.to_bytes(8, "big")
        lineages = dict.fromkeys(each.lineage for each in self._addresses(now))
        ranked = sorted(lineages, key=lambda lineage: digest(name + lineage, purpose=b"vc/parcels", size=8))
        # The last heartbeat of the stretch is left for parcels that are due after the last but one, and for their way.
        rest_us = (stretch + 1) * self._stretch_us - 2 * self._period_us - now
        self._due_us = {lineage: now + self._rng.randrange(max(1, rest_us)) for lineage in ranked[:DUE_MAX]}
        for lineage in [waiting for waiting in self._waiting if waiting not in lineages]:
            del self._waiting[lineage]

    def _send(self, address: ParcelAddress, now: int) -> None:
        waiting = self._waiting.get(address.lineage, {})
        content = next(iter(waiting), b"")
        if self._launch(seal_parcel(address, content, self._entropy), address.topic_lineage, now) and content:
            del waiting[content]
            self._sent.renew(cargo_id(content), None)


def seal_parcel(address: ParcelAddress, content: bytes, entropy: Entropy) -> Parcel:
    """A parcel with this content; b"" is a cover. Raises `MalformedError` if the root has no usable key."""
    size = next(size for size in PARCEL_SIZES if len(content) + LENGTH_PREFIX <= size)
    return Parcel(
        address.token,
        box(address.root, pad(content, size), purpose=_PURPOSE, entropy=entropy, context=address.token),
    )


def open_parcel(parcel: Parcel, reader: Keypair) -> bytes:
    """The content; b"" of a cover. Raises for a parcel that was not sealed for this member."""
    return unpad(unbox(reader, parcel.sealed, purpose=_PURPOSE, context=parcel.token))


def read_parcel(parcel: Parcel, reader: Keypair) -> Call | Notify | None:
    """What a parcel brings to its root; None if it is a cover."""
    if not (content := open_parcel(parcel, reader)):
        return None
    cargo = decode(content)
    if not isinstance(cargo, (Call, Notify)):
        raise MalformedError("a parcel that contains neither a call nor a notification")
    return cargo


def check_parcel(parcel: Parcel) -> None:
    """Raise unless it has a usual size."""
    if len(parcel.sealed) - BOX_OVERHEAD not in PARCEL_SIZES:
        raise MalformedError("a parcel of no usual size")


CONTENT_MAX: Final = PARCEL_SIZES[-1] - LENGTH_PREFIX
DUE_MAX: Final = 8
"""Topics to whose roots a member sends parcels in one stretch."""
_PURPOSE: Final = b"vc/parcel"
