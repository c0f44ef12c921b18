from __future__ import annotations

from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.observer import leaf_rule
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.models.epochs import Epoch, run_epochs
from veilcast.lab.runs.mesh.epoch_setup import (
    EpochCopies,
    Mask,
    make_policy,
    observe_constant_wires,
    observe_formation,
    observe_wires,
    play_games,
    settle_people,
)

PLAIN = MeshEpochs(nodes=120, degree=6, churn=0.1, insiders=0.1, steps=(4,))
GAMES = msgspec.structs.replace(PLAIN, games=4.0)
COVERED = msgspec.structs.replace(PLAIN, cover="one", mu=0.7, covers="variable")


class Wave(NamedTuple):
    epoch: Epoch
    copies: EpochCopies
    members: Mask
    formation: Mask


@cache
def waves(params: MeshEpochs, seed: int = 3) -> list[Wave]:
    people, way = settle_people(params, seed, None), make_policy(params)
    found = []
    for epoch in run_epochs(people, way, int(params.steps[-1])):
        copies = observe_wires(epoch, play_games(people, epoch, way.games) if way.games else None)
        members = leaf_rule.find_members(copies.src, copies.dst, people.graph.nodes)
        found.append(Wave(epoch, copies, members, observe_formation(people, epoch, hidden=False)))
    return found


@pytest.mark.parametrize("params", [PLAIN, COVERED, GAMES], ids=["BL", "PF", "SG"])
def test_a_wave_comes_from_one_node_and_to_every_other_member_once(params: MeshEpochs) -> None:
    for epoch, copies, members, _ in waves(params):
        assert np.unique(copies.dst).size == copies.dst.size
        assert np.count_nonzero(members) == copies.dst.size + 1
        assert epoch.present[members].all()
        assert (copies.hop[np.isin(copies.src, copies.dst, invert=True)] == 0).all()


def test_games_move_members_about_and_bring_nobody_in() -> None:
    for plain, moved in zip(waves(PLAIN), waves(GAMES), strict=True):
        assert (plain.members == moved.members).all()
        assert not np.array_equal(plain.copies.dst, moved.copies.dst)


@pytest.mark.parametrize("params", [PLAIN, COVERED, GAMES], ids=["BL", "PF", "SG"])
def test_the_mesh_grows_with_its_readers_to_what_it_is(params: MeshEpochs) -> None:
    for wave in waves(params):
        assert (wave.formation[0] == wave.members).all()
        for larger, smaller in zip(wave.formation, wave.formation[1:], strict=False):
            assert not (smaller & ~larger).any()
        assert np.count_nonzero(wave.formation[3]) < np.count_nonzero(wave.formation[0])


def test_on_silent_wires_all_links_are_alike() -> None:
    params = msgspec.structs.replace(PLAIN, kappa=0.5)
    for epoch in run_epochs(settle_people(params, 3, None), make_policy(params), 3):
        seen = observe_constant_wires(epoch)
        assert seen.dst.size == epoch.graph.targets.size
        assert not seen.hop.any()
        assert sorted(zip(seen.src, seen.dst, strict=True)) == sorted(zip(seen.dst, seen.src, strict=True))


@pytest.mark.parametrize(
    "more",
    [{"cover": "one"}, {"games": 1.0}, {"origin": "fresh"}],
    ids=lambda more: next(iter(more)),
)
def test_a_hardened_mesh_has_no_other_defence(more: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="over epochs"):
        make_policy(MeshEpochs(steps=(1,), kappa=0.5, **more))  # type: ignore[arg-type]
