"""How often a publisher's first relay has been an insider, where neighbours come and go.

The rule itself (`mesh/first_relay.py`) runs, with one heartbeat for each epoch of an hour. A publisher has `--degree`
links that it opened. Each neighbour stays for a random number of epochs, `--stay` on the average, and is away in a
tenth of them. A new neighbour takes the place of one that has left, and is an insider with the probability
`--insiders`. Insiders neither leave nor are away, so their share of the links grows. Three rules: "kept" is the node's;
"ranked" takes in each epoch the neighbour with the least keyed hash, as nodes did before; "silenced" is "kept" with an
adversary that ends every honest first relay at once.

    python benchmarks/first_relay.py --seeds 300 --insiders 0.1 --degree 8 --stay 4800
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from random import Random
from typing import Final

from veilcast.crypto.secret import Secret
from veilcast.machine import Address
from veilcast.mesh.config import FirstRelayConfig
from veilcast.mesh.first_relay import FirstRelay
from veilcast.mesh.neighbour_table import NeighbourTable
from veilcast.mesh.sticky_choices import StickyChoices


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--insiders", type=float, default=0.1)
    parser.add_argument("--degree", type=int, default=8)
    parser.add_argument("--stay", type=int, default=4800)
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 720, 8760])
    options = parser.parse_args(arguments)
    for rule in RULES:
        runs = [
            run(rule, options.insiders, options.degree, options.stay, max(options.steps), seed)
            for seed in range(options.seeds)
        ]
        for step in options.steps:
            taken = sum(captured is not None and captured < step for captured, _, _ in runs) / options.seeds
            waits = sum(sum(epoch < step for epoch in waiting) for _, _, waiting in runs) / options.seeds / step
            relays = sum(sum(epoch < step for epoch in changes) for _, changes, _ in runs) / options.seeds
            print(f"{rule:9} epochs {step:5}  taken {taken:.3f}  relays {relays:.2f}  away {waits:.3f}", flush=True)


def run(
    rule: str, insiders: float, degree: int, stay: int, epochs: int, seed: int
) -> tuple[int | None, list[int], list[int]]:
    """The first epoch in which the first relay is an insider, all in which it is another than before, and all in which
    it is away."""
    rng, street = Random(f"{rule} {seed}"), _Street(Random(f"members {seed}"), insiders, stay)
    members = NeighbourTable((), period_us=1, silent_periods=1 << 40, now=0)
    habits = StickyChoices(Secret(rng.randbytes(32)))
    relay = FirstRelay(FirstRelayConfig(), habits, members, lambda _: None, epoch_beats=1)
    for _ in range(degree):
        street.link(members, 0)
    changes: list[int] = []
    waiting: list[int] = []
    captured, before = None, None
    for epoch in range(epochs):
        now = 1 + 4 * epoch
        street.turn(members, epoch, now)
        relay.beat(now + 1, mass_failure=False)
        key = relay.key
        if rule == "ranked":
            key = habits.choose_first_relay(members.identity(name) for name in members.neighbours)
        name = None if key is None else members.find_by_identity(key)
        if key != before:
            changes.append(epoch)
            before = key
        if name is None or name not in members.present:
            waiting.append(epoch)
        elif captured is None and street.is_hostile[name]:
            captured = epoch
        if rule == "silenced" and name is not None and not street.is_hostile[name]:
            street.end(members, name, now)
    return captured, changes, waiting


class _Street:
    """The members that a publisher is linked to, and for how long."""

    def __init__(self, rng: Random, insiders: float, stay: int) -> None:
        self._rng, self._insiders, self._stay = rng, insiders, stay
        self.is_hostile: dict[Address, bool] = {}
        self._number = 0

    def link(self, members: NeighbourTable, now: int) -> None:
        name = Address(f"m{len(self.is_hostile)}")
        self.is_hostile[name] = self._rng.random() < self._insiders
        members.add(name, now, name.encode())

    def end(self, members: NeighbourTable, name: Address, now: int) -> None:
        members.remove(name)
        self.link(members, now)

    def turn(self, members: NeighbourTable, epoch: int, now: int) -> None:
        for name in members.neighbours:
            if self.is_hostile[name]:
                members.hear(name, epoch, now)
            elif self._rng.random() * self._stay < 1:
                self.end(members, name, now)
            elif self._rng.random() < AWAY:
                members.mark_lost(name)
            else:
                members.hear(name, epoch, now)


RULES: Final = ("ranked", "kept", "silenced")
AWAY: Final = 0.1

if __name__ == "__main__":
    main()
