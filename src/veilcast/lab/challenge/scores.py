"""The score of an attacker on the challenge, beside the lab's own attackers.

1. The labels of the test runs are made again from their seeds. For the public set they are compared with the digests of
   the package first.
2. Within a run, nodes are ranked by their scores, for each role and topic; topics without anybody, or with everybody,
   rank nothing. The mean over topics is the run's measure. Candidates of foiled streams are ranked together.
3. The measure of a row and view is the mean over its test runs, of all settings alike, with Student's 95 % interval.
   Runs are independent; the spread contains that of settings.
4. The lab's attacker beside it is the one with the largest AUC on the training runs, measured on the test runs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from veilcast.errors import ConfigError, TamperedError
from veilcast.lab.challenge.files import digest_labels, known_digests, read_directory
from veilcast.lab.challenge.guesses import CodeAttacker, align_guesses, question_keys
from veilcast.lab.challenge.observed_runs import QUESTION, make_runs
from veilcast.lab.challenge.plan import PARTS, Setting, fits, read_packaged
from veilcast.lab.measure.ranking import measure_ranking
from veilcast.lab.measure.summary import summarise

Scores = NDArray[np.float64]


class RunScore(msgspec.Struct, frozen=True):
    """The measures of one attack in one run."""

    setting: str
    row: str
    view: str
    role: str
    attack: str
    run: str
    base: float
    """Share of the judged nodes that have the role."""
    auc: float
    tpr_1: float
    precision_at_size: float


class Target(NamedTuple):
    """An attack on a role, in one row and view."""

    row: str
    view: str
    role: str
    attack: str


class RowScore(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one attack in one row and view: means over runs, with their intervals."""

    row: str
    view: str
    role: str
    attack: str
    chosen: bool = False
    """Whether it is the lab's strongest, chosen on the training runs."""
    runs: int
    base: float
    auc: float
    auc_low: float
    auc_high: float
    tpr_1: float
    tpr_1_low: float
    tpr_1_high: float
    precision: float
    precision_low: float
    precision_high: float
    """Share of right ones among as many nodes with the highest scores as have the role."""


def make_labels(setting: Setting, salt: bytes = b"") -> pa.Table:
    """The labels of the test runs. Raises `TamperedError` if they are not those that the package has a digest of."""
    labels = make_runs(setting, "test", salt).labels
    known = "" if salt else known_digests(setting.size).get(f"hidden/{setting.name}", "")
    if known and digest_labels(labels) != known:
        raise TamperedError(
            f"the labels of {setting.name} are not those of this version of the challenge; is this package changed, or "
            "are numpy and others not of the versions in locks/?"
        )
    return labels


def score_guesses(
    guesses: pa.Table,
    settings: Iterable[Setting],
    attack: str,
    where: str,
    salt: bytes,
    show: Callable[[int], object],
) -> list[RunScore]:
    """Score a file of guesses in all rows that it has guesses about. Raises `ConfigError` for guesses about other runs,
    and for runs without guesses in a row that has some."""
    wanted = list(settings)
    runs = pa.array([run for setting in wanted for run in setting.run_names("test")])
    unknown = guesses.filter(pc.invert(pc.is_in(guesses["run"], runs)))
    if len(unknown):
        raise ConfigError(
            f"{where}: {len(unknown):,} guesses are about no test run of what is scored, first about run "
            f"{unknown['run'][0]}; test runs are called {runs[0]}, and --only chooses rows"
        )
    guessed = {run.split("/")[0] for run in pc.unique(guesses["run"]).to_pylist()}
    found = []
    chosen = [setting for setting in wanted if setting.row in guessed]
    for number, setting in enumerate(chosen):
        labels = make_labels(setting, salt)
        own = guesses.filter(pc.is_in(guesses["run"], pa.array(setting.run_names("test"))))
        scores = align_guesses(own, labels.select(list(QUESTION)), where)
        found += score_setting(setting, labels, scores, attack)
        show(number + 1)
    return found


def score_code(
    code: CodeAttacker, directory: Path, settings: Sequence[Setting], salt: bytes, show: Callable[[int], object]
) -> list[RunScore]:
    """Score an attacker of a Python file in these settings of a set, as far as it attacks them."""
    found: list[RunScore] = []
    for number, setting in enumerate(settings):
        if not code.patterns or any(fits(setting, pattern) for pattern in code.patterns):
            train, test = (read_directory(directory, part, setting) for part in PARTS)
            asked = test.pop("questions")
            scores = code.score(setting.name, train, train.pop("labels"), test, asked)
            found += score_setting(setting, make_labels(setting, salt), scores, code.name)
        show(number + 1)
    return found


def score_setting(setting: Setting, labels: pa.Table, scores: Scores, attack: str) -> list[RunScore]:
    """The measures of each run and role, from the score of each label."""
    return [
        RunScore(setting.name, setting.row, setting.block.view, role, attack, run, *measured)
        for run, role, measured in _measure(labels, scores)
    ]


def summarise_rows(scores: Sequence[RunScore], chosen: Iterable[Target] = ()) -> list[RowScore]:
    """The measures of each row, view, role and attack; `chosen` names the lab's strongest."""
    groups: dict[Target, list[RunScore]] = {}
    for each in scores:
        groups.setdefault(Target(each.row, each.view, each.role, each.attack), []).append(each)
    best, found = set(chosen), []
    for target, runs in groups.items():
        auc, tpr, precision = (
            summarise(values)
            for values in zip(*((run.auc, run.tpr_1, run.precision_at_size) for run in runs), strict=True)
        )
        found.append(
            RowScore(
                **target._asdict(),
                chosen=target in best,
                runs=len(runs),
                base=fmean(run.base for run in runs),
                auc=auc.value,
                auc_low=max(0.0, auc.low),
                auc_high=min(1.0, auc.high),
                tpr_1=tpr.value,
                tpr_1_low=max(0.0, tpr.low),
                tpr_1_high=min(1.0, tpr.high),
                precision=precision.value,
                precision_low=max(0.0, precision.low),
                precision_high=min(1.0, precision.high),
            )
        )
    return found


def choose_strongest(training: Iterable[RunScore], controls: Iterable[str]) -> list[Target]:
    """The attack with the largest mean AUC in each row, view and role; of equal ones the first by name."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for each in training:
        if each.attack not in controls:
            found.setdefault((each.row, each.view, each.role), {}).setdefault(each.attack, []).append(each.auc)
    return [Target(*key, _find_strongest(attacks)) for key, attacks in found.items()]


def _find_strongest(attacks: Mapping[str, Sequence[float]]) -> str:
    """Only attacks with results in as many runs as any other are compared."""
    most = max(map(len, attacks.values()))
    return min((-fmean(values), name) for name, values in attacks.items() if len(values) == most)[1]


def write_baselines(rows: Iterable[RowScore]) -> str:
    """The table of the lab's attackers, as CSV with four digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RowScore.__struct_fields__)
    for row in rows:
        writer.writerow(
            [f"{value:.4f}" if isinstance(value, float) else value for value in msgspec.structs.astuple(row)]
        )
    return text.getvalue()


def read_baselines(size: str) -> list[RowScore]:
    """The lab's attackers on this size, as recorded in the package."""
    lines = csv.DictReader(io.StringIO(read_packaged(f"{size}-baselines.csv").decode()))
    return [msgspec.convert({**line, "chosen": line["chosen"] == "True"}, RowScore, strict=False) for line in lines]


def _measure(labels: pa.Table, scores: Scores) -> Iterator[tuple[str, str, tuple[float, float, float, float]]]:
    judged = np.asarray(pc.is_valid(labels["holds"]).to_numpy(zero_copy_only=False), np.bool_)
    holds = np.asarray(pc.fill_null(labels["holds"], False).to_numpy(zero_copy_only=False), np.bool_)
    group = question_keys(labels, ("run", "role")).dictionary_encode()
    topic = question_keys(labels, ("run", "role", "topic")).dictionary_encode().indices.to_numpy()
    member = group.indices.to_numpy()
    for number, name in enumerate(group.dictionary.to_pylist()):
        run, role = name.split("\x1f")
        own = judged & (member == number)
        parts = [own] if role == _TOGETHER else [own & (topic == each) for each in np.unique(topic[own])]
        measured = [
            (float(np.mean(holds[part])), *(values[metric] for metric in _METRICS))
            for part in parts
            if (values := measure_ranking(scores[part], holds[part]))
        ]
        if measured:
            base, auc, tpr, precision = map(fmean, zip(*measured, strict=True))
            yield run, role, (base, auc, tpr, precision)


_METRICS: Final = ("auc", "tpr_1", "precision_at_size")
_TOGETHER: Final = "truth"
"""The role whose topics are ranked together."""
