"""The client side of SOCKS 5 (RFC 1928 and 1929): asks a SOCKS port for a connection before the stream starts.

Host names are passed on as they are, so that only Tor resolves them. User and password identify no user: Tor puts calls
with different credentials on different circuits (IsolateSOCKSAuth in Tor's manual).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from veilcast.errors import ConfigError
from veilcast.net.close_reasons import UNASKED, UNREACHABLE
from veilcast.net.stream_setup import BrokenStream, PlainWrapper


class SocksWrapper(PlainWrapper):
    """The caller's side. Bytes after the last answer belong to the peer and are not wrapped."""

    def __init__(self, host: str, port: int, user: bytes, password: bytes) -> None:
        super().__init__()
        try:
            login = b"\x01" + _with_length(user) + _with_length(password)
            request = b"\x05\x01\x00\x03" + _with_length(host.encode("ascii")) + port.to_bytes(2, "big")
        except (ValueError, OverflowError) as error:
            raise ConfigError("no SOCKS port can be asked for this") from error
        self._buffer = bytearray()
        self._talk = self._ask(login, request)
        self._wanted = next(self._talk)

    def handshake(self, data: bytes) -> bool:
        buffer = self._buffer
        buffer += data
        try:
            while len(buffer) >= self._wanted:
                answer = bytes(buffer[: self._wanted])
                del buffer[: self._wanted]
                self._wanted = self._talk.send(answer)
        except StopIteration:
            return True
        return False

    def read(self, data: bytes) -> Iterable[bytes]:
        if self._buffer:
            data, self._buffer = bytes(self._buffer) + data, bytearray()
        return (data,)

    def _ask(self, login: bytes, request: bytes) -> Generator[int, bytes, None]:
        """Send the messages one by one; yields the size in bytes of each answer that it waits for."""
        self.write(b"\x05\x01\x02")
        if (yield 2) != b"\x05\x02":
            raise BrokenStream(UNASKED)
        self.write(login)
        if (yield 2)[1]:
            raise BrokenStream(UNASKED)
        self.write(request)
        version, failure, _, kind = yield 4
        if version != 5 or kind not in (1, 3, 4):
            raise BrokenStream(UNASKED)
        if failure:
            raise BrokenStream(UNREACHABLE)
        # The address that the port calls from, which Tor does not know; four bytes, a name, or sixteen; and its port.
        yield {1: 4, 4: 16}.get(kind) or (yield 1)[0]
        yield 2


def _with_length(text: bytes) -> bytes:
    if not text:
        raise ValueError
    return len(text).to_bytes(1, "big") + text
