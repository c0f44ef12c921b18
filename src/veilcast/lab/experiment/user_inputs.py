"""What users bring to an experiment: files of data, and attackers from outside the package.

Files are read before the sweep starts, and all their faults are told at once. An experiment lists files of attackers in
`attackers`, or names an attacker of an entry point in `attacks` or `guessers`. Runs get them by `RunWithAttackers`,
which carries the text of the files and installs the attackers in the process of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from veilcast.errors import ConfigError, StorageError
from veilcast.lab import data, trace_file, user_files
from veilcast.lab.attack import foreign, registry
from veilcast.lab.attack.foreign import AttackerSource
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.registry import Attacker
from veilcast.lab.experiment.definition import Experiment, Series
from veilcast.lab.experiment.file_problems import unknown_name
from veilcast.lab.experiment.mesh_params import MeshEpochs
from veilcast.lab.experiment.params import Measure, RunFunction, RunParams, UserFile, entry_point_names, file_path


@dataclass(frozen=True)
class RunWithAttackers:
    """A run function that installs attackers first. An executor needs nothing but the package for it."""

    run: RunFunction
    sources: tuple[AttackerSource, ...]

    def __call__(self, params: RunParams, seed: int, data: Path | None, *more: Any) -> list[Measure]:
        foreign.install_attackers(self.sources)
        return self.run(params, seed, data, *more)


def find_sources(experiment: Experiment) -> tuple[AttackerSource, ...]:
    """Of the files that the experiment lists, and of the entry points that its cells name."""
    files = [foreign.read_attacker_file(Path(file_path(each))) for each in experiment.attacker_files()]
    ours = {each.name for each in registry.ATTACKERS}
    own = {each.name for source in files for each in foreign.load_attackers(source)}
    named = {name for cell in experiment.make_cells() for name in cell.params.named_attackers()}
    points = sorted((named - ours - own) & set(entry_point_names()))
    return (*files, *map(AttackerSource, points))


def check_attackers(name: str, experiment: Experiment) -> dict[str, Attacker[Any]]:
    """The attackers from outside that the experiment uses, by name; they stay installed in this process.

    Raises `ConfigError` for a file that is no attacker, for a name that is taken, and for unknown names.
    """
    foreign.install_attackers(find_sources(experiment))
    for cell in experiment.make_cells():
        kind = cell.params.kind()
        ours = (one for observed in foreign.SERVES.get(kind, ()) for one in registry.attack_names(observed))
        known = cell.params.KNOWN_ATTACKERS or tuple(dict.fromkeys(ours))
        for attack in cell.params.named_attackers():
            if attack not in known and attack not in registry.FOREIGN:
                raise ConfigError(f"experiment {name}: {unknown_name('attacker', attack, (*known, *registry.FOREIGN))}")
            own = registry.FOREIGN.get(attack)
            if own is not None and not foreign.serves(own, kind):
                raise ConfigError(f"experiment {name}: attacker {attack} observes no runs of kind {kind}")
    return dict(registry.FOREIGN)


def add_attackers(experiment: Experiment, attackers: dict[str, Attacker[Any]]) -> Experiment:
    """The experiment with these attackers in each series that has what they observe. Series that foil let all attackers
    of the user guess if they name none."""

    def extend(series: Series) -> Series:
        whole, kind = experiment.base | series.params, series.kind or experiment.kind
        if kind.startswith("foil.") or "attacks" in experiment.axes:
            return series
        axes = experiment.axes.get("insiders", ())
        inside = kind != MeshEpochs.kind() or (all(axes) if axes else bool(whole.get("insiders")))
        now = [str(each) for each in whole.get("attacks", ())]
        fit = [name for name, each in attackers.items() if foreign.serves(each, kind)]
        fit = [name for name in fit if inside or attackers[name].observes is not CoalitionObservations]
        more = [name for name in fit if name not in now]
        return msgspec.structs.replace(series, params=series.params | {"attacks": [*now, *more]}) if more else series

    return msgspec.structs.replace(experiment, series=tuple(map(extend, experiment.series)))


def check_user_files(files: Iterable[UserFile]) -> list[str]:
    """One line for each file: what was read, and what was left out.

    Raises `ConfigError` with the faults of all files, a line each, or `StorageError` if files cannot be read at all.
    """
    notes, faults, unreadable = list[str](), dict[str, None](), True
    for file in files:
        try:
            notes.append(f"{file.path}: {'; '.join(_read(file))}")
        except (ConfigError, StorageError) as error:
            unreadable = unreadable and isinstance(error, StorageError)
            faults |= dict.fromkeys(str(error).splitlines())
    if faults:
        raise (StorageError if unreadable else ConfigError)("\n".join(faults))
    return notes


def _read(file: UserFile) -> tuple[str, ...]:
    path = Path(file.path).absolute()
    match file.format:
        case "edges":
            return data.load_user_overlay(path, None, file.of).notes
        case "subscriptions":
            return user_files.load_subscriptions(path, Path(file.of).absolute() if file.of else None).notes
        case "latencies":
            return user_files.load_latencies(path).notes
        case "series":
            return user_files.load_series(path, file.of).notes
        case "attacker":
            found = foreign.load_attackers(foreign.read_attacker_file(path))
            return (f"attackers {', '.join(each.name for each in found)}",)
        case "trace":
            trace = trace_file.load_trace(path)
            return f"{trace.publisher.size:,} interactions of {trace.users:,} users", trace.describe_refused()
