"""The attackers of foiled streams on tables: `streams` and public knowledge in, `stream_guesses` out.

A group is a block of streams of one run, so that a run of any length is spread over tasks. Laws are in `facts`. Series
and distributions are in `stream_knowledge`, where a number that is about no single stream has the stream -1. Guesses
are the likeliest candidates of each step, with their probability. P3's measures need no others, and all candidates of
a million streams would be a large table for each attacker.

Where lineages branch, `stream_knowledge` has the path of each final slot ("ancestral"): following branchings is
granted, as the worst case. Attackers that judge whole paths then look at these, and guess at the last step alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError
from veilcast.lab import tables
from veilcast.lab.attack.grouped_tables import GroupedRun, RunTable, union_tables
from veilcast.lab.attack.registry import applies, attack_names, find_attacker, score_candidates
from veilcast.lab.attack.stream.model import (
    Candidates,
    LineLaw,
    MoveLaw,
    Posterior,
    SeenBranchings,
    SignLaw,
    StreamModel,
    StreamObservations,
)
from veilcast.lab.attack.stream.trained import FittedLogit
from veilcast.lab.attack.table_engine import AnyTable, engine_of
from veilcast.lab.tables import StreamGuessRow

Numbers = NDArray[np.int64]


def guess_streams(
    observed: Mapping[str, AnyTable], names: Collection[str] | None = None, epochs: Sequence[int] = ()
) -> AnyTable:
    """By these attackers, or by all that apply. Streams have no epochs: all their steps are judged."""
    if "streams" not in observed:
        raise ConfigError("the attackers of foiled streams need the table streams")
    known = attack_names(StreamObservations)
    if unknown := sorted(set(names or ()) - set(known)):
        raise ConfigError(f"no attackers on streams are called {', '.join(unknown)}")
    engine = engine_of(observed["streams"])
    streams = engine.query(_STREAMS, streams=observed["streams"])
    place = {"at": f"step * {SLOTS_MAX} + slot", "number": "stream", "share": "value"}
    grouped = [RunTable(_SEEN, streams, place)]
    if others := [name for name in ("facts", "stream_knowledge") if name in observed]:
        blocks = engine.keep(engine.query(_BLOCKS, streams=observed["streams"]))
        for name in others:
            found = engine.query(_OF_BLOCKS[name], table=observed[name], blocks=blocks)
            columns = {"word": "name", "share": "value"} | (place if name == "stream_knowledge" else {})
            grouped.append(RunTable(name, found, columns))

    def of_block(rows: pa.Table) -> pa.Table:
        return _guess_block(GroupedRun(rows), names or known, all_of_them=names is not None)

    united = union_tables(grouped)
    return engine.apply_by(united, ["run"], of_block, StreamGuessRow)


def _guess_block(block: GroupedRun, names: Collection[str], *, all_of_them: bool) -> pa.Table:
    seen = _BlockStreams(block)
    model, ancestral = seen.read_model()
    parts = [tables.arrow_schema(StreamGuessRow).empty_table()]
    for name in names:
        if all_of_them or applies(find_attacker(name, StreamObservations), model):
            if name in PATH_ATTACKERS and ancestral is not None:
                posterior = score_candidates(name, ancestral, model)
                posterior[:, :-1] = -1.0
            else:
                posterior = score_candidates(name, seen.candidates, model)
            parts.append(seen.name_likeliest(name, posterior))
    return pa.concat_tables(parts)


class _BlockStreams:
    """The streams of a block as an array, and the public numbers about them."""

    def __init__(self, block: GroupedRun) -> None:
        self._run = block.run.rpartition(_BLOCK_MARK)[0]
        self._facts = block.table("facts")
        self._knowledge = block.table("stream_knowledge")
        rows = block.table(_SEEN)
        self._streams = np.unique(rows["number"].to_numpy())
        at = rows["at"].to_numpy()
        steps, slots = int(at.max()) // SLOTS_MAX + 1, int((at % SLOTS_MAX).max()) + 1
        if len(rows) != self._streams.size * steps * slots:
            raise ConfigError("a stream has as many candidates at each step")
        self.candidates: Candidates = np.empty((self._streams.size, steps, slots))
        self.candidates[self._places(rows)] = rows["share"].to_numpy()

    def read_model(self) -> tuple[StreamModel, Candidates | None]:
        """The public knowledge, and the paths of the final slots if lineages branch."""
        facts = dict(zip(self._facts["word"].to_pylist(), self._facts["share"].to_pylist(), strict=True))
        fake_signs, told = _read_signs(facts, "fake_"), self._series("told")
        model = StreamModel(
            truth=_read_law(facts, "truth"),
            fakes=_read_law(facts, "fake"),
            noise=facts.get("noise"),
            signs=_read_signs(facts, ""),
            fake_signs=SignLaw() if fake_signs is None else fake_signs,
            pmf=self._distribution("pmf"),
            fake_pmf=self._distribution("fake_pmf"),
            branching=facts.get("branching", 0.0),
            delay=0 if told is None else int(facts["delay"]),
            told=told,
            proxy=self._series("proxy"),
            endings=self._distribution("endings"),
            asked=self._asked(),
            relative=bool(facts.get("relative", 0.0)),
            codes=int(facts["codes"]) if "codes" in facts else None,
            dependent=self._cube("dependent"),
            correlation=facts.get("correlation"),
            fake_line=LineLaw(facts["fake_slope"], facts["fake_deviation"]) if "fake_slope" in facts else None,
            branchings=self._branchings() if "child_odds" in facts else None,
            child_odds=facts.get("child_odds", 2.0),
            told_slot=self._told_slot(),
            told_event=int(facts.get("told_event", 0)),
            forecast=self._series("forecast"),
            forecast_keep=facts.get("forecast_keep", 1.0),
            forecast_law=_read_law(facts, "forecast"),
            fitted=None if (weights := self._distribution("weights")) is None else FittedLogit(weights),
        )
        return model, self._cube("ancestral")

    def name_likeliest(self, attack: str, posterior: Posterior) -> pa.Table:
        """Rows of the likeliest candidates, up to the last bits; a step with negative numbers has none."""
        best = posterior.max(axis=2, keepdims=True)
        stream, step, slot = np.nonzero((posterior >= best * (1 - _LAST_BITS)) & (best >= 0))
        columns = {"stream": self._streams[stream], "step": step, "slot": slot, "score": posterior[stream, step, slot]}
        return tables.from_columns("stream_guesses", run=self._run, attack=attack, **columns)

    def _places(self, rows: pa.Table) -> tuple[Numbers, Numbers, Numbers]:
        at = rows["at"].to_numpy()
        return np.searchsorted(self._streams, rows["number"].to_numpy()), at // SLOTS_MAX, at % SLOTS_MAX

    def _named(self, name: str) -> pa.Table:
        return self._knowledge.filter(pc.equal(self._knowledge["word"], name))

    def _distribution(self, name: str) -> NDArray[np.float64] | None:
        rows = self._named(name).sort_by("at")
        return rows["share"].to_numpy() if len(rows) else None

    def _series(self, name: str) -> NDArray[np.float64] | None:
        found = self._cube(name, slots=1)
        return None if found is None else found[:, :, 0]

    def _asked(self) -> NDArray[np.bool_] | None:
        found = self._cube("asked")
        return None if found is None else found > 0

    def _branchings(self) -> SeenBranchings:
        """Rows have the number of the event in `step`, the parent in `slot`, and the child as the value."""
        rows = self._named("branching")
        stream, event, parent = self._places(rows)
        return SeenBranchings(event, stream, parent, rows["share"].to_numpy().astype(np.int64))

    def _told_slot(self) -> Numbers | None:
        rows = self._named("told_slot")
        found = np.full(self._streams.size, -1)
        found[self._places(rows)[0]] = rows["share"].to_numpy().astype(np.int64)
        return found if len(rows) else None

    def _cube(self, name: str, slots: int | None = None) -> Candidates | None:
        rows = self._named(name)
        found = np.zeros((*self.candidates.shape[:2], slots or self.candidates.shape[2]))
        found[self._places(rows)] = rows["share"].to_numpy()
        return found if len(rows) else None


def model_facts(model: StreamModel) -> dict[str, float]:
    """The laws of a model as facts."""
    found = {"branching": model.branching, "delay": float(model.delay), "relative": float(model.relative)}
    if model.noise is not None:
        found["noise"] = model.noise
    if model.forecast is not None:
        found["forecast_keep"] = model.forecast_keep
    for name, law in (("truth", model.truth), ("fake", model.fakes), ("forecast", model.forecast_law)):
        if law is not None:
            found |= {f"{name}_scale": law.scale, f"{name}_mean": law.mean, f"{name}_freedom": law.freedom}
    for name, signs in (("", model.signs), ("fake_", model.fake_signs)):
        if signs is not None:
            found |= {f"{name}sign_constant": signs.constant, f"{name}sign_slope": signs.slope}
    if model.fake_line is not None:
        found |= {"fake_slope": model.fake_line.slope, "fake_deviation": model.fake_line.deviation}
    if model.branchings is not None:
        found |= {"child_odds": model.child_odds, "told_event": float(model.told_event)}
    for name in ("codes", "correlation"):
        if (value := getattr(model, name)) is not None:
            found[name] = float(value)
    return found


def model_series(model: StreamModel) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """The names and numbers of a model for `stream_knowledge`: of one dimension if they are about no single stream."""
    fitted = model.fitted.weights if isinstance(model.fitted, FittedLogit) else None
    one = {"pmf": model.pmf, "fake_pmf": model.fake_pmf, "endings": model.endings, "weights": fitted}
    each = {"told": model.told, "proxy": model.proxy, "asked": model.asked, "dependent": model.dependent}
    each["forecast"] = model.forecast
    if model.told_slot is not None:
        each["told_slot"] = model.told_slot[:, None].astype(np.float64)
    for name, values in (one | each).items():
        if values is not None:
            yield name, np.asarray(values, np.float64)


def _read_law(facts: Mapping[str, float], name: str) -> MoveLaw | None:
    if f"{name}_scale" not in facts:
        return None
    return MoveLaw(facts[f"{name}_scale"], facts[f"{name}_mean"], facts[f"{name}_freedom"])


def _read_signs(facts: Mapping[str, float], name: str) -> SignLaw | None:
    if f"{name}sign_constant" not in facts:
        return None
    return SignLaw(facts[f"{name}sign_constant"], facts[f"{name}sign_slope"])


PATH_ATTACKERS: Final = ("likelihood-ratio", "turns", "restless", "endings", "trained")
"""Attackers that judge whole paths. If lineages branch, they receive the path of each slot."""
SLOTS_MAX: Final = 1 << 16
"""Slots of a step, at most."""
_BLOCK_MARK: Final = "#"
_SEEN: Final = "seen"
_LAST_BITS: Final = 1e-9
_STREAMS: Final = """
    SELECT concat(run, '#', cast(stream - stream % 2000 AS string)) AS run, stream, step, slot, value FROM {streams}
"""
_BLOCKS: Final = "SELECT DISTINCT run, stream - stream % 2000 AS block FROM {streams}"
_OF_BLOCKS: Final[dict[str, str]] = {
    "facts": """
    SELECT concat(t.run, '#', cast(block AS string)) AS run, name, value
    FROM {table} AS t JOIN {blocks} AS b ON t.run = b.run
    """,
    "stream_knowledge": """
    SELECT concat(t.run, '#', cast(block AS string)) AS run, name, stream, step, slot, value
    FROM {table} AS t JOIN {blocks} AS b ON t.run = b.run AND (t.stream < 0 OR t.stream - t.stream % 2000 = b.block)
    """,
}
"""Blocks have 2,000 streams, and the number of its first stream stands behind the name of the run."""
