"""Why streams end: for the counters and the log of this computer, never for the other side.

The reasons are texts from a fixed list that identify nobody, so they may be logged. Strangers can cause any number of
them, so the log has only the first `LINES_PER_MINUTE` of each minute. The counters have all of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from veilcast.net.log import Plain


class CloseReasons:
    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._minute = -1
        self._written = 0
        self.counts: Counter[str] = Counter()
        """Streams, handshakes and calls that ended, by reason."""

    def add(self, reason: str) -> None:
        self.counts[reason] += 1
        minute = self._now() // 60_000_000
        if minute != self._minute:
            self._minute, self._written = minute, 0
        self._written += 1
        if self._written <= LINES_PER_MINUTE:
            _LOG.info("a stream ended: %s", Plain(reason))


LINES_PER_MINUTE: Final = 20
"""Log lines of each minute."""

UNREACHABLE: Final = "nobody answers there"
LEFT: Final = "it left before the handshake was over"
LATE: Final = "it took too long"
CLOSED: Final = "it closed the stream"
REFUSED: Final = "it does not let us in"
UNWELCOME: Final = "it began without a welcome"
UNASKED: Final = "the SOCKS port does not take calls as Tor does"
NOT_TLS: Final = "it does not speak TLS 1.3 as we do"
STRANGE: Final = "its certificate is not of our authority"
UNTRUSTED: Final = "no trusted authority has signed its certificate; name the file of the one that did (ca)"
UNSHOWN: Final = "it showed no certificate"
UNFIT: Final = "its certificate is not for this side of a call"
MISNAMED: Final = "its certificate is for another name"
ANOTHER: Final = "another answers there than should"
OVER: Final = "its certificate is not for this time"
TOO_LONG: Final = "it sent something too long"
GARBLED: Final = "it sent bytes that are no frame"
SLOW: Final = "it reads too slowly"
CROWDED: Final = "too many others wanted in"
FULL: Final = "there is no room for more streams"
REPLACED: Final = "it connected again"
EXHAUSTED: Final = "the system has no sockets left"
_LOG: Final = logging.getLogger("veilcast.streams")
