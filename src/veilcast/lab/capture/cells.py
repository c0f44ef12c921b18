"""The packets of captures as rows of the table `cells`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from veilcast.lab import tables
from veilcast.lab.capture import ends
from veilcast.lab.capture.merge import MARK, POINT
from veilcast.lab.capture.packets import FIRST_FRAGMENT, dissect
from veilcast.lab.capture.spans import Pieces, Span
from veilcast.observe import Cell


class Plan(msgspec.Struct, frozen=True):
    """How packets become rows."""

    run: str
    epoch_us: int
    step: int
    ahead_us: tuple[int, ...]
    """By file, how far its clock is ahead."""
    marked: bool
    """Whether rows say, too, what `merge` needs to know."""
    trusted: frozenset[str] = frozenset()
    """Nodes whose packets no other packet stands for; empty if no node is told from others."""

    @property
    def schema(self) -> pa.Schema:
        schema = tables.arrow_schema(Cell)
        for name in (MARK, POINT) if self.marked else ():
            schema = schema.append(pa.field(name, pa.int64(), nullable=False))
        return schema


def cells(span: Span, plan: Plan) -> Iterator[pa.Table]:
    """Piece by piece, in the order of the capture."""
    for piece in Pieces(span, plan.step):
        seen = dissect(piece.data, piece.packets)
        kept = np.flatnonzero(seen.reason <= FIRST_FRAGMENT)
        t_us = piece.packets.t_us[kept]
        # What has no time stays at 0.
        t_us -= np.where(t_us > 0, plan.ahead_us[span.file], 0)
        source, destination = ends.texts(seen.ends[kept])
        columns = [
            pa.repeat(pa.scalar(plan.run), len(kept)),
            pa.array(t_us // plan.epoch_us),
            pa.array(t_us),
            source,
            destination,
            pa.array(seen.size[kept]),
        ]
        if plan.marked:
            mark = seen.mark[kept]
            if plan.trusted:
                # A mark is no secret, and odd. A stranger's packet that was made to have a member's mark stays apart.
                mark = np.where(ends.between(seen.ends[kept], plan.trusted), mark, mark & ~1)
            columns += [pa.array(mark), pa.array(seen.point[kept] + (span.file << _FILE))]
        yield pa.table(columns, plan.schema)


_FILE: Final = 48
"""Above the number of a point stands that of its file."""
