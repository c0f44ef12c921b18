"""A capture that fits into memory, prepared for the attackers without Spark.

This does for a few million cells, or the demo's, what `spark_job` does with frames. The attackers and their scores are
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.observations import ActivityRounds, ByteVolumes, CaptureObservations, Scores
from veilcast.lab.attack.observer import cadence, publication_waves
from veilcast.lab.attack.observer.flow_correlation import BINS_PER_HEARTBEAT
from veilcast.lab.attack.registry import attackers_on
from veilcast.lab.models.graph import from_edges

Nodes = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CapturedCells:
    """The columns of the table `cells`, with numbers in place of names."""

    names: list[str]
    epoch: Numbers
    t_us: Numbers
    src: Nodes
    dst: Nodes
    size: Numbers

    @classmethod
    def from_table(cls, table: pa.Table, others: Sequence[str] = ()) -> Self:
        """Read a table; `others` names further nodes that are known to be present."""
        ends = pa.chunked_array([*table["src"].chunks, *table["dst"].chunks, pa.array(others, pa.string())])
        names = pc.unique(ends).sort()
        src, dst = (np.asarray(pc.index_in(table[end], names).to_numpy(), np.int32) for end in ("src", "dst"))
        epoch, t_us, size = (table[name].to_numpy() for name in ("epoch", "t_us", "size"))
        return cls(names.to_pylist(), epoch, t_us, src, dst, size)

    def between(self, first_us: int, until_us: int) -> CapturedCells:
        """The cells from `first_us` up to `until_us`; names stay."""
        kept = (self.t_us >= first_us) & (self.t_us < until_us)
        src, dst = self.src[kept], self.dst[kept]
        return CapturedCells(self.names, self.epoch[kept], self.t_us[kept], src, dst, self.size[kept])

    def notification_size(self, heartbeat_us: int) -> int:
        """The size of a notification; `NO_NOTIFICATIONS` if no cell looks like one."""
        found = publication_waves.notification_size(self.t_us, self.src, self.dst, self.size, heartbeat_us)
        return publication_waves.NO_NOTIFICATIONS if found is None else found

    def observations(
        self,
        heartbeat_us: int,
        note_size: int,
        links: tuple[Nodes, Nodes] | None = None,
        published: Numbers | None = None,
    ) -> CaptureObservations:
        """`links` are all links of the overlay, if they are known. `published` holds the times at which the topic in
        question was published, for an observer that is a subscriber."""
        notes = publication_waves.notifications_of_size(self.t_us, self.src, self.dst, self.size, note_size)
        epochs, epoch = np.unique(self.epoch, return_inverse=True)
        present = np.zeros((len(epochs), len(self.names)), np.bool_)
        present[epoch, self.src] = present[epoch, self.dst] = True
        moments = np.empty(0, np.int64) if published is None else published
        return CaptureObservations(
            graph=from_edges(len(self.names), *(links or self.links())),
            present=present,
            src=self.src[notes.row],
            dst=self.dst[notes.row],
            at=self.t_us[notes.row],
            epoch=epoch[notes.row],
            rounds=self.rounds(heartbeat_us),
            published=moments,
            topic=np.zeros(len(moments), np.int64),
            cadence=cadence.count_gaps(self.t_us, self.src, self.dst, self.size),
            volumes=self.volumes(heartbeat_us),
        )

    def links(self) -> tuple[Nodes, Nodes]:
        """The pairs of nodes that exchanged cells, each once."""
        ends = np.unique(np.sort(np.column_stack([self.src, self.dst]), axis=1).reshape(-1, 2), axis=0)
        ends = ends[ends[:, 0] != ends[:, 1]]
        return ends[:, 0], ends[:, 1]

    def rounds(self, length_us: int) -> ActivityRounds:
        """Bytes that each node received in rounds of this length."""
        number = self.t_us // length_us
        first = int(number.min()) if len(number) else 0
        rounds = int(number.max(initial=first - 1)) + 1 - first
        key = (number - first) * len(self.names) + self.dst
        activity = np.bincount(key, self.size, rounds * len(self.names)).astype(np.float64)
        return ActivityRounds(length_us, first, activity.reshape(rounds, len(self.names)))

    def volumes(self, heartbeat_us: int) -> ByteVolumes | None:
        number, size = self.t_us * BINS_PER_HEARTBEAT // heartbeat_us, np.tile(self.size, 2)
        arriving = np.repeat([0, 1], len(number))
        return ByteVolumes.from_rows(np.tile(number, 2), np.append(self.src, self.dst), arriving, size, len(self.names))


def score_all(seen: CaptureObservations) -> dict[tuple[str, str], Scores]:
    """A score for each node, by attack and role."""
    return {(each.name, each.role): each.score_topics(seen)[0] for each in attackers_on(CaptureObservations)}
