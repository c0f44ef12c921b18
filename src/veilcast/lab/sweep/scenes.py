"""Where a run takes place: the basic overlay G, who publishes on it, and who subscribes."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilcast.lab.data import load
from veilcast.lab.kernels.graph import Graph, from_edges, regular, scale_free, small_world
from veilcast.lab.kernels.mesh import cast
from veilcast.lab.kernels.parts import thinned
from veilcast.lab.kernels.scamp import scamp
from veilcast.lab.sweep.example import PICTURES
from veilcast.lab.sweep.params import Params

Scene: TypeAlias = tuple[Graph, int, NDArray[np.int32]]
"""The overlay, the publisher, and the subscribers in order."""


def scene(params: Params, seed: int, data: Path | None) -> Scene:
    """Drawn under the seed, or read from the data folder. Engines that are given the same have the same."""
    graph, publisher, subscribers = _whole(params, seed, data)
    return thinned(graph, params.links_max, seed) if params.links_max else graph, publisher, subscribers


def _whole(params: Params, seed: int, data: Path | None) -> Scene:
    match params.graph:
        case "small-world":
            graph = small_world(params.nodes, params.degree, params.rewire, seed)
        case "regular":
            graph = regular(params.nodes, params.degree, seed)
        case "scale-free":
            graph = scale_free(params.nodes, params.degree, seed)
        case "scamp":
            graph = scamp(params.nodes, seed)
        case "gnutella" | "deezer" as source:
            found = load(source, data)
            part = found.around(params.sample, seed) if params.sample else found
            return part.graph, *part.cast(params.topic, params.ratio, seed)
        case "drawn":
            picture = PICTURES[params.picture]
            overlay = from_edges(picture.nodes, picture.src, picture.dst)
            return overlay, picture.publisher, np.flatnonzero(picture.subscribes).astype(np.int32)
    return graph, *cast(graph, params.ratio, seed)
