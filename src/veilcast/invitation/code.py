"""The code of an invitation: a password, and the place where the inviter waits, as words of five letters.

A code is a run of 16-bit numbers, each written as a proquint (Wilkerson, 2009): consonant, vowel, consonant, vowel,
consonant, which can be read out in most languages. Four numbers a word would be shorter, and harder to hear.

    word 1     kind (4 bits) and check (12 bits)
    2 and 3    the password, 32 bits
    4          the number of the invitation, if a rendezvous carries several
    rest       address and port: 3 words for IPv4, 9 for IPv6, 17 for an onion service

1. The password is short because nobody can try it at leisure: the inviter ends the invitation after one wrong guess
   (`inviter`), so a guess succeeds with probability 2^-32.
2. The check is a digest of the rest. A mistyped code is refused before anything is sent, except one in 4,096, so that a
   slip of the tongue does not use the invitation up. It says nothing about the password to anyone without the code.
3. Everything except the password goes into the key agreement as the channel (`channel`): a code that was changed on its
   way to point elsewhere opens nothing.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import msgspec

from veilcast.crypto.derive import digest
from veilcast.crypto.onion_keys import SUFFIX, host_of, read_host
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, MalformedError
from veilcast.machine import Address, Entropy


class InvitationCode(msgspec.Struct, frozen=True):
    """A code. `number` is 0 if the inviter itself waits at `place`; else `place` is a rendezvous."""

    password: Secret
    place: Address
    number: int = 0

    @property
    def channel(self) -> bytes:
        """All of the code but the password."""
        return b"".join((bytes((self._kind,)), self.number.to_bytes(2, "big"), self._place_bytes()))

    def format(self) -> str:
        """The code as a person reads it out."""
        rest = self.password.reveal() + (self.number.to_bytes(2, "big") if self.number else b"") + self._place_bytes()
        head = self._kind << 12 | _check(self._kind, rest)
        return "-".join(map(_spell, (head, *_split(rest))))

    def format_link(self) -> str:
        """The code as a link, for a chat."""
        return SCHEME + self.format()

    @property
    def _kind(self) -> int:
        host = self.place.rpartition(":")[0]
        return (_ONION if host.endswith(SUFFIX) else _IPV6 if host.startswith("[") else _IPV4) + (
            _RENDEZVOUS if self.number else 0
        )

    def _place_bytes(self) -> bytes:
        host, _, port = self.place.rpartition(":")
        packed = read_host(host) if host.endswith(SUFFIX) else ip_address(host.strip("[]")).packed
        return packed + int(port).to_bytes(2, "big")

    def __repr__(self) -> str:
        return "<InvitationCode>"


def draw_code(place: Address, entropy: Entropy, *, rendezvous: bool = False) -> InvitationCode:
    """A new code. Raises `ConfigError` if `place` is not an address that a code can hold."""
    number = 1 + int.from_bytes(entropy(4), "big") % NUMBER_MAX if rendezvous else 0
    code = InvitationCode(Secret(entropy(PASSWORD)), place, number)
    try:
        fits = parse_code(code.format()) == code
    except (ConfigError, ValueError, OverflowError, MalformedError):
        fits = False
    if not fits:
        raise ConfigError(f"{place!r} is no address for an invitation; write 192.0.2.1:4000 or [2001:db8::1]:4000")
    return code


def parse_code(text: str) -> InvitationCode:
    """Parse a code, or a link. Raises `ConfigError`, which never quotes the code."""
    words = [word for word in re.split(r"[\s-]+", text.strip().lower().removeprefix(SCHEME)) if word]
    if len(words) > WORDS_MAX:
        raise ConfigError("this is no invitation code: it has too many words; nothing was sent")
    numbers = []
    for place, word in enumerate(words, 1):
        if not _WORD.fullmatch(word):
            raise ConfigError(
                f"word {place} of the code is no word of five letters, such as lusab; nothing was sent, try again"
            )
        numbers.append(_read(word))
    rest = b"".join(number.to_bytes(2, "big") for number in numbers[1:])
    if not rest or numbers[0] & 0xFFF != _check(numbers[0] >> 12, rest):
        raise ConfigError(
            "the code is incomplete, or a word is wrong; nothing was sent, so the invitation still stands: try again"
        )
    code = _build(numbers[0] >> 12, rest)
    if code is None:
        raise ConfigError("the code is of another version of veilcast; nothing was sent")
    return code


def _build(kind: int, rest: bytes) -> InvitationCode | None:
    password, rest = rest[:PASSWORD], rest[PASSWORD:]
    number = 0
    if kind & _RENDEZVOUS:
        number, rest = int.from_bytes(rest[:2], "big"), rest[2:]
        if not number:
            return None
    packed, port = rest[:-2], int.from_bytes(rest[-2:], "big")
    if not port or len(packed) != _SIZES.get(kind & ~_RENDEZVOUS):
        return None
    match kind & ~_RENDEZVOUS:
        case 0:
            host = str(IPv4Address(packed))
        case 1:
            host = f"[{IPv6Address(packed)}]"
        case _:
            host = host_of(packed)
    return InvitationCode(Secret(password), Address(f"{host}:{port}"), number)


def _check(kind: int, rest: bytes) -> int:
    return int.from_bytes(digest(bytes((kind,)) + rest, purpose=b"vc/code-check", size=2), "big") & 0xFFF


def _split(data: bytes) -> list[int]:
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _spell(number: int) -> str:
    """Four bits a consonant, two bits a vowel."""
    return "".join(
        letters[number >> shift & len(letters) - 1] for letters, shift in zip(_LETTERS, (12, 10, 6, 4, 0), strict=True)
    )


def _read(word: str) -> int:
    number = 0
    for letter, letters in zip(word, _LETTERS, strict=True):
        number = number * len(letters) + letters.index(letter)
    return number


PASSWORD: Final = 4
"""Bytes of the password."""
NUMBER_MAX: Final = 0xFFFF
WORDS_MAX: Final = 32
SCHEME: Final = "veilcast:"
_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_LETTERS: Final = (_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS, _CONSONANTS)
_WORD: Final = re.compile("".join(f"[{letters}]" for letters in _LETTERS))
_IPV4, _IPV6, _ONION, _RENDEZVOUS = 0, 1, 2, 8
_SIZES: Final = {_IPV4: 4, _IPV6: 16, _ONION: 32}
