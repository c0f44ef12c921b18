"""The joiner's machine: from a code to the authority's reply, over one place that may lie, go away and come back.

1. The joiner's confirmation lets a false inviter try one password. So the joiner sends at most `CONFIRMATIONS_MAX`,
   however often the connection breaks: whoever holds the place has that many guesses among 2^32.
2. The offer opens only under the right key, so it is the inviter's, and with it the authority's public key.
3. The owner makes the request once. After a broken connection the machine runs again and asks the same; the inviter
   answers the same. A different offer in a later run ends the try.
4. REFUSED and silence are nobody's word: they end this try, and leave the invitation and the request as they are.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from veilcast.crypto.cpace import SHARE_SIZE, CpaceRun
from veilcast.errors import MalformedError, RemoteError
from veilcast.invitation.channel import SealedChannel, begin_run, expect
from veilcast.invitation.code import InvitationCode
from veilcast.invitation.inviter import PURPOSE
from veilcast.invitation.messages import (
    FrameKind,
    InvitationOffer,
    JoinReceipt,
    JoinRefusal,
    JoinReply,
    JoinRequest,
    Reason,
)
from veilcast.machine import Address, Connect, Disconnect, Entropy, Event, Frame


class Invited(Event, frozen=True):
    """The code is right. The owner makes a request and calls `ask`."""

    offer: InvitationOffer


class Granted(Event, frozen=True):
    """The authority's reply. The owner stores the keyring and calls `finish`."""

    reply: bytes


class JoinFailed(Event, frozen=True):
    """This try is over. `reason` is the inviter's or the rendezvous's; `text` the authority's; neither: see `said`."""

    said: str
    reason: Reason | None = None
    text: str = ""


class JoinFinished(Event, frozen=True):
    """The inviter was told that the keyring is stored, as far as this side can tell."""


class Joiner:
    def __init__(self, code: InvitationCode, entropy: Entropy, now: int, patience_us: int) -> None:
        """`patience_us` is how long nothing may come from the inviter."""
        self._code, self._entropy, self._patience_us = code, entropy, patience_us
        self._peer = Address(f"{PURPOSE}@{code.place}")
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque([Connect(self._peer)])
        self._deadline_us: int | None = now + patience_us
        self._again_us: int | None = None
        self._run: CpaceRun | None = None
        self._channel: SealedChannel | None = None
        self._confirmations = self._unknown = 0
        self._was_up = False
        self._offer: InvitationOffer | None = None
        self._ask: JoinRequest | None = None
        self._is_granted = self._is_stored = False

    # --- calls of the owner -----------------------------------------------------------------------------------

    def ask(self, ask: JoinRequest, now: int) -> None:
        self._ask = ask
        self._send_content(ask)
        self._wait(now)

    def finish(self, now: int) -> None:
        """The keyring is on the disk: tell the inviter, and end. If the connection is broken, the machine waits a while
        for the next one."""
        self._is_stored = True
        self._deadline_us = now + RECEIPT_US
        if self._channel is not None:
            self._send_receipt()

    # --- the machine ------------------------------------------------------------------------------------------

    def receive(self, data: bytes, source: Address, now: int) -> None:
        if source != self._peer or self._deadline_us is None:
            return
        try:
            self._take(data, now)
        except RemoteError:
            self._fail(JoinFailed("garbled"))  # A wrong password looks like this, too: the offer does not open.

    def handle_timer(self, now: int) -> None:
        if self._deadline_us is not None and now >= self._deadline_us and self._is_stored:
            self._finish()
        elif self._deadline_us is not None and now >= self._deadline_us:
            self._fail(JoinFailed("silent" if self._was_up else "unreachable"))
        elif self._again_us is not None and now >= self._again_us:
            self._begin()

    def next_timer(self) -> int | None:
        return min((at for at in (self._deadline_us, self._again_us) if at is not None), default=None)

    def frames_to_send(self, now: int, limit: int) -> list[Frame]:
        return [self._frames.popleft() for _ in range(min(limit, len(self._frames)))]

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    def peer_up(self, peer: Address, now: int) -> None:
        if self._deadline_us is not None:
            self._was_up = True
            self._begin()

    def peer_lost(self, peer: Address, now: int) -> None:
        """The driver calls again."""
        self._run = self._channel = self._again_us = None
        self._frames.clear()

    # --- frames -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._again_us = self._channel = None
        self._run = begin_run(self._code, self._entropy)
        number = self._code.number.to_bytes(2, "big")
        self._send(bytes((FrameKind.MEET,)) + number + self._run.share)

    def _take(self, data: bytes, now: int) -> None:
        kind, fields = data[:1], data[1:]
        if kind == bytes((FrameKind.REFUSED,)) and len(fields) == 1 and fields[0] in Reason.__members__.values():
            self._hear_refusal(Reason(fields[0]), now)
        elif kind == bytes((FrameKind.SHARE,)) and self._run is not None and len(fields) == SHARE_SIZE:
            self._confirm(self._run, fields, now)
        elif kind == bytes((FrameKind.SEALED,)) and self._channel is not None:
            self._open(self._channel, fields, now)
        else:
            raise MalformedError("a frame that may not come now")

    def _hear_refusal(self, reason: Reason, now: int) -> None:
        if reason is Reason.UNKNOWN and self._unknown < UNKNOWN_MAX:
            # The inviter's own stream may have broken; it opens the number again.
            self._unknown += 1
            self._run = self._channel = None
            self._again_us = now + AGAIN_US
        elif reason is Reason.BUSY:
            self._run = self._channel = None
            self._again_us = now + AGAIN_US
        else:
            self._fail(JoinFailed("refused", reason))

    def _confirm(self, run: CpaceRun, share: bytes, now: int) -> None:
        if self._confirmations == CONFIRMATIONS_MAX:
            self._fail(JoinFailed("broken"))
            return
        self._confirmations += 1
        self._run = None
        self._channel = SealedChannel(run, share, "joiner", self._entropy)
        self._send(bytes((FrameKind.CONFIRM,)) + self._channel.confirmation.reveal())
        self._wait(now)

    def _open(self, channel: SealedChannel, sealed: bytes, now: int) -> None:
        content = channel.open(sealed)
        self._wait(now)
        if content is None:
            return
        if isinstance(content, InvitationOffer):
            self._hear_offer(content)
            return
        expect(content, JoinReply, JoinRefusal)
        if self._ask is None or self._is_granted:
            raise MalformedError("an answer that nobody asked for")
        if isinstance(content, JoinRefusal):
            self._fail(JoinFailed("refused", text=content.text))
        elif isinstance(content, JoinReply):
            self._is_granted = True
            self._events.append(Granted(content.reply))

    def _hear_offer(self, offer: InvitationOffer) -> None:
        """Clock and count of members may differ between runs; what the request rests on may not."""
        if self._offer is None:
            self._offer = offer
            self._events.append(Invited(offer))
        elif _basis(offer) != _basis(self._offer):
            raise MalformedError("the offer has changed")
        elif self._is_stored:
            self._send_receipt()
        elif self._ask is not None and not self._is_granted:
            self._send_content(self._ask)

    def _send_receipt(self) -> None:
        self._send_content(JoinReceipt())
        self._finish()

    def _finish(self) -> None:
        self._events.append(JoinFinished())
        self._deadline_us = self._again_us = None

    def _send_content(self, content: JoinRequest | JoinReceipt) -> None:
        if self._channel is not None:
            self._frames += [Frame(self._peer, frame) for frame in self._channel.seal(content)]

    def _send(self, data: bytes) -> None:
        self._frames.append(Frame(self._peer, data))

    def _wait(self, now: int) -> None:
        if self._deadline_us is not None:
            self._deadline_us = now + self._patience_us

    def _fail(self, event: JoinFailed) -> None:
        if self._is_stored:
            self._finish()
            return
        self._deadline_us = self._again_us = None
        self._run = self._channel = None
        self._frames.clear()
        self._events += [event, Disconnect(self._peer)]


def _basis(offer: InvitationOffer) -> tuple[bytes, int, str, str, int]:
    return offer.root, offer.epoch_us, offer.topic, offer.role, offer.epochs


CONFIRMATIONS_MAX: Final = 3
UNKNOWN_MAX: Final = 5
"""How often a rendezvous may say that it does not know the number."""
AGAIN_US: Final = 2_000_000
RECEIPT_US: Final = 10_000_000
"""How long a joiner with its keyring waits to tell the inviter, in microseconds."""
