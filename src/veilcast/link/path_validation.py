"""Path validation: a link follows its peer to another address only after the peer has answered a challenge there.

An authentic cell proves who sealed it, and not where the sealer is: an adversary on the path can stop the cell and
forward it from elsewhere, and a hostile member can write any source. So, as in QUIC (RFC 9000, 8.2 and 9.3):

1. The newest cell of a peer comes from an unknown address. That address becomes the candidate, one for each link. A
   candidate from which no more cells come gives way to the next.
2. The next cells to the address in use carry a challenge, 8 random bytes. If the peer still receives there, it answers,
   and the candidate is dropped. The answer counts from whatever address it comes (RFC 9000, 9.3.3).
3. If no answer has come after `PROBE_AFTER_US`, a cell to the candidate, in the place of one to the address in use,
   carries another challenge. At most as many cells go to the candidate as came from there, and one in `PROBE_SLOTS`.
4. The link moves when the answer has come from the candidate, and the address in use has been silent for `GRACE_US`.
5. The address at which the link began, its home, is preferred. A link away from home sends a challenge there now and
   then, each time after twice as long; the answer brings the link home at once. Home is asked in parallel with the
   candidate, so the link also follows a peer that moves again in the meantime.

Claim: while the peer stays where it is, an adversary moves a link to an address of its own only if it stops the cells
of the address in use, and carries cells between both peers. It keeps the link only until a challenge to the home is
answered.
Assumption: challenges cannot be guessed, and only the peer can read or write cells of the link.
Reason: the answer to the candidate's challenge needs a cell that went there to reach the peer. If the address in use
reaches the peer as well, the peer answers the challenge that went there, and step 2 drops the candidate.

Limit: the adversary that stops and carries all cells is a relay on the path, which it was before. When the peer
moves, an adversary need not stop anything to be such a relay: it holds the old address, or the home, and forwards what
comes; or its copies of the peer's cells are always faster than the cells. No rule can tell these cases from a peer that
stays and an adversary that carries elsewhere. When the adversary ceases to carry, the link follows the peer.

Every slot carries one cell of one size, whatever is validated. Path frames take the place of padding. Validation
depends on addresses and times alone, never on what cells carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from veilcast.link.chunks import CHALLENGE, RESPONSE, TOKEN, PathFrame, write_path_frame
from veilcast.machine import Address, Entropy


class PeerPath:
    """The destination of the cells of one link. Bounded: one candidate, the home, and two challenges of the peer to
    answer.

    `listed_addresses` are the addresses under which the owner has entered the link in its table.
    """

    __slots__ = (
        "_answers",
        "_check",
        "_entropy",
        "_home_check",
        "_home_every_us",
        "_home_us",
        "_rest_us",
        "_slots",
        "home",
        "listed_addresses",
        "path",
    )

    def __init__(self, home: Address, entropy: Entropy) -> None:
        self.home: Final = home
        self.path = home
        self.listed_addresses: tuple[Address, ...] = ()
        self._entropy = entropy
        self._check: _CandidateProbe | None = None
        self._home_check: _PathProbe | None = None
        self._answers: list[bytes] = []
        """Challenges of the peer, earliest first: a later one never displaces an earlier one."""
        self._slots = PROBE_SLOTS
        self._rest_us = 0
        self._home_us, self._home_every_us = 0, HOME_FIRST_US

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The address in use, and the addresses that are being validated."""
        return (self.path, *(probe.address for probe in (self._home_check, self._check) if probe is not None))

    def on_cell(self, source: Address, frames: Sequence[PathFrame], *, follow: bool, now: int) -> None:
        """A new cell of the peer has come from `source` with these path frames.

        `follow`: the source may become the candidate.
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
        """The destination of the due cell, and its path frames. The machine calls this once for each slot."""
        self._settle(now)
        if self.path != self.home and self._home_check is None and now >= self._home_us:
            self._home_check = _PathProbe(self.home, self._entropy(TOKEN), now, now)
        self._slots += 1
        frames = b"".join(write_path_frame(RESPONSE, token) for token in self._answers)
        self._answers.clear()
        check = self._check
        if (probe := self._due_probe(now)) is not None:
            self._slots = 0
            probe.credit -= 1
            return probe.address, write_path_frame(CHALLENGE, probe.token) + frames
        if check is None:
            return self.path, frames
        if check.asked_us is None:
            check.asked_us = now
        return self.path, write_path_frame(CHALLENGE, check.path_token) + frames

    def _due_probe(self, now: int) -> _PathProbe | None:
        """The address that gets a challenge in this slot, in place of the address in use: home first."""
        if self._slots < PROBE_SLOTS:
            return None
        if self._home_check is not None and self._home_check.credit:
            return self._home_check
        check = self._check
        has_waited = check is not None and check.asked_us is not None and now - check.asked_us >= PROBE_AFTER_US
        return check if check is not None and has_waited and check.credit else None

    def _suspect(self, source: Address, now: int) -> None:
        probe = self._home_check if source == self.home else self._check
        if probe is not None and probe.address == source:
            probe.credit, probe.heard_us = min(probe.credit + 1, CREDIT_MAX), now
        elif source == self.home:
            self._home_check = _PathProbe(source, self._entropy(TOKEN), now, now)
        elif now >= self._rest_us and (probe is None or now - probe.heard_us >= LEFT_US):
            self._check = _CandidateProbe(source, self._entropy(TOKEN), now, now, path_token=self._entropy(TOKEN))

    def _hear_response(self, token: bytes, source: Address, now: int) -> None:
        for probe in (self._home_check, self._check):
            if probe is not None and token == probe.token and source == probe.address:
                probe.is_answered = True
        check = self._check
        if check is not None and token == check.path_token and check.asked_us is not None:
            self._check, self._rest_us = None, now + REST_US

    def _settle(self, now: int) -> None:
        """Move if home has answered, or if the candidate has and the address in use has not. Give up silent
        addresses."""
        home, check = self._home_check, self._check
        if home is not None and home.is_answered:
            self.path, self._home_check, self._check, self._home_every_us = self.home, None, None, HOME_FIRST_US
            return
        if home is not None and now - home.began_us >= VALIDATION_US:
            self._home_check, self._home_every_us = None, min(2 * self._home_every_us, HOME_LAST_US)
            self._home_us = now + self._home_every_us
        if check is None:
            return
        if check.is_answered and check.asked_us is not None and now - check.asked_us >= GRACE_US:
            if self.path == self.home:
                self._home_us = now + self._home_every_us
            self.path, self._check = check.address, None
        elif now - check.began_us >= VALIDATION_US:
            self._check = None


@dataclass(slots=True)
class _PathProbe:
    """An address, and the challenge to it."""

    address: Address
    token: bytes
    began_us: int
    heard_us: int
    """Time of the last cell from the address, or of the start of the probe."""
    credit: int = 1
    """Cells that came from the address, less the cells that went there; one for a home that is due."""
    is_answered: bool = False


@dataclass(slots=True)
class _CandidateProbe(_PathProbe):
    """A candidate, its challenge, and the challenge to the address in use."""

    path_token: bytes = field(kw_only=True)
    asked_us: int | None = None
    """Time at which the address in use was first sent its challenge."""


SECOND_US: Final = 1_000_000
PROBE_SLOTS: Final = 4
"""A cell to a candidate takes the place of at most one cell in this many to the address in use."""
PROBE_AFTER_US: Final = SECOND_US
"""Time from the challenge to the address in use until the one to the candidate: most false candidates get none."""
GRACE_US: Final = 2 * SECOND_US
"""Time that the address in use has to answer: a period of the slowest class with its sway, and a round trip."""
VALIDATION_US: Final = 12 * SECOND_US
"""Time that a candidate has to answer; three challenges in the slowest class."""
LEFT_US: Final = 3 * SECOND_US
"""Time without a cell from a candidate, after which another address can become the candidate."""
REST_US: Final = 4 * SECOND_US
"""Time without a candidate after the address in use has answered."""
HOME_FIRST_US: Final = 15 * SECOND_US
HOME_LAST_US: Final = 3600 * SECOND_US
"""Time from leaving home to the first challenge there; each later one waits twice as long, up to the second bound."""
ANSWERS_MAX: Final = 2
CREDIT_MAX: Final = 3
