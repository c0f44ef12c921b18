"""A first look at a span: how many packets are of what kind, where they were seen, and a sample to set clocks by.

The sample takes packets by their mark, so it takes the same ones in every file, however files were cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from veilcast.lab.capture import ends
from veilcast.lab.capture.clocks import Sightings
from veilcast.lab.capture.packets import FIRST_FRAGMENT, REASONS, UNKNOWN_LINK, dissect
from veilcast.lab.capture.spans import Pieces, Span
from veilcast.wire.geometry import CELL


class Findings(msgspec.Struct):
    """Of one span, or of a whole file; small, and fit to be sent."""

    file: int
    format: str = ""
    reasons: list[int] = msgspec.field(default_factory=lambda: [0] * len(REASONS))
    """How many packets there are of each."""
    ours: int = 0
    """How many are as long as our cells."""
    untimed: int = 0
    unmarked: int = 0
    points: list[int] = []
    strange_links: list[int] = []
    sample: list[bytes] = []
    """Columns of `Sightings`."""
    damage: str | None = None

    @property
    def cells(self) -> int:
        return sum(self.reasons[: FIRST_FRAGMENT + 1])

    def sightings(self) -> Sightings:
        kinds = (np.int64, np.int64, np.uint64, np.bool_)
        columns = self.sample or [b""] * len(kinds)
        return Sightings(*(np.frombuffer(each, kind) for each, kind in zip(columns, kinds, strict=True))).once()


def examine(span: Span, step: int, every: int, trusted: frozenset[str] = frozenset()) -> Findings:
    """`every` so many marks, one is in the sample; none if it is 0. If any nodes are `trusted`, the sample holds
    packets between those alone."""
    found = Findings(span.file)
    pieces = Pieces(span, step)
    for piece in pieces:
        packets, seen = piece.packets, dissect(piece.data, piece.packets)
        cells = seen.reason <= FIRST_FRAGMENT
        part = Findings(
            span.file,
            piece.layout.format,
            np.bincount(seen.reason, minlength=len(REASONS)).tolist(),
            int(np.count_nonzero(cells & (seen.size == CELL))),
            int(np.count_nonzero(cells & (packets.t_us == 0))),
            int(np.count_nonzero(cells & (seen.mark == 0))),
            np.unique(seen.point[cells])[:POINTS_MAX].tolist(),
            np.unique(packets.link[seen.reason == UNKNOWN_LINK])[:POINTS_MAX].tolist(),
        )
        if every:
            taken = cells & (seen.mark != 0) & (packets.t_us > 0) & (seen.mark // 2 % every == 0)
            if trusted:
                taken[taken] = ends.between(seen.ends[taken], trusted)
            link, forward = ends.links(seen.ends[taken])
            columns = (seen.mark[taken], packets.t_us[taken], link, forward)
            part.sample = [column.tobytes() for column in columns]
        found = _joined([found, part])
    found.damage = pieces.damage
    return found


def together(parts: Sequence[Findings], files: int) -> list[Findings]:
    """What was found in all spans, by file."""
    return [_joined([Findings(file), *(part for part in parts if part.file == file)]) for file in range(files)]


def _joined(parts: Sequence[Findings]) -> Findings:
    columns = [part.sample for part in parts if part.sample]
    return Findings(
        parts[0].file,
        next((part.format for part in parts if part.format), ""),
        np.sum([part.reasons for part in parts], axis=0).tolist(),
        sum(part.ours for part in parts),
        sum(part.untimed for part in parts),
        sum(part.unmarked for part in parts),
        sorted({point for part in parts for point in part.points})[:POINTS_MAX],
        sorted({link for part in parts for link in part.strange_links})[:POINTS_MAX],
        [b"".join(several) for several in zip(*columns, strict=True)],
        next((part.damage for part in parts if part.damage), None),
    )


POINTS_MAX: Final = 64
"""More places in one file are not told apart when they are counted."""
