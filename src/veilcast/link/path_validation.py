"""Path validation: a link follows its peer to another address only after the peer has answered a challenge there.

A cell that is authentic proves who sealed it, and not where the sealer is: an adversary on the path can stop the cell
and send it on from elsewhere, and a hostile member can write any source. So, as QUIC does (RFC 9000, 8.2 and 9.3):

1. The newest cell of a peer comes from an unknown address. That address becomes the candidate, one for each link.
2. The next cells to the address in use carry a challenge, 8 random bytes. The peer answers it if it still receives
   there; then the candidate is dropped. The answer counts from whatever address it comes (RFC 9000, 9.3.3).
3. If no answer has come after `PROBE_AFTER_US`, a cell to the candidate, in the place of one to the address in use,
   carries another challenge. At most as many cells go to the candidate as came from there, and one in `PROBE_SLOTS`.
4. The link moves when the answer has come from the candidate, and the address in use has been silent for `GRACE_US`.
5. The address at which the link began, its home, is preferred. A link away from home sends a challenge there now and
   then, each time after twice as long; the answer brings the link home at once.

Claim: an adversary moves a link to an address of its own only if it stops the cells of the address in use, and carries
cells between both peers; and it keeps the link only until a challenge to the home is answered.
Assumption: challenges cannot be guessed, and nobody but the peer can read or write cells of the link.
Reason: the answer to the candidate's challenge needs a cell that went there to reach the peer. If the address in use
reaches the peer as well, the peer answers the challenge that went there, and step 2 drops the candidate.

What remains: the adversary that stops and carries all cells is a relay on the path, which it was before.

Every slot carries one cell of one size, whatever is validated. Path frames stand where padding would, and what happens
depends on addresses and times alone, never on what cells carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from veilcast.link.chunks import CHALLENGE, RESPONSE, TOKEN, PathFrame, write_path_frame
from veilcast.machine import Address, Entropy


class Route:
    """Where the cells of one link go. Bounded: one candidate, and two challenges of the peer to answer.

    `listed` are the addresses under which the owner of the route has entered the link in its table.
    """

    __slots__ = (
        "_answers",
        "_check",
        "_entropy",
        "_home_every_us",
        "_home_us",
        "_rest_us",
        "_slots",
        "home",
        "listed",
        "path",
    )

    def __init__(self, home: Address, entropy: Entropy) -> None:
        self.home: Final = home
        self.path = home
        self.listed: tuple[Address, ...] = ()
        self._entropy = entropy
        self._check: _Check | None = None
        self._answers: list[bytes] = []
        """Challenges of the peer, the earliest first: none is lost to a later one."""
        self._slots = PROBE_SLOTS
        self._rest_us = 0
        self._home_us, self._home_every_us = 0, HOME_FIRST_US

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The address in use, and the candidate if there is one."""
        return (self.path,) if self._check is None else (self.path, self._check.address)

    def hear(self, source: Address, frames: Sequence[PathFrame], *, follow: bool, now: int) -> None:
        """Note that a new cell of the peer has come from `source` with these path frames.

        `follow` says whether the source may become the candidate.
        """
        for kind, token in frames:
            if kind == RESPONSE:
                self._hear_response(token, source, now)
            elif token not in self._answers and len(self._answers) < ANSWERS_MAX:
                self._answers.append(token)
        if source != self.path and follow:
            self._suspect(source, now)
        self._settle(now)

    def next_cell(self, now: int) -> tuple[Address, bytes]:
        """The destination of the cell that is due, and the path frames for it. To be called once a slot."""
        self._settle(now)
        if self._check is None and self._is_home_due(now):
            self._check = self._check_of(self.home, now)
        self._slots += 1
        frames = b"".join(write_path_frame(RESPONSE, token) for token in self._answers)
        self._answers.clear()
        check = self._check
        if check is None:
            return self.path, frames
        is_home = check.address == self.home
        has_waited = is_home or (check.asked_us is not None and now - check.asked_us >= PROBE_AFTER_US)
        if has_waited and check.credit and self._slots >= PROBE_SLOTS:
            self._slots = 0
            check.credit -= 1
            return check.address, write_path_frame(CHALLENGE, check.token) + frames
        if is_home:
            return self.path, frames
        if check.asked_us is None:
            check.asked_us = now
        return self.path, write_path_frame(CHALLENGE, check.path_token) + frames

    def _suspect(self, source: Address, now: int) -> None:
        check = self._check
        if check is not None and check.address == source:
            check.credit = min(check.credit + 1, CREDIT_MAX)
        elif source == self.home or (check is None and now >= self._rest_us and not self._is_home_due(now)):
            self._check = self._check_of(source, now)

    def _check_of(self, address: Address, now: int) -> _Check:
        return _Check(address, self._entropy(TOKEN), self._entropy(TOKEN), now)

    def _is_home_due(self, now: int) -> bool:
        return self.path != self.home and now >= self._home_us

    def _hear_response(self, token: bytes, source: Address, now: int) -> None:
        check = self._check
        if check is None:
            return
        if token == check.token and source == check.address:
            check.is_answered = True
        elif token == check.path_token and check.asked_us is not None:
            self._check, self._rest_us = None, now + REST_US

    def _settle(self, now: int) -> None:
        """Move, if the candidate has answered and the address in use has not; give up a candidate that is silent."""
        check = self._check
        if check is None:
            return
        if check.is_answered and check.address == self.home:
            self.path, self._check, self._home_every_us = self.home, None, HOME_FIRST_US
        elif check.is_answered and check.asked_us is not None and now - check.asked_us >= GRACE_US:
            if self.path == self.home:
                self._home_us = now + self._home_every_us
            self.path, self._check = check.address, None
        elif now - check.began_us >= VALIDATION_US:
            self._check = None
            if check.address == self.home:
                self._home_every_us = min(2 * self._home_every_us, HOME_LAST_US)
                self._home_us = now + self._home_every_us


@dataclass(slots=True)
class _Check:
    """One candidate, its challenge, and the challenge to the address in use."""

    address: Address
    token: bytes
    path_token: bytes
    began_us: int
    asked_us: int | None = None
    """When the address in use was first sent its challenge."""
    credit: int = 1
    """Cells that came from the candidate, less those that went there."""
    is_answered: bool = False


SECOND_US: Final = 1_000_000
PROBE_SLOTS: Final = 4
"""A cell to a candidate takes the place of at most one cell in this many to the address in use."""
PROBE_AFTER_US: Final = SECOND_US
"""Time from the challenge to the address in use until the one to the candidate: most false candidates get none."""
GRACE_US: Final = 2 * SECOND_US
"""Time that the address in use has to answer: a period of the slowest class with its sway, and a round trip."""
VALIDATION_US: Final = 12 * SECOND_US
"""Time that a candidate has to answer; three challenges in the slowest class."""
REST_US: Final = 4 * SECOND_US
"""Time without a candidate after the address in use has answered."""
HOME_FIRST_US: Final = 15 * SECOND_US
HOME_LAST_US: Final = 3600 * SECOND_US
"""Time from leaving home to the first challenge there; each later one waits twice as long, up to the second bound."""
ANSWERS_MAX: Final = 2
CREDIT_MAX: Final = 3
