"""The overlay of a run: the basic overlay G, its publisher and its subscribers.

The overlay can be P0's worked example (Fig. 7), as its printed fractions require it: three small meshes, given and not
built. Publisher p, a forwarder f1 with the subscribers s1 and s2 below it, and a subscriber s3 with s4 below. In the
middle mesh s1 and s3 have a cover each, f2 and f3; in the right one f3 has another, f4. An exhaustive search over such
trees finds no other that gives the three accuracies under the leaf rule without the publisher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.data import DataOverlay, load_overlay, load_user_overlay
from veilcast.lab.experiment.mesh_params import OverlayParams
from veilcast.lab.experiment.params import file_path
from veilcast.lab.models.graph import Graph, from_edges, regular, scale_free, small_world
from veilcast.lab.models.mesh import draw_roles
from veilcast.lab.models.scamp import scamp_graph
from veilcast.lab.models.subgraphs import limit_degrees


@dataclass(frozen=True)
class WorkedExample:
    """One of the three meshes: its links in the direction of notifications, and its subscribers."""

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    publisher: int
    subscribes: NDArray[np.bool_]

    @property
    def nodes(self) -> int:
        return len(self.subscribes)


def _picture(links: str) -> WorkedExample:
    pairs = [link.split(">") for link in links.split()]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    ends = np.array([[names.index(name) for name in pair] for pair in pairs], dtype=np.int32)
    subscribes = np.array([name.startswith("s") for name in names])
    return WorkedExample(ends[:, 0], ends[:, 1], names.index("p"), subscribes)


_LEFT: Final = "p>f1 f1>s1 f1>s2 p>s3 s3>s4"
_MIDDLE: Final = f"{_LEFT} s1>f2 s3>f3"
WORKED_EXAMPLES: Final[Mapping[int, WorkedExample]] = {
    0: _picture(_LEFT),
    2: _picture(_MIDDLE),
    3: _picture(f"{_MIDDLE} f3>f4"),
}
"""The three meshes, by number of covers."""

OverlaySetup: TypeAlias = tuple[Graph, int, NDArray[np.int32]]
"""The overlay, the publisher, and the subscribers in order."""


def draw_overlay(params: OverlayParams, seed: int, data: Path | None) -> OverlaySetup:
    """Drawn from the seed, or read from the data folder. Equal arguments give every engine the same overlay."""
    graph, publisher, subscribers = _whole(params, seed, data)
    return limit_degrees(graph, params.links_max, seed) if params.links_max else graph, publisher, subscribers


def read_overlay(params: OverlayParams, data: Path | None) -> DataOverlay:
    """An overlay that is read and not drawn: from the data folder, or from the user's own files."""
    if edges := file_path(params.graph):
        subscriptions = file_path(params.subscriptions)
        return load_user_overlay(Path(edges), Path(subscriptions) if subscriptions else None, params.component)
    return load_overlay(params.graph, data)


def _whole(params: OverlayParams, seed: int, data: Path | None) -> OverlaySetup:
    match params.graph:
        case "small-world":
            graph = small_world(params.nodes, params.degree, params.rewire, seed)
        case "regular":
            graph = regular(params.nodes, params.degree, seed)
        case "scale-free":
            graph = scale_free(params.nodes, params.degree, seed)
        case "scamp":
            graph = scamp_graph(params.nodes, seed)
        case "drawn":
            picture = WORKED_EXAMPLES[params.picture]
            overlay = from_edges(picture.nodes, picture.src, picture.dst)
            return overlay, picture.publisher, np.flatnonzero(picture.subscribes).astype(np.int32)
        case _:
            found = read_overlay(params, data)
            part = found.sample_around(params.sample, seed) if params.sample else found
            return part.graph, *part.cast(params.topic, params.ratio, seed)
    return graph, *draw_roles(graph, params.ratio, seed)
