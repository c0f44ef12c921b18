"""A matrix of an experiment: its series down, attackers across, one metric in each cell, and what a defence costs.

This is what a decision is made from: who is stopped by what, and at which price. Where the experiment has axes, or its
runs have steps, there is a matrix for every combination of them; the reader chooses, and `at` says where they begin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from veilcast.errors import ConfigError


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """Unique among the figures and matrices of its experiment, and fit for a file name."""
    title: str
    attacks: tuple[str, ...]
    """From left to right. What an attack does not give for a series stays empty."""
    metric: str = "auc"
    over: str = ""
    """A metric of the same attack by which it is divided: success over base rate. Empty for the metric as it is."""
    chance: float = 0.5
    """What an attacker reaches who has learned nothing: where colour begins."""
    certain: float = 1.0
    """What one reaches who has learned all: where colour is full."""
    costs: tuple[str, ...] = ()
    """Metrics of the network itself, which stand beside."""
    at: dict[str, Any] = {}
    """What is shown first: a value of an axis, and "step". The last, where nothing is said."""

    def __post_init__(self) -> None:
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise ConfigError(f"matrices.{self.name}: attacks must be there, each once")
        if self.chance == self.certain:
            raise ConfigError(f"matrices.{self.name}: chance and certain must differ")

    def problems(self, axes: Mapping[str, Collection[Any]], steps: Collection[float]) -> Iterator[str]:
        """Values that it begins with and that no run has."""
        for name, value in self.at.items():
            if value not in (steps if name == "step" else axes.get(name, ())):
                yield f"matrices.{self.name}: `at` {name} = {value} is in no cell"
