"""Watching: a record of cells that fits into memory, made ready for attackers without Spark.

It is what `gathering` and `folder` do with frames, for a capture of a few million cells or the demo's. Attackers are
the same, and so is what they say.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack import cadence, waves
from veilcast.lab.attack.flow_correlation import PARTS
from veilcast.lab.attack.outsiders import ATTACKS, OUTSIDERS, Scores
from veilcast.lab.attack.record import Record, Rounds, Volumes
from veilcast.lab.kernels.graph import from_edges

Nodes = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """The columns of the table `cells`, with numbers for names."""

    names: list[str]
    epoch: Numbers
    t_us: Numbers
    src: Nodes
    dst: Nodes
    size: Numbers

    @classmethod
    def of(cls, table: pa.Table, others: Sequence[str] = ()) -> Self:
        """With names for others, too, who are known to be there."""
        ends = pa.chunked_array([*table["src"].chunks, *table["dst"].chunks, pa.array(others, pa.string())])
        names = pc.unique(ends).sort()
        src, dst = (np.asarray(pc.index_in(table[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        epoch, t_us, size = (table[name].to_numpy() for name in ("epoch", "t_us", "size"))
        return cls(names.to_pylist(), epoch, t_us, src, dst, size)

    def between(self, first_us: int, until_us: int) -> Cells:
        """Those that were seen then; names stay."""
        kept = (self.t_us >= first_us) & (self.t_us < until_us)
        src, dst = self.src[kept], self.dst[kept]
        return Cells(self.names, self.epoch[kept], self.t_us[kept], src, dst, self.size[kept])

    def note_size(self, heartbeat_us: int) -> int:
        """How long notes are; `waves.NO_NOTES` if nothing looks like one."""
        found = waves.note_size(self.t_us, self.src, self.dst, self.size, heartbeat_us)
        return waves.NO_NOTES if found is None else found

    def record(
        self,
        heartbeat_us: int,
        note_size: int,
        links: tuple[Nodes, Nodes] | None = None,
        published: Numbers | None = None,
    ) -> Record:
        """`links` are all links of the overlay where they are known, and `published` the moments in which the topic
        that is asked about was published on, for an observer who reads along."""
        notes = waves.of_size(self.t_us, self.src, self.dst, self.size, note_size)
        epochs, epoch = np.unique(self.epoch, return_inverse=True)
        present = np.zeros((len(epochs), len(self.names)), np.bool_)
        present[epoch, self.src] = present[epoch, self.dst] = True
        moments = np.empty(0, np.int64) if published is None else published
        return Record(
            graph=from_edges(len(self.names), *(links or self.links())),
            present=present,
            src=self.src[notes.row],
            dst=self.dst[notes.row],
            at=self.t_us[notes.row],
            epoch=epoch[notes.row],
            rounds=self.rounds(heartbeat_us),
            published=moments,
            topic=np.zeros(len(moments), np.int64),
            cadence=cadence.tally(self.t_us, self.src, self.dst, self.size),
            volumes=self.volumes(heartbeat_us),
        )

    def links(self) -> tuple[Nodes, Nodes]:
        """Who had to do with whom, each once."""
        ends = np.unique(np.sort(np.column_stack([self.src, self.dst]), axis=1).reshape(-1, 2), axis=0)
        ends = ends[ends[:, 0] != ends[:, 1]]
        return ends[:, 0], ends[:, 1]

    def rounds(self, length_us: int) -> Rounds:
        """How much each node got in stretches of this length."""
        number = self.t_us // length_us
        first = int(number.min()) if len(number) else 0
        rounds = int(number.max(initial=first - 1)) + 1 - first
        key = (number - first) * len(self.names) + self.dst
        activity = np.bincount(key, self.size, rounds * len(self.names)).astype(np.float64)
        return Rounds(length_us, first, activity.reshape(rounds, len(self.names)))

    def volumes(self, heartbeat_us: int) -> Volumes | None:
        number, size = self.t_us * PARTS // heartbeat_us, np.tile(self.size, 2)
        arriving = np.repeat([0, 1], len(number))
        return Volumes.counted(np.tile(number, 2), np.append(self.src, self.dst), arriving, size, len(self.names))


def scores(record: Record, attacks: Collection[str] = ATTACKS, rate: float = 0.1) -> dict[tuple[str, str], Scores]:
    """By attack and role: a score for each node."""
    chosen = (each for each in OUTSIDERS if each.attack in attacks)
    return {(each.attack, each.role): each.scores(record, rate)[0] for each in chosen}
