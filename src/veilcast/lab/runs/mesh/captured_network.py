"""Networks whose wires are recorded, in the simulator or on real sockets: what their populations have in common.

Where `wire` is "cells" the network is the hardened one, every link of it a stream of cells; where it is "prompt" it is
the paper's, its messages encrypted and otherwise as they come. Heartbeats are short, for it is cells that take time.
"""

from __future__ import annotations

from typing import Any, Final

from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.runs.mesh.traffic_day import PHASE_MESH
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import MeshConfig


def population_fields(params: MeshWires, paper: MeshConfig) -> dict[str, Any]:
    """Of a `MeshPopulation`, but for who publishes; `paper` is how the paper's mesh is run."""
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
"""Cells in a second on each link."""
