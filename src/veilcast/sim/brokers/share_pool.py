"""All shares of keys that a coalition has seen, and everything that can be computed from them.

Both profiles are alike here. A sharing is a polynomial with values at some indices. Its value at 0 is a value of
another polynomial, and in the end the key.

1. A coalition that knows a threshold of values knows the whole polynomial.
2. A replica that was dealt a majority's dealings knows its share of the next sharing.
3. Values of different polynomials that hide the same secret are combined, too, as if nobody had drawn fresh randomness.

These steps are repeated until nothing new follows. A guess counts if a second pool, which has seen every message,
confirms it. So the pool also finds a leak by an unknown way, if leaked shares lie on a polynomial with others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any, Final, NamedTuple, TypeAlias

from veilcast.brokers.keys.paper_split import SplitShare, SplitStatement
from veilcast.brokers.keys.redistribution import DealtShare, DeliveredShare, HolderHeader, PublisherShare
from veilcast.crypto import shamir
from veilcast.crypto.group import ORDER
from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import MalformedError, RemoteError
from veilcast.wire.base import Message
from veilcast.wire.brokers import AgreementWord, FirstShare, LastShare, NextShare, PushShare

PolynomialId: TypeAlias = bytes
"""A polynomial, named by its commitments or by the signed statement about it."""


class PolynomialPoint(NamedTuple):
    """The value of a polynomial at an index."""

    line: PolynomialId
    at: int


class HiddenSecret(NamedTuple):
    """The secret that polynomials of several attempts and branches hide: the key, or the share of one replica of one
    node."""

    key: bytes
    node: bytes
    path: tuple[int, ...]


@dataclass
class SharePool:
    """All values that were seen, by polynomial. Its size is bounded by the messages sent."""

    hardened: bool
    values: dict[PolynomialId, dict[int, bytes]] = field(default_factory=dict)
    threshold: dict[PolynomialId, int] = field(default_factory=dict)
    above: dict[PolynomialId, dict[PolynomialPoint, None]] = field(default_factory=dict)
    """For each polynomial, the points of others that equal its value at 0."""
    roots: dict[PolynomialId, bytes] = field(default_factory=dict)
    """Polynomials whose value at 0 is a key, with the key's name."""
    hides: dict[PolynomialId, HiddenSecret] = field(default_factory=dict)
    dealt: dict[tuple[PolynomialId, bytes], dict[int, dict[PolynomialId, None]]] = field(default_factory=dict)
    """For each old sharing and next node: the polynomials that each holder dealt there."""

    def add_message(self, message: Message) -> None:
        """Add all shares of keys in a message; messages without shares are ignored."""
        for data in _shown(message):
            try:
                if self.hardened:
                    self._take_hardened(message, data)
                else:
                    self._take_parcel(SplitShare.decode(data))
            except RemoteError:
                continue

    def add_value(self, point: PolynomialPoint, value: bytes) -> bool:
        """Returns True if the value is new."""
        values = self.values.setdefault(point.line, {})
        if point.at in values:
            return False
        values[point.at] = value
        return True

    def derive_all(self, truth: SharePool) -> None:
        """Compute everything that follows. `truth` confirms guesses."""
        while self._interpolate() | self._combine(truth) | self._mix(truth):
            pass

    def interpolate_all(self) -> None:
        """Compute everything that follows, for a pool that has seen every message and needs no confirmation."""
        while self._interpolate():
            pass

    def keys(self) -> dict[bytes, bytes]:
        """All known keys, by name."""
        return {key: self.values[line][0] for line, key in self.roots.items() if 0 in self.values.get(line, {})}

    # --- what messages show

    def _take_hardened(self, message: Message, data: bytes) -> None:
        if isinstance(message, FirstShare):
            first = PublisherShare.decode(data)
            self._root(
                first.publisher_header.points,
                first.publisher_header.scheme.threshold,
                first.publisher_header.key_attempt.key,
            )
            self.add_value(
                PolynomialPoint(first.publisher_header.points, first.share.index), first.share.value.reveal()
            )
        elif isinstance(message, LastShare | PushShare):
            last = DeliveredShare.decode(data)
            self._root(last.points, last.points[1], last.publisher_header.key_attempt.key)
            self.add_value(PolynomialPoint(last.points, last.share.index), last.share.value.reveal())
        else:
            portion = DealtShare.decode(data)
            self._header(portion.holder_header)
            self.add_value(
                PolynomialPoint(portion.holder_header.new_points, portion.share.index), portion.share.value.reveal()
            )

    def _header(self, header: HolderHeader) -> None:
        key = header.key_attempt.key
        self._root(header.old_points, header.old_scheme.threshold, key)
        self.threshold[header.new_points] = header.new_scheme.threshold
        self.above.setdefault(header.new_points, {})[PolynomialPoint(header.old_points, header.holder)] = None
        self.hides[header.new_points] = HiddenSecret(key, header.old_scheme.node, (header.holder,))
        branch = self.dealt.setdefault((header.old_points, header.new_scheme.node), {})
        branch.setdefault(header.holder, {})[header.new_points] = None

    def _root(self, points: bytes, threshold: int, key: bytes) -> None:
        """Every sharing on the path has the key at 0."""
        self.threshold[points] = threshold
        self.roots[points] = key
        self.hides[points] = HiddenSecret(key, b"", ())

    def _take_parcel(self, parcel: SplitShare) -> None:
        over: SplitStatement | None = None
        for statement in parcel.trail:
            line, key = statement.name, statement.key_attempt.key
            self.threshold[line] = statement.to.threshold
            if over is None:
                self.roots[line] = key
            else:
                self.above.setdefault(line, {})[PolynomialPoint(over.name, statement.path[-1])] = None
            self.hides[line] = HiddenSecret(key, b"", statement.path)
            over = statement
        self.add_value(PolynomialPoint(parcel.trail[-1].name, parcel.index), parcel.data.reveal())

    # --- what follows

    def _interpolate(self) -> bool:
        """A threshold of values gives the whole polynomial; its value at 0 is a value of another one."""
        news = False
        for line, known in list(self.values.items()):
            for point in self.above.get(line, {}):
                upper = self.values.get(point.line, {}).get(point.at)
                if upper is not None and 0 not in known:
                    known[0], news = upper, True
            threshold = self.threshold.get(line)
            if threshold is None or len(known) < threshold:
                continue
            if 0 not in known:
                known[0], news = self._at_zero(dict(islice(known.items(), threshold))), True
            for point in self.above.get(line, {}):
                news |= self.add_value(point, known[0])
        return news

    def _combine(self, truth: SharePool) -> bool:
        """A replica with a majority's dealings computes its share of the next sharing, for every choice of the
        majority."""
        news = False
        for old, node in self.dealt:
            holders = self.dealt[old, node]
            lines = [(holder, line) for holder, dealt in holders.items() for line in dealt]
            indices = {index for _, line in lines for index in self.values.get(line, {}) if index}
            targets = truth.sharings(self.roots[old])
            for index in sorted(indices):
                have = [(holder, self.values[line][index]) for holder, line in lines if index in self.values[line]]
                for chosen in islice(combinations(have, self.threshold[old]), TRIES_MAX):
                    if len({holder for holder, _ in chosen}) == len(chosen):
                        share = self._at_zero(dict(chosen))
                        for line in targets.get((index, share), ()):
                            news |= self.add_value(PolynomialPoint(line, index), share)
        return news

    def _mix(self, truth: SharePool) -> bool:
        """Combine values of all polynomials that hide the same secret."""
        news = False
        groups: dict[HiddenSecret, list[PolynomialId]] = {}
        for line, hidden in self.hides.items():
            if line in self.values:
                groups.setdefault(hidden, []).append(line)
        for lines in groups.values():
            targets = {truth.values[line][0]: line for line in lines if 0 in truth.values.get(line, {})}
            points = {(index, value): None for line in lines for index, value in self.values[line].items() if index}
            threshold = min(self.threshold[line] for line in lines)
            if len(lines) > 1 and targets and any(0 not in self.values[line] for line in targets.values()):
                for chosen in islice(combinations(points, threshold), TRIES_MAX):
                    if len({index for index, _ in chosen}) < threshold:
                        continue
                    found = targets.get(self._at_zero(dict(chosen)))
                    if found is not None:
                        news |= self.add_value(PolynomialPoint(found, 0), truth.values[found][0])
        return news

    def sharings(self, key: bytes) -> Mapping[tuple[int, bytes], list[PolynomialId]]:
        """For the sharings of this key: the polynomials that have a given value at a given index."""
        found: dict[tuple[int, bytes], list[PolynomialId]] = {}
        for line, name in self.roots.items():
            if name == key:
                for index, value in self.values.get(line, {}).items():
                    found.setdefault((index, value), []).append(line)
        return found

    def _at_zero(self, values: Mapping[int, bytes]) -> bytes:
        return scalar_at_zero(values) if self.hardened else _bytes_at_zero(values)


def scalar_at_zero(values: Mapping[int, bytes]) -> bytes:
    """The value at 0 of the polynomial of scalars through these points (Lagrange interpolation); it may be 0."""
    total = 0
    for index, value in values.items():
        weight = 1
        for other in values:
            if other != index:
                weight = weight * other * pow(other - index, -1, ORDER) % ORDER
        total += weight * int.from_bytes(value, "little")
    return (total % ORDER).to_bytes(32, "little")


def _bytes_at_zero(values: Mapping[int, bytes]) -> bytes:
    taken = [shamir.ShamirShare(index, Secret(value)) for index, value in values.items()]
    return shamir.reconstruct(taken, len(taken)).reveal()


def _shown(message: Message) -> Iterator[bytes]:
    """The shares in a message. Agreement messages of replicas may contain shares as evidence."""
    if isinstance(message, FirstShare | NextShare | LastShare | PushShare):
        yield message.share
    elif isinstance(message, AgreementWord):
        yield from _inside(message.word, DEPTH_MAX)


def _inside(data: object, depth: int) -> Iterator[bytes]:
    """All byte strings of at least `PORTION_MIN` bytes in encoded data, also encoded inside others."""
    if isinstance(data, bytes) and len(data) >= PORTION_MIN and depth:
        yield data
        try:
            data = _DECODER.decode(data)
        except MalformedError:
            return
    if isinstance(data, list):
        for each in data:
            if isinstance(each, bytes | list):  # Most of it is neither.
                yield from _inside(each, depth - isinstance(each, bytes))


_DECODER: Final = MsgpackDecoder(Any, MalformedError, "nothing is encoded there")
TRIES_MAX: Final = 5_000
"""Combinations that are tried for one secret: a bound on work, which no test reaches."""
DEPTH_MAX: Final = 5
PORTION_MIN: Final = 300
"""Least size of a dealt share in bytes: it has at least two signatures and three commitments."""
