"""The registry of attackers: one entry for each name, role and kind of observations; and the names in experiments."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

import pytest

from veilcast.errors import ConfigError
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.observer.observations import CaptureObservations, EpochObservations, WireObservations
from veilcast.lab.attack.registry import (
    ATTACKERS,
    PUBLISHER,
    SUBSCRIBER,
    Attacker,
    attack_names,
    attackers_on,
    find_attacker,
)
from veilcast.lab.attack.stream.model import StreamObservations
from veilcast.lab.experiment.mesh_params import Inside, Outside, Source

KINDS = list(dict.fromkeys([*(each.observes for each in ATTACKERS), CaptureObservations, EpochObservations]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_and_a_role_stand_for_one_attacker_on_one_kind_of_observations(kind: type) -> None:
    found: list[Attacker[Any]] = attackers_on(kind)
    keys = [(each.name, each.role) for each in found]
    assert len(set(keys)) == len(keys)


def test_every_attack_that_an_experiment_may_name_is_registered_for_model_runs_with_its_role() -> None:
    for name in get_args(Outside):
        assert find_attacker(name, EpochObservations).role == SUBSCRIBER
    for name in get_args(Inside):
        assert find_attacker(name, CoalitionObservations).role == SUBSCRIBER
    for name in get_args(Source):
        assert find_attacker(name, EpochObservations, CoalitionObservations).role == PUBLISHER


def test_captures_and_model_runs_share_the_attackers_that_need_no_more_than_wires() -> None:
    shared = [each for each in ATTACKERS if each.observes is WireObservations]
    assert {each.name for each in shared} == {
        *("leaf", "majority", "persistence", "closure", "centrality", "intersection", "late-join", "survivor"),
        *("disclosure", "least-squares", "flow-source", "roots", "rumor"),
    }


def test_no_name_and_role_stand_twice() -> None:
    """On related observations there is one formula; unrelated ones share a name where the idea is the same."""
    for first, second in combinations(ATTACKERS, 2):
        if (first.name, first.role) == (second.name, second.role):
            common = set(first.observes.__mro__) & set(second.observes.__mro__)
            assert not any(issubclass(each, WireObservations) for each in common), first.name


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no attack is called 'guess'; there are uniform, medoid"):
        attackers_on(StreamObservations, ["guess"])
    with pytest.raises(ConfigError, match="no attack on these observations is called 'leaf'"):
        find_attacker("leaf", CoalitionObservations)
    assert "leaf" not in attack_names(CoalitionObservations)
