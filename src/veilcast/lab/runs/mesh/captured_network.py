"""Networks whose wires are recorded, in the simulator or on real sockets: what their populations have in common.

Where `wire` is "cells" the network is the hardened one, every link of it a stream of cells; where it is "prompt" it is
the paper's, its messages encrypted and otherwise as they come. Heartbeats are short, for it is cells that take time.
"""

from __future__ import annotations

from typing import Any, Final

from veilcast.errors import ConfigError
from veilcast.lab.experiment.params import Params
from veilcast.lab.runs.mesh.traffic_day import PHASE_MESH
from veilcast.link.config import LinkConfig
from veilcast.mesh.config import MeshConfig


def check_params(params: Params, runs: str, *switches: str) -> None:
    """Raise where it asks for what no such network is, or for anything that these runs do not heed."""
    params.heed(runs, "wire", "kappa", "publishers", "cover", "game", *switches)
    if params.graph != "small-world" or params.cover != "none" or params.game != "none" or params.look != "end":
        raise ConfigError(f'{runs} are of small worlds with neither PF nor SG, and looked at once: look = "end"')
    if params.wire == "bare" or (params.wire == "cells") != (params.kappa > 0):
        raise ConfigError('wire = "cells" is the hardened network, with a kappa above 0; "prompt" the paper\'s')


def population_fields(params: Params, paper: MeshConfig) -> dict[str, Any]:
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
