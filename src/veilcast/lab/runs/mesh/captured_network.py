"""Networks whose wires are recorded, in the simulator or on real sockets: the common part of their populations.

With `wire = "cells"` the network is the hardened one, and every link is a stream of cells. With `wire = "prompt"` it is
the paper's: messages are encrypted and leave at once. Heartbeats are short, because cells take the time.
"""

from __future__ import annotations

from typing import Any, Final

from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.runs.mesh.traffic_day import PHASE_MESH
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import MeshConfig


def population_fields(params: MeshWires, paper: MeshConfig) -> dict[str, Any]:
    """Fields of a `MeshPopulation`, without its publishers. `paper` is the configuration of the paper's mesh."""
    hardened = params.wire == "cells"
    return {
        "nodes": params.nodes,
        "neighbours": params.degree,
        "rewire": params.rewire,
        "subscribers": params.ratio,
        "notes": 0,
        "cover_share": params.kappa,
        "mesh": PHASE_MESH if hardened else paper,
        "link": LinkConfig("cells", _RATE) if hardened else LinkConfig("prompt"),
    }


_RATE: Final = 16
"""Cells per second on each link."""
