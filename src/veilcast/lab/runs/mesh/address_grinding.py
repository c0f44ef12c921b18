"""Runs with one insider that grinds addresses (`veilcast.sim.insiders.address_grinding`), on the real machines.

Steps are seconds of the attack. At each step it is measured whether the insider names the publisher (`success`), and
which share of the publications of the last five minutes the publisher itself handed to it (`first_hand`). The same
insider without new addresses is "watching": the null control. With `first_relay = "any"` nodes rank their neighbours'
addresses, as they once did: the positive control.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from veilcast.lab.experiment.mesh_params import MeshGrinding
from veilcast.lab.experiment.params import Measure
from veilcast.lab.runs.mesh.mesh_simulation import FAST_HARDENING
from veilcast.mesh.config import FirstRelayConfig
from veilcast.sim.insiders.address_grinding import FORMING_S, SECOND_US, TURN_S, GrindingRun


def run(params: MeshGrinding, seed: int, data: Path | None = None) -> list[Measure]:
    rules = msgspec.structs.replace(FAST_HARDENING, relay=FirstRelayConfig(rule=params.first_relay))
    found: list[Measure] = []
    for attack, turn in (("grinding", TURN_S), ("watching", 0)):
        ground = GrindingRun(seed, rules, turn * SECOND_US, nodes=params.nodes, kappa=params.kappa).run(FORMING_S)
        before = 0
        for step in sorted(params.steps):
            ground.run(round(step) - before)
            before = round(step)
            found.append(Measure(attack, "success", step, float(ground.is_publisher_guessed(GUESS_WINDOW_S))))
            found.append(Measure(attack, "first_hand", step, ground.first_hand_share(GUESS_WINDOW_S)))
    return found


GUESS_WINDOW_S: Final = 300
"""Seconds by which the insider guesses."""
