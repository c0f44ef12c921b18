"""All attackers on foiled streams, by name: candidates in, and for each how likely it is to be true.

An attacker sees the candidates of [streams, steps, n] and a `Model` of what is known. Candidates are in slots, where a
generator has lineages: to follow each from step to step is granted, as the worst case; who wants to know what a broker
sees hands them in as `placed` orders them. Attackers are deterministic: where some cannot tell candidates apart they
say so by equal numbers, and whoever guesses by them splits a tie evenly.

`needs` are the fields of the model without which an attacker does not apply. One that is not `online` looks at a whole
stream before it judges any step of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from veilcast.errors import ConfigError
from veilcast.lab.attack import foil_chains as chains
from veilcast.lab.attack import foil_glance as glance
from veilcast.lab.attack import foil_kalman as kalman
from veilcast.lab.attack import foil_lineages as lineages
from veilcast.lab.attack import foil_repeats as repeats
from veilcast.lab.attack.foil_confirmed import confirmation
from veilcast.lab.attack.foil_endings import endings
from veilcast.lab.attack.foil_model import Candidates, Model, Posterior
from veilcast.lab.attack.foil_trained import trained


@dataclass(frozen=True)
class Attacker:
    how: Callable[[Candidates, Model], Posterior]
    needs: tuple[str, ...] = ()
    online: bool = True

    def applies(self, model: Model) -> bool:
        return all(getattr(model, need) is not None for need in self.needs)

    def score(self, candidates: Candidates, model: Model) -> Posterior:
        """Raises `ConfigError` for what are no candidates, and for a model that lacks what this attacker needs."""
        if candidates.ndim != 3 or 0 in candidates.shape or not np.isfinite(candidates).all():
            raise ConfigError("candidates are finite numbers of [streams, steps, n], some of each")
        if not self.applies(model):
            raise ConfigError(f"this attacker needs to know {' and '.join(self.needs)}")
        return self.how(np.ascontiguousarray(candidates, np.float64), model)


ATTACKERS: Final[Mapping[str, Attacker]] = MappingProxyType(
    {
        "uniform": Attacker(glance.uniform),
        "medoid": Attacker(glance.medoid),
        "most": Attacker(glance.most),
        "odds": Attacker(glance.odds, needs=("pmf", "fake_pmf")),
        "kalman-nearest": Attacker(kalman.nearest, needs=("truth",)),
        "kalman-bank": Attacker(kalman.bank, needs=("truth",)),
        "kalman-mean": Attacker(kalman.by_mean, needs=("truth",)),
        "filter": Attacker(chains.filtered, needs=("truth",)),
        "smoother": Attacker(chains.smoothed, needs=("truth",), online=False),
        "viterbi": Attacker(chains.viterbi, needs=("truth",), online=False),
        "hindsight": Attacker(chains.hindsight, needs=("truth", "told")),
        "likelihood-ratio": Attacker(lineages.likelihood_ratio, needs=("truth", "fakes"), online=False),
        "turns": Attacker(lineages.turns, needs=("signs",), online=False),
        "restless": Attacker(lineages.restless, needs=("proxy",), online=False),
        "endings": Attacker(endings, needs=("endings",), online=False),
        "trained": Attacker(trained, needs=("fitted",), online=False),
        "intersection": Attacker(repeats.intersection, online=False),
        "repeats": Attacker(repeats.repeats, needs=("pmf",)),
        "newcomer": Attacker(repeats.newcomer),
        "confirmation": Attacker(confirmation, needs=("asked",)),
    }
)
