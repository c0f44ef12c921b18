"""Attackers that look at many steps of a stream: chains, Kalman filters, lineages, endings, expectations and repeats.

Hidden chains: only the truth continues from itself. P3 takes a Kalman filter for "sophisticated signal processing";
that filter has one normal belief about the value and forgets the candidates. A chain over the candidates
(`models.hidden_chain`) is exact where fakes are noise around the truth: `score_filter` up to each step,
`score_smoother` with all later steps, `score_viterbi` the one likeliest path. Where the fakes are not around the truth,
the chain has only the moves. It does not use the order of the candidates. `score_hindsight` is for values that become
public after a while: it starts from the value that was true then, which slots are granted to show, and follows it to
now.

Kalman filters (P3's own attacker, V.A), in three readings: pick the candidate next to the filter's expectation. The
paper's curve is below that of guessing from two fakes on. That is no merit of foiling. Where the truth moves much
farther than the fakes are spread, the candidate next to the expectation is an end of the set, and the truth is at an
end with probability 2^-K. The same filter with correct deviations, or the middle of the set, does better.

Lineages: does a slot move as the truth does, or as fakes do? These attackers are for candidates that continue from
themselves, and are granted to follow each slot. Moves of another law than the truth's give a fake away, a little at
each step, and after some hundred steps with certainty. `score_likelihood_ratio` weighs the moves of a slot by both
laws. `score_turns` looks at signs alone, given the sizes: sign-flip copies the sizes, and the signs are what is left.
`score_restless` knows from elsewhere (the traded volume, an index) the volatility of each step up to a factor, and
prefers the slot with large moves at those times: fakes with a law of their own are calm when the day is not.

Endings: people quote prices at full, half and tenth parts, and fakes that only copy moves do not. Twice as many closing
minutes of a day end in a full ten cents as would by chance. A fake that goes as far as the truth in the other direction
ends anywhere. The frequency of the last digits is public. A slot's likelihood is the product of these shares over its
steps, against uniform endings. Few steps suffice, unless a broker sees no digits: routing by cells wider than what
people round to shows no ending.

Expectations: everybody knows a temperature's curve by day, or how far a meter usually is by now. Fakes that copy moves
know nothing of it, so a candidate that follows the public forecast is true. `score_expected` takes the candidate
nearest to the forecast, step by step; `score_above` and `score_below` take the highest and the lowest one: fakes that
lag behind a growth leave the truth at an end. `score_errors` follows each slot. The distance of its path from the
forecast should move as the truth's does: the share `forecast_keep` lasts to the next step, and the rest has the law
`forecast_law`.

Repeats: fakes that are drawn again do not stay, and cached ones return too faithfully. `score_intersection`: where the
truth lasts and fakes are drawn at each step, the truth is what neighbouring sets share; the longer a value is in the
set without a break, the likelier it is true. `score_repeats`: where a queue of past vectors returns the same fakes with
a value, a set returns as often as its truth is true. The frequencies of values are public (P3's Scenario III), so of a
set that came c times in N steps the candidate v is true with a likelihood of p(v)^c e^(-N p(v)). `score_newcomer`: the
truth of a set that was not cached was never true before, so values that were in few different sets are likelier; this
needs no probabilities.
"""

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


def score_kalman_nearest(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.NEAREST)


def score_kalman_bank(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.BANK)


def score_kalman_mean(candidates: Candidates, model: StreamModel) -> Posterior:
    return _pick_by_kalman(candidates, model, kalman.BY_MEAN)


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
    """Log-likelihoods to probabilities."""
    return normalise_weights(np.exp(logs - logs.max(axis=2, keepdims=True)))


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
    # Normal moves with deviations in these proportions, and the best factor for each slot.
    spread = ((moves / size[:, :, None]) ** 2).mean(axis=1)
    found = -moves.shape[1] / 2 * np.log(np.maximum(spread, _VARIANCE_MIN))
    return np.repeat(normalise_logs(found[:, None, :]), candidates.shape[1], axis=1)


def weigh_whole_stream(candidates: Candidates, logs: Numbers) -> Posterior:
    """The evidence of all moves of a slot together, for each step alike."""
    return np.repeat(normalise_logs(logs.sum(axis=1, keepdims=True)), candidates.shape[1], axis=1)


def score_endings(candidates: Candidates, model: StreamModel) -> Posterior:
    shares = require_known(model.endings)
    units = np.rint(candidates).astype(np.int64)
    if not (units == candidates).all():
        raise ConfigError("endings are of whole numbers: candidates are to be counted in their smallest unit")
    return weigh_whole_stream(candidates, np.log(shares * len(shares))[units % len(shares)])


def score_expected(candidates: Candidates, model: StreamModel) -> Posterior:
    return pick_best(-np.abs(candidates - require_known(model.forecast)[:, :, None]))


def score_above(candidates: Candidates, model: StreamModel) -> Posterior:
    """From the middle of each step, because the size of a number must not decide what counts as a tie."""
    return pick_best(candidates - candidates.mean(axis=2, keepdims=True))


def score_below(candidates: Candidates, model: StreamModel) -> Posterior:
    return score_above(-candidates, model)


def score_errors(candidates: Candidates, model: StreamModel) -> Posterior:
    errors = candidates - require_known(model.forecast)[:, :, None]
    fresh = errors[:, 1:] - model.forecast_keep * errors[:, :-1]
    logs = np.zeros(candidates.shape)
    logs[:, 1:] = np.cumsum(require_known(model.forecast_law).log_density(fresh), axis=1)
    return normalise_logs(logs)


def count_endings(values: Numbers, many: int = 100) -> Numbers:
    """Share of each of `many` endings among the whole numbers of a history; no ending gets 0."""
    ends = np.rint(values).astype(np.int64).ravel() % many
    found = np.bincount(ends, minlength=many) + _AT_LEAST
    return np.asarray(found / found.sum(), np.float64)


def _chain_terms(model: StreamModel) -> tuple[float, float, float, float]:
    """The law of moves and the noise, as floats: numba would compile other kernels for whole numbers."""
    scale, mean, freedom = require_known(model.truth)
    return float(scale), float(mean), float(freedom), float(model.noise or 0)


def _pick_by_kalman(candidates: Candidates, model: StreamModel, reading: int) -> Posterior:
    """Such a filter knows a normal law of moves only; without noise it takes its observation for the truth."""
    law = require_known(model.truth)
    r = model.noise or law.scale * _SMALL
    return pick_best(
        -kalman.innovation_distances(model.numbers(candidates), reading, float(law.scale), float(law.mean), float(r))
    )


def _encode_values(candidates: Candidates) -> tuple[NDArray[np.int64], int]:
    values, codes = np.unique(candidates, return_inverse=True)
    return codes.reshape(candidates.shape), len(values)


def _sets(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    found, sets = np.unique(repeated_values.set_fingerprints(codes), return_inverse=True)
    return sets.reshape(codes.shape[:2]), len(found)


def _signs(products: Numbers, law: SignLaw) -> Numbers:
    """The log-likelihood of each turn or continuation; moves of 0 say nothing."""
    odds = law.constant + law.slope * np.abs(products)
    return np.where(products == 0, 0.0, log_expit(np.sign(products) * odds))


_SMALL: Final = 1e-3
_RARE: Final = 1e-300
_VARIANCE_MIN: Final = 1e-300
_AT_LEAST: Final = 0.5
