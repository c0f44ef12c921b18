"""Guesses of anybody's attacker, checked against the questions.

A file of guesses is a Parquet or CSV file with the columns run, topic, role, node and score; a column `attack` tells
several attackers apart, and other columns are ignored. Scores are larger where the attacker believes more strongly.
Every question of a setting has exactly one score: a node that is left out would make a rank by silence.

A file with code is a Python file with a function `guess(observed, questions)`. It gets the tables of one setting's test
runs by name, and the table of questions, and returns a score for each row of the questions. A function
`learn(observed, labels)`, if there is one, is called before with the training runs of the setting. A list `ROWS` of
patterns says which rows it attacks. It runs in this process: read a file before you run it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.lab.attack.foreign import describe_error, read_attacker_file, run_attacker_file
from veilcast.lab.challenge.observed_runs import QUESTION

Scores = NDArray[np.float64]


def read_guesses(path: Path) -> dict[str, pa.Table]:
    """The guesses of each attack of a file. Raises `StorageError` or `ConfigError`, in one line, for any other file."""
    table = _read(path)
    if missing := [name for name in _COLUMNS if name not in table.column_names]:
        raise ConfigError(
            f"{path} has no column {' and no '.join(missing)}; guesses have the columns {', '.join(_COLUMNS)}"
        )
    named = table.select([*_COLUMNS, *([_ATTACK] if _ATTACK in table.column_names else [])])
    try:
        plain = named.select(list(QUESTION)).cast(pa.schema([(name, pa.string()) for name in QUESTION]))
        scores = named["score"].cast(pa.float64())
    except pa.ArrowException as error:
        raise ConfigError(
            f"{path}: {' '.join(str(error).split())}; scores are numbers, other columns are names"
        ) from error
    table = plain.append_column("score", scores)
    for name in table.column_names:
        if table[name].null_count:
            raise ConfigError(
                f"{path}: {table[name].null_count} rows have no {name}; leave no cell empty except a topic"
            )
    finite = pc.is_finite(table["score"])
    if not pc.all(finite).as_py() and len(table):
        row = pc.index(finite, False).as_py()
        raise ConfigError(
            f"{path}: the score of row {row + 1} is {table['score'][row]}, and {pc.sum(pc.invert(finite))} are no "
            "finite numbers; give a small number to what is unlikely"
        )
    if _ATTACK not in named.column_names:
        return {path.stem: table}
    attack = named[_ATTACK].cast(pa.string())
    return {name: table.filter(pc.equal(attack, name)) for name in pc.unique(attack).sort().to_pylist()}


def align_guesses(guesses: pa.Table, questions: pa.Table, where: str) -> Scores:
    """The score of each question, of guesses about these runs alone. Raises `ConfigError` where there is not one."""
    asked, given = question_keys(questions), question_keys(guesses)
    place = pc.index_in(given, asked)
    if place.null_count:
        row = pc.index(pc.is_null(place), True).as_py()
        raise ConfigError(
            f"{where}: {place.null_count} guesses are about what was not asked, first {_name(guesses, row)}; "
            "the questions of a setting are in its questions.parquet"
        )
    places = place.to_numpy()
    count = np.bincount(places, minlength=len(questions))
    for wrong, told in ((count > 1, "has several guesses"), (count < 1, "has no guess")):
        if wrong.any():
            raise ConfigError(
                f"{where}: {np.count_nonzero(wrong):,} questions: each {told}, first "
                f"{_name(questions, int(np.argmax(wrong)))}; give every row of questions.parquet one score, or choose "
                "complete rows by --only"
            )
    scores = np.empty(len(questions))
    scores[places] = guesses["score"].to_numpy()
    return scores


def question_keys(table: pa.Table, columns: Sequence[str] = QUESTION) -> pa.Array:
    """One text for each row, equal for equal questions."""
    texts = [table[name].cast(pa.string()) for name in columns]
    return pc.binary_join_element_wise(*texts, "\x1f").combine_chunks()


class CodeAttacker:
    """An attacker of a Python file with a function `guess`."""

    def __init__(self, path: Path, module: ModuleType) -> None:
        self._path, self._module = path, module
        self.name = path.stem
        self.patterns: list[str] = list(getattr(module, "ROWS", ()))

    def score(
        self,
        setting: str,
        train: Mapping[str, pa.Table],
        labels: pa.Table,
        test: Mapping[str, pa.Table],
        asked: pa.Table,
    ) -> Scores:
        """Its scores of these questions."""
        if learn := getattr(self._module, "learn", None):
            self._call(setting, learn, dict(train), labels)
        found = self._call(setting, self._module.guess, dict(test), asked)
        try:
            scores = np.asarray(found, np.float64)
        except (TypeError, ValueError) as error:
            raise self._fault(setting, f"its scores are no numbers ({describe_error(error)})") from error
        if scores.shape != (len(asked),):
            raise self._fault(setting, f"its scores have shape {scores.shape}, and there are {len(asked)} questions")
        if not np.isfinite(scores).all():
            raise self._fault(setting, f"{np.count_nonzero(~np.isfinite(scores))} of its scores are no finite numbers")
        return scores

    def _call(self, setting: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*copy.copy(arguments))
        except Exception as error:
            raise self._fault(setting, describe_error(error, str(self._path))) from error

    def _fault(self, setting: str, why: str) -> LocalError:
        return LocalError(f"{self._path}, setting {setting}: {why}")


def read_code(path: Path) -> CodeAttacker | None:
    """The attacker of a Python file with a function `guess`; None for a file with ATTACKER, in the lab's own form.

    Raises `ConfigError` for a file with neither.
    """
    module = run_attacker_file(read_attacker_file(path))
    if callable(getattr(module, "guess", None)):
        return CodeAttacker(path, module)
    if hasattr(module, "ATTACKER") or hasattr(module, "ATTACKERS"):
        return None
    raise ConfigError(f"{path} has neither a function guess(observed, questions) nor ATTACKER")


def _read(path: Path) -> pa.Table:
    try:
        if path.suffix == ".csv":
            text = {name: pa.string() for name in (*QUESTION, _ATTACK)}
            options = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=False)
            return pyarrow.csv.read_csv(path, convert_options=options)
        return pq.read_table(path, partitioning=None)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or 'it is no whole file'}") from error
    except pa.ArrowException as error:
        raise ConfigError(
            f"{path} is no file of guesses: a Parquet file, a CSV file whose name ends in .csv, or code in .py"
        ) from error


def _name(table: pa.Table, row: int) -> str:
    run, topic, role, node = (table[name][row].as_py() for name in QUESTION)
    return f"{role} {node}" + (f" of topic {topic}" if topic else "") + f" in run {run}"


_COLUMNS: Final = (*QUESTION, "score")
_ATTACK: Final = "attack"
