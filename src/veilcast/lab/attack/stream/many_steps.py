"""Round numbers: people quote prices at full, half and tenth parts, and fakes that only copy moves do not.

Of a day's closing minutes twice as many end in a full ten cents as would by chance. A fake that goes as far as the
truth, up where that goes down, ends anywhere. How often the truth ends in each of the last digits is public; a slot's
likelihood is the product of these shares over its steps, against that of endings that are all alike. Few steps suffice,
unless a broker sees no digits: who routes by cells that are wider than what people round to shows no ending.


Attackers by a hidden chain: only the truth goes on from itself, and who knows how it moves smooths it out.

P3 takes a Kalman filter for "sophisticated signal processing"; it has one normal belief about the value and forgets
what the candidates are. A chain over the candidates (`kernels.foil_chains`) is exact where fakes are noise around the
truth: `filter` up to each step, `smoother` with all that came after, `score_viterbi` the one likeliest path. Where the
fakes
are not around the truth, the chain has the moves alone to go by. It does not use the order of the candidates.

`score_hindsight` is for values that become public after a while. It starts from what was true then, which slots are
granted
to show, and follows it to now.


P3's own attacker (V.A), in three readings: pick what is next to a Kalman filter's expectation.

The paper's curve is below that of guessing from two fakes on. That is no merit of foiling: where the truth moves much
farther than the fakes are spread, what is next to the expectation is an end of the set, and the truth is at an end with
probability 2^-K. The same filter with its deviations the right way round, or the middle of the set, does better.


Attackers that look for what comes again: fakes drawn anew do not stay, and cached ones return too faithfully.

`score_intersection`: where the truth lasts and fakes are drawn at each step, it is what neighbouring sets share. The
longer a
value is in the set without a break, the likelier it is true.

`score_repeats`: where a queue of past vectors brings the same fakes back with a value, a set returns as often as its
truth
is true. How often values are true is public (P3's Scenario III), so of a set that came c times in N steps the candidate
v is true with a likelihood of p(v)^c e^(-N p(v)).

`score_newcomer`: a set that was not cached has a truth that never was true before, so values that were in few different
sets
are likelier than others; this needs no probabilities.


Attackers that follow each slot over the whole stream: does it move as the truth does, or as fakes do?

They are for candidates that go on from themselves, and are granted to see which is which from step to step. Moves that
are not of the truth's law give a fake away, a little at each step, and after some hundred for certain.

`score_likelihood_ratio` weighs the moves of a slot by the law of the truth against that of the fakes. `score_turns`
looks at signs
alone, given the sizes: whether moves go on or turn back. Sign-flip copies the sizes, and this is what is left of it.
`score_restless` knows from elsewhere (the volume traded, an index) how restless each step was, up to a factor, and
prefers
the slot whose moves were large at those times: fakes of any law of their own are calm when the day is not."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit

from veilcast.errors import ConfigError
from veilcast.lab.attack.stream.model import Candidates, Numbers, Posterior, SignLaw, StreamModel, require_known
from veilcast.lab.attack.stream.single_step import normalise_weights, pick_best
from veilcast.lab.models import hidden_chain, kalman, repeated_values


def score_filter(candidates: Candidates, model: StreamModel) -> Posterior:
    return hidden_chain.filter_forward(model.numbers(candidates), *_chain_terms(model))


def score_smoother(candidates: Candidates, model: StreamModel) -> Posterior:
    return hidden_chain.smooth(model.numbers(candidates), *_chain_terms(model))


def score_viterbi(candidates: Candidates, model: StreamModel) -> Posterior:
    path = hidden_chain.best_path(model.numbers(candidates), *_chain_terms(model))
    # Candidates of one value are one guess.
    chosen = candidates == np.take_along_axis(candidates, path[:, :, None], axis=2)
    return np.asarray(chosen / chosen.sum(axis=2, keepdims=True), np.float64)


def score_hindsight(candidates: Candidates, model: StreamModel) -> Posterior:
    values, told = model.numbers(candidates), model.numbers(require_known(model.told))
    return hidden_chain.trace_branches(values, told, model.delay, *_chain_terms(model)[:3], float(model.branching))


def _chain_terms(model: StreamModel) -> tuple[float, float, float, float]:
    """Of the law of moves and the noise, as floats: whole numbers would have kernels of their own compiled."""
    scale, mean, freedom = require_known(model.truth)
    return float(scale), float(mean), float(freedom), float(model.noise or 0)


def score_kalman_nearest(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.NEAREST)


def score_kalman_bank(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.BANK)


def score_kalman_mean(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.BY_MEAN)


def _pick_by_kalman(candidates: Candidates, model: StreamModel, reading: int) -> Posterior:
    """A normal law of moves is all that such a filter knows; without any noise it takes what it sees for true."""
    law = require_known(model.truth)
    r = model.noise or law.scale * _SMALL
    return pick_best(
        -kalman.innovation_distances(model.numbers(candidates), reading, float(law.scale), float(law.mean), float(r))
    )


_SMALL: Final = 1e-3


def score_intersection(candidates: Candidates, model: StreamModel) -> Posterior:
    codes, many = _encode_values(candidates)
    return pick_best(repeated_values.run_lengths(codes, many).astype(np.float64))


def score_repeats(candidates: Candidates, model: StreamModel) -> Posterior:
    p = require_known(model.pmf)
    values = candidates.astype(np.int64)
    if not ((values == candidates) & (values >= 0) & (values < len(p))).all():
        raise ConfigError(f"candidates are codes from 0 to {len(p) - 1}")
    count, ago = repeated_values.set_returns(*_sets(values))
    likely = np.log(np.maximum(p, _RARE))[values] * count[:, :, None] - p[values] * ago[:, :, None]
    return normalise_logs(likely)


def score_newcomer(candidates: Candidates, model: StreamModel) -> Posterior:
    codes, many = _encode_values(candidates)
    count, _ = repeated_values.set_returns(*_sets(codes))
    return pick_best(-repeated_values.earlier_appearances(codes, count == 0, many).astype(np.float64))


def normalise_logs(logs: Numbers) -> Posterior:
    """Logarithms of likelihoods to shares."""
    return normalise_weights(np.exp(logs - logs.max(axis=2, keepdims=True)))


def _encode_values(candidates: Candidates) -> tuple[NDArray[np.int64], int]:
    values, codes = np.unique(candidates, return_inverse=True)
    return codes.reshape(candidates.shape), len(values)


def _sets(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    found, sets = np.unique(repeated_values.set_fingerprints(codes), return_inverse=True)
    return sets.reshape(codes.shape[:2]), len(found)


_RARE: Final = 1e-300


def score_likelihood_ratio(candidates: Candidates, model: StreamModel) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    return weigh_whole_stream(
        candidates, require_known(model.truth).log_density(moves) - require_known(model.fakes).log_density(moves)
    )


def score_turns(candidates: Candidates, model: StreamModel) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    products = moves[:, 1:] * moves[:, :-1]
    return weigh_whole_stream(
        candidates, _signs(products, require_known(model.signs)) - _signs(products, model.fake_signs)
    )


def score_restless(candidates: Candidates, model: StreamModel) -> Posterior:
    moves = np.diff(model.numbers(candidates), axis=1)
    size = require_known(model.proxy)[:, 1:]
    if size.shape != moves.shape[:2] or not (size > 0).all():
        raise ConfigError("how restless a step was is a number above 0 for each")
    # Normal moves with deviations in these proportions, and for each slot the factor that suits it best.
    spread = ((moves / size[:, :, None]) ** 2).mean(axis=1)
    found = -moves.shape[1] / 2 * np.log(np.maximum(spread, _VARIANCE_MIN))
    return np.repeat(normalise_logs(found[:, None, :]), candidates.shape[1], axis=1)


def weigh_whole_stream(candidates: Candidates, logs: Numbers) -> Posterior:
    """What all moves of a slot say together, for each step alike."""
    return np.repeat(normalise_logs(logs.sum(axis=1, keepdims=True)), candidates.shape[1], axis=1)


def _signs(products: Numbers, law: SignLaw) -> Numbers:
    """The logarithm of how likely each turn was, or that there was none; rests say nothing."""
    odds = law.constant + law.slope * np.abs(products)
    return np.where(products == 0, 0.0, log_expit(np.sign(products) * odds))


_VARIANCE_MIN: Final = 1e-300


def score_endings(candidates: Candidates, model: StreamModel) -> Posterior:
    shares = require_known(model.endings)
    units = np.rint(candidates).astype(np.int64)
    if not (units == candidates).all():
        raise ConfigError("endings are of whole numbers: candidates are to be counted in their smallest unit")
    return weigh_whole_stream(candidates, np.log(shares * len(shares))[units % len(shares)])


def count_endings(values: Numbers, many: int = 100) -> Numbers:
    """How often whole numbers of a history end in each of so many endings; none is ruled out for not having come."""
    ends = np.rint(values).astype(np.int64).ravel() % many
    found = np.bincount(ends, minlength=many) + _AT_LEAST
    return np.asarray(found / found.sum(), np.float64)


_AT_LEAST: Final = 0.5
