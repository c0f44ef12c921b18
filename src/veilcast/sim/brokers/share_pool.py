"""A pool of shares: whatever a coalition has seen of keys on their way, and all that can be computed from it.

Both ways for keys are the same here: polynomials, each with values at some indices, whose value at 0 is a value of
another polynomial, up to the key. Whoever knows a threshold of values of one knows all of it; whoever was dealt a
majority's dealings knows its share of the next. That is done again and again until nothing new comes out, with the
values of each polynomial apart, and with those of all that hide the same thing mixed, as if nobody had drawn afresh.

What is true is asked of another pool, one that has seen everything: a guess counts if it is right. So a scheme that
leaks by some way that nobody has thought of is found here if the leaked shares lie on a line with others.
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
from veilcast.wire.brokers import AgreementWord, FirstShare, LastShare, NextShare, PushShare
from veilcast.wire.mesh import Message

PolynomialId: TypeAlias = bytes
"""A polynomial, by the commitments to it, or by the statement on it."""


class PolynomialPoint(NamedTuple):
    """The value of a line at an index."""

    line: PolynomialId
    at: int


class HiddenSecret(NamedTuple):
    """What lines of several attempts and branches hide alike: the key, or the share of one replica of one node."""

    key: bytes
    node: bytes
    path: tuple[int, ...]


@dataclass
class SharePool:
    """What was seen, by line. Bounded by what was sent."""

    hardened: bool
    values: dict[PolynomialId, dict[int, bytes]] = field(default_factory=dict)
    threshold: dict[PolynomialId, int] = field(default_factory=dict)
    above: dict[PolynomialId, dict[PolynomialPoint, None]] = field(default_factory=dict)
    """Whose values stand at 0 of a line."""
    roots: dict[PolynomialId, bytes] = field(default_factory=dict)
    """Lines at whose 0 is a key, by its name."""
    hides: dict[PolynomialId, HiddenSecret] = field(default_factory=dict)
    dealt: dict[tuple[PolynomialId, bytes], dict[int, dict[PolynomialId, None]]] = field(default_factory=dict)
    """By old line and next node: the lines that each holder dealt there."""

    def add_message(self, message: Message) -> None:
        """All that a message shows of keys; what is no share shows nothing."""
        for data in _shown(message):
            try:
                if self.hardened:
                    self._take_hardened(message, data)
                else:
                    self._take_parcel(SplitShare.decode(data))
            except RemoteError:
                continue

    def add_value(self, point: PolynomialPoint, value: bytes) -> bool:
        """Whether it is news."""
        values = self.values.setdefault(point.line, {})
        if point.at in values:
            return False
        values[point.at] = value
        return True

    def derive_all(self, truth: SharePool) -> None:
        """Compute all that follows from what is here; `truth` says which guesses are right."""
        while self._interpolate() | self._combine(truth) | self._mix(truth):
            pass

    def interpolate_all(self) -> None:
        """The same for a pool that has seen everything, and needs nobody to tell what is true."""
        while self._interpolate():
            pass

    def keys(self) -> dict[bytes, bytes]:
        """The keys that are known, by name."""
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
        """Every sharing on the way has the key at 0."""
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
        """Enough values of a line give all of it; what is at 0 is a value of another."""
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
        """A replica that has a majority's dealings has its share of the next line, whichever majority it is."""
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
        """Take values of all that hide the same thing together."""
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
        """Of this key: on which lines a value stands at an index."""
        found: dict[tuple[int, bytes], list[PolynomialId]] = {}
        for line, name in self.roots.items():
            if name == key:
                for index, value in self.values.get(line, {}).items():
                    found.setdefault((index, value), []).append(line)
        return found

    def _at_zero(self, values: Mapping[int, bytes]) -> bytes:
        return scalar_at_zero(values) if self.hardened else _bytes_at_zero(values)


def scalar_at_zero(values: Mapping[int, bytes]) -> bytes:
    """The value at 0 of the polynomial of scalars that has these at these indices (Lagrange), be it 0 or not."""
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
    """The shares that stand in a message; what replicas say to one another may show some as evidence."""
    if isinstance(message, FirstShare | NextShare | LastShare | PushShare):
        yield message.share
    elif isinstance(message, AgreementWord):
        yield from _inside(message.word, DEPTH_MAX)


def _inside(data: object, depth: int) -> Iterator[bytes]:
    """All long enough strings of bytes in what is encoded there, whatever is encoded in these included."""
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
"""Of what could be taken together for one thing that is hidden: a bound on work, which no test reaches."""
DEPTH_MAX: Final = 5
PORTION_MIN: Final = 300
"""A portion has at least two signatures and three commitments."""
