"""All attackers on foiled streams, by name: candidates in, and for each how likely it is to be true.

An attacker sees the candidates of [streams, steps, n] and a `StreamModel` of what is known. Candidates are in slots,
where a
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
from veilcast.lab.attack.stream import many_steps as chains
from veilcast.lab.attack.stream import many_steps as kalman
from veilcast.lab.attack.stream import many_steps as lineages
from veilcast.lab.attack.stream import many_steps as repeats
from veilcast.lab.attack.stream import single_step as glance
from veilcast.lab.attack.stream.many_steps import score_endings
from veilcast.lab.attack.stream.model import Candidates, Posterior, StreamModel
from veilcast.lab.attack.stream.single_step import score_confirmation
from veilcast.lab.attack.stream.trained import score_trained


@dataclass(frozen=True)
class StreamAttacker:
    how: Callable[[Candidates, StreamModel], Posterior]
    needs: tuple[str, ...] = ()
    online: bool = True

    def applies(self, model: StreamModel) -> bool:
        return all(getattr(model, need) is not None for need in self.needs)

    def score(self, candidates: Candidates, model: StreamModel) -> Posterior:
        """Raises `ConfigError` for what are no candidates, and for a model that lacks what this attacker needs."""
        if candidates.ndim != 3 or 0 in candidates.shape or not np.isfinite(candidates).all():
            raise ConfigError("candidates are finite numbers of [streams, steps, n], some of each")
        if not self.applies(model):
            raise ConfigError(f"this attacker needs to know {' and '.join(self.needs)}")
        return self.how(np.ascontiguousarray(candidates, np.float64), model)


STREAM_ATTACKERS: Final[Mapping[str, StreamAttacker]] = MappingProxyType(
    {
        "uniform": StreamAttacker(glance.score_uniform),
        "medoid": StreamAttacker(glance.score_medoid),
        "most": StreamAttacker(glance.score_most_common),
        "odds": StreamAttacker(glance.score_odds, needs=("pmf", "fake_pmf")),
        "kalman-nearest": StreamAttacker(kalman.score_kalman_nearest, needs=("truth",)),
        "kalman-bank": StreamAttacker(kalman.score_kalman_bank, needs=("truth",)),
        "kalman-mean": StreamAttacker(kalman.score_kalman_mean, needs=("truth",)),
        "filter": StreamAttacker(chains.score_filter, needs=("truth",)),
        "smoother": StreamAttacker(chains.score_smoother, needs=("truth",), online=False),
        "viterbi": StreamAttacker(chains.score_viterbi, needs=("truth",), online=False),
        "hindsight": StreamAttacker(chains.score_hindsight, needs=("truth", "told")),
        "likelihood-ratio": StreamAttacker(lineages.score_likelihood_ratio, needs=("truth", "fakes"), online=False),
        "turns": StreamAttacker(lineages.score_turns, needs=("signs",), online=False),
        "restless": StreamAttacker(lineages.score_restless, needs=("proxy",), online=False),
        "endings": StreamAttacker(score_endings, needs=("endings",), online=False),
        "trained": StreamAttacker(score_trained, needs=("fitted",), online=False),
        "intersection": StreamAttacker(repeats.score_intersection, online=False),
        "repeats": StreamAttacker(repeats.score_repeats, needs=("pmf",)),
        "newcomer": StreamAttacker(repeats.score_newcomer),
        "confirmation": StreamAttacker(score_confirmation, needs=("asked",)),
    }
)
