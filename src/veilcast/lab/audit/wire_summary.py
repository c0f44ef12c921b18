"""The wires before any attack: volume, links, sizes, and odd links.

Links that hide everything carry cells of one size at one rate. So a size that only some links have tells them from the
others. So does a link whose gaps differ from all others': `apart` is the largest distance between its distribution of
gaps and theirs (Kolmogorov and Smirnov), 0 for the same and 1 for nothing in common. Timers of a busy machine alone
bring it to a few hundredths.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.lab.attack.observer import cadence
from veilcast.lab.attack.observer.publication_waves import USUAL_SHARE
from veilcast.lab.audit.observed import ObservedNetwork


class CellSize(msgspec.Struct, frozen=True):
    size: int
    cells: int
    links: int
    """Number of links it was seen on, each direction by itself."""


class OddLink(msgspec.Struct, frozen=True):
    src: str
    dst: str
    cells: int
    apart: float


class WireSummary(msgspec.Struct, frozen=True):
    cells: int
    nodes: int
    links: int
    """Number of links, each direction by itself."""
    first_us: int
    last_us: int
    heartbeat_us: int
    """Estimated heartbeat, in microseconds."""
    sizes: tuple[CellSize, ...]
    """The most frequent first."""
    odd: tuple[OddLink, ...]
    """The most different first."""

    @property
    def telling(self) -> tuple[CellSize, ...]:
        """The sizes that some links have and others lack."""
        return tuple(each for each in self.sizes if each.links < USUAL_SHARE * self.links)


def summarise_wire(seen: ObservedNetwork) -> WireSummary:
    sizes = seen.carried.group_by("size").aggregate([("cells", "sum"), ("size", "count")])
    links = seen.carried.group_by(["src", "dst"]).aggregate([])
    ends = {end for name in ("src", "dst") for end in links[name].unique().to_pylist()}
    counted = [CellSize(*row.values()) for row in sizes.to_pylist()]
    return WireSummary(
        cells=pc.sum(seen.carried["cells"]).as_py(),
        nodes=len(ends),
        links=len(links),
        first_us=pc.min(seen.carried["first"]).as_py(),
        last_us=pc.max(seen.carried["last"]).as_py(),
        heartbeat_us=seen.heartbeat_us,
        sizes=tuple(sorted(counted, key=lambda each: (-each.cells, each.size))),
        odd=_odd(seen.gaps),
    )


def _odd(gaps: pa.Table) -> tuple[OddLink, ...]:
    links = list(zip(gaps["src"].to_pylist(), gaps["dst"].to_pylist(), strict=True))
    number = {link: place for place, link in enumerate(sorted(set(links)))}
    apart, much = _apart(
        np.array([number[link] for link in links], np.int64), gaps["bin"].to_numpy(), gaps["cells"].to_numpy()
    )
    # A link has one cell more than gaps.
    odd = [OddLink(*link, int(much[place]) + 1, float(apart[place])) for link, place in number.items()]
    return tuple(sorted((each for each in odd if each.apart >= ODD), key=lambda each: -each.apart))


def _apart(
    link: NDArray[np.int64], value: NDArray[np.int64], count: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distance of its distribution of values from that of all others, and its number of values, by link."""
    links = int(link.max(initial=-1)) + 1
    much = np.bincount(link, count, links).astype(np.float64)
    scale = np.sqrt(much * (much.sum() - much) / max(1.0, much.sum()))
    return cadence.compare_distributions(link, value, count, links) / np.maximum(scale, _TINY), much


ODD: Final = 0.1
"""Distance from all others' gaps from which a link is called odd."""
_TINY: Final = 1e-9
