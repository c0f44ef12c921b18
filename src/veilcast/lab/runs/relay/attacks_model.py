"""Runs of a relay on the models: what its server, its proxy, and an observer of its clients' wires learn.

Each attacker has what it saw in the epochs up to a step.

- The server alone: "dictionary" tries all words against the filters; "tag-frequency" names tags by their number of
  subscribers ("-pairs" by joint subscriptions, where the data tell); "oracle" asks as a user, as often as it is allowed
  to; "order" sorts the tags of values.
- The server with a view of the wires links users by when they are present ("filter-intersection"), and by the windows
  in which they subscribe ("timing-subscriptions") and publish: as one of the users that sent then ("timing"), or as the
  user that usually sends such a tag ("matching").
- The proxy alone names its own clients' tags ("proxy-frequency") and recognises bodies ("bodies").
- Wires alone tell which users publish for which others ("disclosure").

On the hardened relay, attacks on bytes are left to the machines (`attacks_machines`): in the model these bytes are
random numbers, and no attack could find anything.

The model writes tables (`relay_tables`). The attackers of the registry guess from them (`attack.server.server_job`).
`measure.relay_guesses` compares the guesses with the truth, by P2's definitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab.attack.server.server_job import guess_from_server
from veilcast.lab.attack.table_engine import AnyTable
from veilcast.lab.data import load_overlay
from veilcast.lab.experiment.params import Measure, file_path
from veilcast.lab.experiment.recorder import NO_RECORDER, TableRecorder, record_tables
from veilcast.lab.experiment.relay_params import RelayAttacks
from veilcast.lab.measure.relay_guesses import measure_relay_guesses
from veilcast.lab.models import prefix_tags, relay, topic_mix
from veilcast.lab.models.relay import EPOCH_US, RelayObservations, RelayService
from veilcast.lab.models.rng import stream
from veilcast.lab.runs.relay import relay_tables
from veilcast.lab.user_files import load_subscriptions

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


def run(
    params: RelayAttacks, seed: int, data: Path | None = None, recorder: TableRecorder = NO_RECORDER
) -> list[Measure]:
    if params.constant:
        raise ConfigError("records at a constant rate have the times of the machines: use the engine machines")
    reads, popularity, together = _interests(params, seed, data)
    people = relay.settle_users(reads, _WRITERS, _PUBLICATIONS, params.churn, seed)
    service = RelayService("paper" if params.relay == "paper" else "hardened", params.batch)
    shown, answers = relay.run_relay(people, service, int(params.steps[-1]))
    name = f"seed={seed}"
    observers, whole, own = set(params.observers), recorder.wants("server"), bool(params.attacks)
    observed = relay_tables.observe_relay(
        name,
        people,
        service,
        shown,
        answers,
        popularity,
        together,
        params.queries,
        _BOUND,
        # An attacker of the user's own may read everything.
        proxy=whole or own or "proxy" in observers,
        wires=recorder.wants("cells") or own or bool(observers & {"wires", "server and wires"}),
        whole=whole,
    )
    guesses = attack_tables(observed, params, (), data)
    found = measure_guesses(guesses, observed["truth"], params, (), seed)
    for step in params.steps:
        if "server" in params.observers:
            found.append(Measure("order", "recovered", step, _order(service, int(step), seed)))
        found.append(Measure("", "window", step, _crowd(shown, int(step))))
    record_tables(recorder, observed | {"guesses": guesses})
    return found


def attack_tables(
    observed: Mapping[str, AnyTable], params: RelayAttacks, names: Collection[str], _: Path | None
) -> AnyTable:
    """The guesses of these attackers, or of those that the parameters name."""
    known = [attack for observer in params.observers for attack in _ATTACKS[observer]]
    asked = names or [*(each for each in known if params.relay == "paper" or each not in _ON_BYTES), *params.attacks]
    return guess_from_server(observed, asked, [int(step) for step in params.steps])


def measure_guesses(
    guesses: pa.Table, truth: pa.Table, _: RelayAttacks, names: Collection[str], seed: int
) -> list[Measure]:
    """The measures of these attacks, or of all."""
    return [
        Measure(attack, metric, float(epochs), value)
        for attack, metric, epochs, value in measure_relay_guesses(guesses, truth, EPOCH_US)
        if not names or attack in names
    ]


def _crowd(shown: RelayObservations, step: int) -> float:
    """Mean number of users that send in a window of publications in which any user does."""
    sent = shown.publishing.sent[: shown.first_windows[step, 1]]
    many = np.count_nonzero(sent, axis=1)
    return float(many[many > 0].mean())


def _known_topics(params: RelayAttacks, data: Path | None) -> Mapping[str, NDArray[np.int32]]:
    """The readers of each topic, from the data folder or from the user's own file; empty if readers are drawn."""
    if own := file_path(params.subscriptions):
        found = load_subscriptions(Path(own).absolute(), None).topics
        number = {name: at for at, name in enumerate(sorted(set[str]().union(*found.values())))}
        return {topic: np.array([number[name] for name in names], np.int32) for topic, names in found.items()}
    return load_overlay(params.graph, data).topics if params.graph else {}


def _interests(params: RelayAttacks, seed: int, data: Path | None) -> tuple[Mask, Floats, Floats | None]:
    """Users x topics; the known popularity of topics, the most popular first; and of pairs of topics, if known."""
    topics = _known_topics(params, data)
    if topics:
        most = sorted(topics, key=lambda name: (-topics[name].size, name))[: params.topics]
        everybody = np.zeros((1 + max(int(topics[name].max()) for name in most), len(most)), np.bool_)
        for number, name in enumerate(most):
            everybody[topics[name], number] = True
        rng = np.random.default_rng(stream(seed, "users"))
        reads = everybody[rng.permutation(len(everybody))[: params.nodes]]
        shares = everybody.astype(np.float64)
        return reads, shares.mean(axis=0), shares.T @ shares / len(shares)
    popularity = topic_mix.zipf_popularity(params.topics, params.ratio)
    rng = np.random.default_rng(stream(seed, "readers"))
    reads = rng.random((params.nodes, params.topics)) < popularity
    if not reads.any():
        raise ConfigError("nobody reads anything; ratio is the share of users who read the most popular topic")
    return reads, popularity, None


def _order(service: RelayService, step: int, seed: int) -> float:
    """How well values are sorted: all values up to the step, or those of one epoch if tags change."""
    epochs = step if service.profile == "paper" else 1
    drawn = prefix_tags.draw_prefix_tags(_BITS, _VALUES * epochs, _RANGES * epochs, _WIDEST, seed)
    observed = relay_tables.observe_values(f"seed={seed} values", drawn)
    guesses = guess_from_server(observed, ["order"])
    ((_, _, _, recovered),) = measure_relay_guesses(guesses, observed["truth"], EPOCH_US)
    return recovered


_ATTACKS: Final = {
    "server": ("dictionary", "tag-frequency", "tag-frequency-pairs", "oracle"),
    "proxy": ("proxy-frequency", "bodies"),
    "wires": ("disclosure",),
    "server and wires": ("filter-intersection", "timing-subscriptions", "timing", "matching"),
}
"""The attackers of each adversary, beside "order", which has observations of its own."""
_ON_BYTES: Final = ("dictionary", "proxy-frequency", "bodies")
"""Attacks that look for bytes that come again."""
_WRITERS: Final = 3
"""Writers of each topic."""
_PUBLICATIONS: Final = 300.0
"""Publications in an epoch, of all topics together."""
_BOUND: Final = 0.001
"""Largest rate of false positives of a filter."""
_BITS: Final = 8
_VALUES: Final = 30
_RANGES: Final = 30
"""Publications and subscriptions of an attribute of `_BITS` bits, in an epoch."""
_WIDEST: Final = 0.2
