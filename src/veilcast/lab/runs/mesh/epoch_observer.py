"""Attackers who see all wires, epoch after epoch: what each makes of the meshes so far.

Who is away says nothing, and the publisher is in its mesh in any case, so neither is asked about. P0 grants its
observer the overlay and the number of subscribers; the publisher is who sends without having received. Against it,
every epoch counts as evidence of its own: what is averaged over epochs is the share of them that speak for a node.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.hops import distances_from
from veilcast.lab.attack.observer import closure, disclosure, leaf_rule, mesh_source
from veilcast.lab.runs.mesh.epoch_setup import EpochWires

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


class EpochObserver:
    """Those of these attacks that need nothing but wires, after the epochs that they have been shown, in turn."""

    def __init__(self, attacks: Collection[str], subscribers: int, covers: float) -> None:
        """`covers` is the chance that somebody is in a mesh whom nobody needs, as far as one can know it."""
        self._attacks = frozenset(attacks)
        self._subscribers, self._covers = subscribers, covers
        self._asked: list[Mask] = []
        self._members: list[Mask] = []
        self._supported: list[Mask] = []
        self._needed: list[Scores] = []
        self._certain: list[Mask] = []
        self._each: dict[str, list[Scores]] = {attack: [] for attack in _EACH if attack in self._attacks}
        """Of attackers to whom every epoch is like every other: what each of them says."""

    def see(self, wave: EpochWires, *, closely: bool = True) -> None:
        """One more epoch. What takes long, to try every member as the root, is left out unless one looks closely."""
        graph, nodes = wave.graph, wave.graph.nodes
        members = leaf_rule.find_members(wave.src, wave.dst, nodes)
        origins = np.flatnonzero(members & ~leaf_rule.mask_of(wave.dst, nodes))
        # Where all wires are alike nobody is the origin, and one is as good as another.
        origin = int(origins[0] if origins.size else np.argmax(members))
        distance = distances_from(graph, origin)
        supported = closure.supported_members(graph, members, distance)
        asked = wave.present.copy()
        asked[origin] = False
        self._asked.append(asked)
        self._members.append(members)
        self._supported.append(supported)
        self._needed.append(closure.need_probability(graph, supported, distance))
        self._certain.append(closure.find_certain_subscribers(graph, members, distance))
        for attack, said in self._each.items():
            if closely or attack not in _SLOW:
                said.append(self._says(attack, wave, members, distance))

    def scores(self, attack: str) -> Scores:
        """By node, how much it looks like a subscriber to this attacker, or like the publisher."""
        asked, members = np.array(self._asked), np.array(self._members)
        match attack:
            case "persistence":
                return closure.score_membership_frequency(members, asked)
            case "closure":
                return closure.score_membership_likelihood(
                    np.array(self._supported), asked, np.array(self._needed), self._covers
                )
            case "intersection":
                # Who is away may have been it as well.
                return np.asarray(disclosure.remaining_candidates(members | ~asked)[-1], np.float64)
            case "flow-source" | "roots" | "rumor":
                return np.asarray(np.mean(self._each[attack], axis=0), np.float64)
            case _:
                said = np.sum(self._each[attack], axis=0, where=asked)
                return np.asarray(said / np.maximum(1, asked.sum(axis=0)), np.float64)

    def certain(self) -> Mask:
        """Whom closure is sure of, in the last epoch."""
        return self._certain[-1]

    def members(self) -> Mask:
        """Who was in the last mesh, and is asked about."""
        return self._members[-1] & self._asked[-1]

    def _says(self, attack: str, wave: EpochWires, members: Mask, distance: NDArray[np.int32]) -> Scores:
        graph, src, dst, nodes = wave.graph, wave.src, wave.dst, wave.graph.nodes
        rate = self._subscribers / nodes
        match attack:
            case "leaf":
                return leaf_rule.score_leaf_rule(src, dst, nodes)
            case "majority":
                return leaf_rule.name_majority(src, dst, nodes, self._subscribers).astype(np.float64)
            case "centrality":
                return closure.score_centrality(graph, members, distance)
            case "late-join":
                # One half of the readers comes to the mesh of the other: of each, what there is to be said.
                after, before = wave.members_at_joins[0], wave.members_at_joins[2]
                first = closure.score_closure(graph, before, distance, rate)
                return np.where(before, first, closure.score_late_join(graph, before, after, distance, rate))
            case "survivor":
                return closure.score_survivors(graph, wave.members_at_joins, distance, rate)
            case "flow-source":
                return mesh_source.score_flow_source(np.zeros(src.size, np.int64), src, dst, wave.hop, nodes)
            case "roots":
                return mesh_source.score_roots(graph, members)
            case "rumor":
                return mesh_source.score_rumor(graph, members)
            case other:
                raise ConfigError(f"{other!r} is no attack by whoever sees all wires")


_EACH = ("leaf", "majority", "centrality", "late-join", "survivor", "flow-source", "roots", "rumor")
_SLOW = ("roots", "rumor")
