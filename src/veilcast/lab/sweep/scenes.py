"""Where a run takes place: the basic overlay G, who publishes on it, and who subscribes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.data import load
from veilcast.lab.kernels.graph import Graph, regular, scale_free, small_world
from veilcast.lab.kernels.mesh import cast
from veilcast.lab.kernels.scamp import scamp
from veilcast.lab.sweep.params import Params


def scene(params: Params, seed: int, data: Path | None) -> tuple[Graph, int, NDArray[np.int32]]:
    """Drawn under the seed, or read from the data folder."""
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
            return found.graph, *found.cast(params.topic, params.ratio, seed)
        case other:
            raise ConfigError(f"the kernels have no overlay {other!r}")
    return graph, *cast(graph, params.ratio, seed)
