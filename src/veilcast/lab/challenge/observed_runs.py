"""The runs of the challenge: what an adversary observes, and the labels of everything that it is asked about.

A question is a run, a topic, a role and a node. The adversary is asked about every node that it does not control, in
every topic, and for foiled streams about every candidate of every step but the first, which is public: the topic is
then STREAM/STEP, and the node is the slot. A label is true, false, or absent where a node is not judged: the publisher
of a mesh or of a broker is no candidate for a subscriber, and the adversary must not learn this from the questions.

Tables are sorted by all of their columns, so the order of rows tells nothing. Floats that are not whole are rounded to
six digits, as the last bits of exponentials and logarithms differ between processors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.errors import ConfigError
from veilcast.lab.challenge.broker_wires import BrokerWires, list_members, observe_wires
from veilcast.lab.challenge.plan import Part, Setting
from veilcast.lab.experiment.kinds import make_params
from veilcast.lab.experiment.mesh_params import MeshWires
from veilcast.lab.experiment.params import RunParams
from veilcast.lab.experiment.recorder import TableRecorder
from veilcast.lab.runs.foil.guesses import foil_streams
from veilcast.lab.runs.foil.stream_tables import observe_streams, tabulate_truth
from veilcast.lab.runs.table import find_run


class ObservedRuns(NamedTuple):
    """The runs of one part of a setting."""

    observed: dict[str, pa.Table]
    labels: pa.Table


def make_runs(setting: Setting, part: Part, salt: bytes = b"") -> ObservedRuns:
    """Make all runs of this part."""
    observed: dict[str, list[pa.Table]] = {name: [] for name in setting.block.tables}
    labels: list[pa.Table] = []
    for run in setting.run_names(part):
        found, answers = _make_run(setting, run, setting.seed_of(run, salt))
        for name, parts in observed.items():
            parts.append(_hide(found[name], setting.block.hidden_roles) if name == "server" else found[name])
        labels.append(answers)
    whole = {name: normalise(pa.concat_tables(parts)) for name, parts in observed.items()}
    return ObservedRuns(whole, normalise(pa.concat_tables(labels)))


def read_params(setting: Setting) -> RunParams | BrokerWires:
    """The parameters of the runs. Raises `ConfigError` for parameters that the kind does not have."""
    if setting.block.kind == _BROKERS:
        return _broker_params(setting)
    return make_params(setting.block.kind, setting.params)


def normalise(table: pa.Table) -> pa.Table:
    """The same rows in one order, and with the floats that every processor gives."""
    for place, field in enumerate(table.schema):
        if field.type == pa.float64():
            table = table.set_column(place, field, pa.array(_round(table[field.name].to_numpy()), pa.float64()))
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def _round(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    whole = values == np.rint(values)
    rounded = values.copy()
    # By way of decimal text, which is rounded correctly everywhere.
    rounded[~whole] = [float(f"{value:.{_DIGITS}g}") for value in values[~whole].tolist()]
    return rounded + 0.0


def _make_run(setting: Setting, run: str, seed: int) -> tuple[dict[str, pa.Table], pa.Table]:
    if setting.block.kind == _BROKERS:
        params = _broker_params(setting)
        found, truth = observe_wires(params, run, seed)
        topics = [f"brokers/{number}" for number in range(params.topics)]
        return found, _label(run, list_members(params), truth, {"subscriber": topics, "publisher": [""]})
    made = make_params(setting.block.kind, setting.params)
    if setting.block.kind == _FOIL:
        return _make_streams(made, run, seed)
    found = _record(setting, made, run, seed)
    truth = found["truth"]
    topics = _topics_of(setting, found, truth)
    controlled = set(truth.filter(pc.equal(truth["role"], "insider"))["node"].to_pylist())
    nodes = [node for node in pc.unique(found["presence"]["node"]).sort().to_pylist() if node not in controlled]
    return found, _label(run, nodes, truth, dict.fromkeys(setting.block.asks, topics))


def _record(setting: Setting, params: RunParams, run: str, seed: int) -> dict[str, pa.Table]:
    """The tables of a run that an experiment could make."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in (*setting.block.tables, "truth", "presence")}
    recorder = TableRecorder(run, {name: each.append for name, each in parts.items()})
    if isinstance(params, MeshWires):
        from veilcast.lab.runs.mesh import wires_machines

        wires_machines.observe(params, seed, recorder)
        return {name: pa.concat_tables(each) for name, each in parts.items()}
    unattacked = {name: () for name in ("attacks", "observers") if hasattr(params, name)}
    find_run(_RUNS[setting.block.kind])(msgspec.structs.replace(params, **unattacked), seed, None, recorder)  # type: ignore[call-arg]
    return {name: pa.concat_tables(each) for name, each in parts.items()}


def _make_streams(params: Any, run: str, seed: int) -> tuple[dict[str, pa.Table], pa.Table]:
    parts = list(foil_streams(params, seed, None))
    if len(parts) > 1:
        raise ConfigError("streams of real prices are no part of the challenge: their data is not free to hand on")
    [part] = parts
    found = observe_streams(run, part.candidates, part.model, part.unit, part.ancestral, ())
    truth = tabulate_truth(run, part.position, part.day)
    slots = part.candidates.shape[2]
    judged = truth.filter(pc.greater(truth["step"], 0))
    step, slot = np.repeat(np.arange(len(judged)), slots), np.tile(np.arange(slots), len(judged))
    names = [
        f"{stream}/{at}" for stream, at in zip(*(judged[each].to_pylist() for each in ("stream", "step")), strict=True)
    ]
    labels = pa.table(
        [
            pa.repeat(pa.scalar(run), len(step)),
            pa.array(names).take(pa.array(step)),
            pa.repeat(pa.scalar("truth"), len(step)),
            pa.array([str(each) for each in range(slots)]).take(pa.array(slot)),
            pa.array(judged["slot"].to_numpy()[step] == slot),
        ],
        schema=LABELS,
    )
    return found, labels


def _label(run: str, nodes: list[str], truth: pa.Table, asked: Mapping[str, list[str]]) -> pa.Table:
    """The labels of these nodes, for the topics of each role."""
    held = set(zip(*(truth[name].to_pylist() for name in ("topic", "role", "node")), strict=True))
    # Where both roles are asked for, nobody has both.
    publishers = {node for _, role, node in held if role == "publisher"} if "publisher" in asked else set()
    rows = [
        (run, topic, role, node, None if role == "subscriber" and node in publishers else (topic, role, node) in held)
        for role, topics in asked.items()
        for topic in topics
        for node in nodes
    ]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, LABELS, strict=True)], LABELS)


def _topics_of(setting: Setting, found: Mapping[str, pa.Table], truth: pa.Table) -> list[str]:
    """The topics that are asked about: all that the public knows, or the one in question."""
    if setting.block.kind in _MANY_TOPICS:
        topics: list[str] = pc.unique(found["popularity"]["topic"]).sort().to_pylist()
        return topics
    return sorted(set(truth.filter(pc.equal(truth["role"], "subscriber"))["topic"].to_pylist()))


def _hide(server: pa.Table, roles: Collection[str]) -> pa.Table:
    for beginning in roles:
        server = server.filter(pc.invert(pc.starts_with(server["role"], beginning)))
    return server


def _broker_params(setting: Setting) -> BrokerWires:
    try:
        return msgspec.convert(dict(setting.params), BrokerWires)
    except msgspec.ValidationError as error:
        raise ConfigError(f"setting {setting.name}: {error}") from error


LABELS: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("holds", pa.bool_()),
    ]
)
QUESTION: Final = ("run", "topic", "role", "node")
"""The columns of a question."""
_DIGITS: Final = 6
_BROKERS: Final = "brokers.wires"
_FOIL: Final = "foil.guesses"
_MANY_TOPICS: Final = ("relay.attacks", "tree.definitions")
_RUNS: Final = {
    "mesh.epochs": "mesh.epochs_model",
    "relay.attacks": "relay.attacks_model",
    "tree.definitions": "tree.definitions_model",
}
