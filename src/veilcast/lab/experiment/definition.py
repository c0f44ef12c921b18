"""The definition of an experiment, as its TOML file states it: a claim, the runs, the figures and the numbers that
results are held against.

The cells of an experiment are the product of its axes, once for each series. A cell and a seed are a run. A figure
draws curves over an axis, or over the steps inside a run. Numbers are published, of an earlier run, or checks of our
own (`lab.measure.stated_numbers`). Each has an expected verdict: the experiment states beforehand what will not be
reproduced.

A matrix shows defences (the series, down) against attackers (across): one metric in each cell, and the costs of each
defence. If the experiment has axes, or its runs have steps, there is one matrix for each combination of their values.
The reader of the report chooses one, and `at` is the first choice.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from veilcast.decoding import read_toml
from veilcast.errors import ConfigError
from veilcast.lab.experiment.file_problems import find_problems, unknown_name
from veilcast.lab.experiment.kinds import add_kinds, make_params
from veilcast.lab.experiment.params import FILE, RunParams, UserFile, entry_point_names, file_path, resolve_files
from veilcast.lab.measure.stated_numbers import (
    EarlierNumber,
    OwnCheck,
    PublishedNumber,
    StatedNumber,
    find_number_problems,
)


class AttackMatrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """Unique among the figures and matrices of its experiment; used as a file name."""
    title: str
    attacks: tuple[str, ...]
    """Columns, from left to right. A cell stays empty if the series has no such attack."""
    metric: str = "auc"
    over: str = ""
    """A metric of the same attack that divides the metric, as in success over base rate. Empty: no division."""
    chance: float = 0.5
    """The value of an attacker that has learned nothing: where colour begins."""
    certain: float = 1.0
    """The value of an attacker that has learned everything: where colour is full."""
    costs: tuple[str, ...] = ()
    """Metrics of the network itself, in columns of their own."""
    at: dict[str, Any] = {}
    """The choice that is shown first: values of axes, and of "step". The default is the last value."""

    def __post_init__(self) -> None:
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise ConfigError(f"matrices.{self.name}: attacks must be there, each once")
        if self.chance == self.certain:
            raise ConfigError(f"matrices.{self.name}: chance and certain must differ")

    def find_problems(self, axes: Mapping[str, Collection[Any]], steps: Collection[float]) -> Iterator[str]:
        """Values of `at` that no run has."""
        for name, value in self.at.items():
            if value not in (steps if name == "step" else axes.get(name, ())):
                yield f"matrices.{self.name}: `at` {name} = {value} is in no cell"


class OverviewEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an experiment says about one mode, profile and adversary in the overview of a report."""

    mode: Literal["mesh", "relay", "tree", "foil", "brokers"]
    profile: Literal["paper", "hardened"]
    adversary: Literal["global observer", "insiders", "server", "proxy", "nodes", "broker", "Byzantine brokers"]
    asks: str
    """What the adversary wants to know, such as "who subscribes"."""
    measure: str
    """What the number is, in a phrase."""
    attacks: tuple[str, ...]
    """The attackers, of which the strongest is shown."""
    metric: str
    chance: float
    """The value of an attacker that has learned nothing."""
    certain: float = 1.0
    series: str = ""
    at: dict[str, Any] = {}
    """The values of the axes, and of "step"; the default is the last step."""


class OverviewCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a mode and profile costs, in the overview of a report."""

    mode: Literal["mesh", "relay", "tree", "foil", "brokers"]
    profile: Literal["paper", "hardened"]
    what: str
    """The cost with its unit, such as "messages a publication"."""
    metric: str
    series: str = ""
    at: dict[str, Any] = {}


_O = TypeVar("_O", bound="ExperimentOutline")


class Series(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of parameters to compare with others, and its name."""

    name: str
    params: dict[str, Any] = {}
    kind: str = ""
    """The kind of its runs; empty: the experiment's."""


class FigureCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a figure: a metric of a series over the figure's x. `at` fixes the other axes."""

    label: str
    metric: str
    series: str = ""
    """Empty if the experiment has no series."""
    attack: str = ""
    """Empty for a metric of the network itself."""
    at: dict[str, Any] = {}
    """Can also fix "step" where x is an axis; the default is the last step of the runs."""
    style: Literal["line", "points", "reference"] = "line"


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    """Unique in its experiment; used as a file name."""
    title: str
    x: str
    """An axis, or "step"."""
    x_label: str
    y_label: str
    curves: tuple[FigureCurve, ...]
    log_x: bool = False
    log_y: bool = False


class QuickSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes that `--quick` makes."""

    seeds: int = 4
    params: dict[str, Any] = {}


class MachineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the experiment that the machines run. They are some thousand times slower than the models."""

    seeds: int = 30
    cells: tuple[str, ...] = ("*",)
    """Names of cells, or patterns of names."""
    params: dict[str, Any] = {}
    """Parameters that are smaller for the machines."""


class ExperimentCell(msgspec.Struct, frozen=True):
    """One combination of an experiment's parameters."""

    name: str
    series: str
    at: dict[str, Any]
    params: RunParams


class ExperimentOutline(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an experiment that determines its runs, without figures, matrices and stated numbers."""

    title: str
    kind: str
    """The kind of its runs (see [kinds](#kinds))."""
    claim: str
    """The sentence that the experiment tests."""
    minutes: float
    """Approximate duration of the whole experiment on two cores."""
    source: str = ""
    """The figure or table of a paper; empty for an experiment of our own."""
    seeds: int = 100
    """Runs of each cell."""
    base: dict[str, Any] = {}
    """Parameters of all runs."""
    axes: dict[str, tuple[Any, ...]] = {}
    """Parameters that take several values, each with the list of its values."""
    series: tuple[Series, ...] = (Series(""),)
    quick: QuickSettings = QuickSettings()
    machines: MachineSettings = MachineSettings()
    folder: str = ""
    """The directory that paths in "file:PATH" are relative to. The default is the directory of the experiment's
    file."""
    attackers: tuple[str, ...] = ()
    """Attackers of your own: "file:PATH" of Python files with `ATTACKER` or `ATTACKERS`, for `attacks` and `guessers`
    to name."""
    engines: tuple[Literal["kernel", "machines", "live"], ...] = ("kernel", "machines")
    """The engines that can run it: models on arrays, the real code in the simulator, or the real code on sockets. The
    first is the default."""

    def make_cells(self, *, quick: bool = False, engine: str = "kernel") -> Iterator[ExperimentCell]:
        """The cells in the order of the file. Their names are unique and stable."""
        shrunk = self.quick.params if quick else {}
        shrunk = shrunk | self.machines.params if engine == "machines" else shrunk
        chosen = self.machines.cells if engine == "machines" else ("*",)
        for series in self.series:
            for values in itertools.product(*self.axes.values()):
                at = dict(zip(self.axes, values, strict=True))
                parts = [*filter(None, [series.name]), *(f"{axis}={value}" for axis, value in at.items())]
                name = " ".join(parts) or "all"
                if any(fnmatchcase(name, pattern) for pattern in chosen):
                    yield ExperimentCell(name, series.name, at, self._make_params(series, at | shrunk))

    def _make_params(self, series: Series, more: dict[str, Any]) -> RunParams:
        given = resolve_files(self.base | series.params | more, self.folder)
        return make_params(series.kind or self.kind, given)

    def default_seeds(self, engine: str, *, quick: bool = False) -> int:
        """Number of seeds if the command names none."""
        usual = self.machines.seeds if engine == "machines" else self.seeds
        return min(usual, self.quick.seeds) if quick else usual


class Experiment(ExperimentOutline, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reading: str
    """How the paper is read, where it can be read in several ways."""
    figures: tuple[Figure, ...] = ()
    matrices: tuple[AttackMatrix, ...] = ()
    published: tuple[PublishedNumber, ...] = ()
    earlier: tuple[EarlierNumber, ...] = ()
    checks: tuple[OwnCheck, ...] = ()
    overview: tuple[OverviewEntry, ...] = ()
    costs: tuple[OverviewCost, ...] = ()

    @property
    def stated(self) -> tuple[StatedNumber, ...]:
        """All numbers that results are held against."""
        return (*self.published, *self.earlier, *self.checks)

    def __post_init__(self) -> None:
        if min(self.seeds, self.quick.seeds, self.machines.seeds) < 1:
            raise ConfigError("seeds must be at least 1")
        if not self.series or len({series.name for series in self.series}) < len(self.series):
            raise ConfigError("series must have names of their own")
        for axis, values in self.axes.items():
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"axes.{axis} must have values, each once")
        cells = list(self.make_cells())
        for _ in self.make_cells(engine="machines"):
            pass
        for pattern in self.machines.cells:
            if not any(fnmatchcase(cell.name, pattern) for cell in cells):
                raise ConfigError(f"machines.cells: no cell is called {pattern!r}")
        steps = {step for cell in cells for step in cell.params.observed_steps()}
        if found := [
            *self._of_attackers(cells),
            *self._of_figures(),
            *self._of_numbers(),
            *self._of_matrices(steps),
            *self._of_overview(cells),
        ]:
            raise ConfigError("; ".join(found))

    def check_requirements(self, name: str, engine: str, data: Path | None) -> None:
        """Raise `ConfigError` if the engine cannot run this experiment, or if a data folder is needed and missing."""
        if engine not in self.engines:
            raise ConfigError(f"{name} runs on {' and '.join(self.engines)} only, not on {engine}")
        sources = self.data_sources(engine)
        if data is None and sources:
            from veilcast.lab.data import files_of, missing_folder_error  # Imported here, as only an error needs it.

            raise missing_folder_error(name, files_of(sources))

    def data_sources(self, engine: str, *, quick: bool = False) -> set[str]:
        """Names, as in `lab.data`, of the data that the runs read."""
        cells = self.make_cells(quick=quick, engine=engine)
        return {source for cell in cells for source in cell.params.data_sources(engine)}

    def user_files(self, engine: str, *, quick: bool = False) -> list[UserFile]:
        """The user's own files that the runs read, each once."""
        cells = self.make_cells(quick=quick, engine=engine)
        attackers = (UserFile("attacker", file_path(each)) for each in self.attacker_files())
        return list(dict.fromkeys((*attackers, *(file for cell in cells for file in cell.params.user_files()))))

    def attacker_files(self) -> tuple[str, ...]:
        return tuple(resolve_files({each: each}, self.folder)[each] for each in self.attackers)

    def _of_attackers(self, cells: list[ExperimentCell]) -> Iterator[str]:
        """Attackers that nobody has. What files have is known once they are loaded (`user_inputs`)."""
        for each in self.attackers:
            if not file_path(each):
                yield f'attackers: {each!r} is not "file:PATH" of a Python file'
        if self.attackers:
            return
        for name in dict.fromkeys(name for cell in cells for name in cell.params.named_attackers()):
            known = {one for cell in cells for one in cell.params.KNOWN_ATTACKERS}
            if known and name not in known and name not in entry_point_names():
                yield unknown_name("attacker", name, known)

    def _of_figures(self) -> Iterator[str]:
        """Names in figures that the experiment does not have."""
        series = {each.name for each in self.series}
        taken: set[str] = set()
        for figure in self.figures:
            if figure.x != "step" and figure.x not in self.axes:
                yield f"figures.{figure.name}: x: {unknown_name('axis', figure.x, [*self.axes, 'step'])}"
            if figure.name in taken:
                yield f"figures: {figure.name!r} is there twice"
            taken.add(figure.name)
            for curve in figure.curves:
                place = f"figures.{figure.name}, {curve.label}"
                if curve.series not in series:
                    yield f"{place}: {unknown_name('series', curve.series, series)}"
                for name, value in curve.at.items():
                    if name == figure.x or (name != "step" and value not in self.axes.get(name, ())):
                        yield f"{place}: `at` {name} = {value} is in no cell"
                free = set(self.axes) - {figure.x} - set(curve.at)
                if free and figure.x in {*self.axes, "step"}:
                    yield f"{place}: `at` must fix {', '.join(sorted(free))}"

    def _of_numbers(self) -> Iterator[str]:
        """Stated numbers that are about nothing of this experiment, or that contradict themselves."""
        figures = {figure.name: figure for figure in self.figures}
        for number in self.stated:
            place = f"{number.kind} {number.what!r}"
            yield from (f"{place}: {found}" for found in find_number_problems(number))
            if number.figure not in figures:
                yield f"{place}: {unknown_name('figure', number.figure, figures)}"
                continue
            figure = figures[number.figure]
            for x in (number.x, number.since):
                if x is not None and figure.x in self.axes and x not in self.axes[figure.x]:
                    yield f"{place}: {x} is not among axes.{figure.x}"
            labels = [curve.label for curve in figure.curves]
            for label in filter(None, (number.curve, number.beside)):
                if label not in labels:
                    yield f"{place}: in figure {figure.name!r} {unknown_name('curve', label, labels)}"

    def _of_overview(self, cells: list[ExperimentCell]) -> Iterator[str]:
        """Entries of the overview about no cell, or about several."""
        entries: tuple[OverviewEntry | OverviewCost, ...] = (*self.overview, *self.costs)
        for entry in entries:
            at = {name: value for name, value in entry.at.items() if name != "step"}
            chosen = [
                cell
                for cell in cells
                if cell.series == entry.series and all(cell.at.get(name) == value for name, value in at.items())
            ]
            if len(chosen) != 1:
                yield f"overview of {entry.mode}, {entry.profile}: {len(chosen)} cells are so, not one"

    def _of_matrices(self, steps: set[float]) -> Iterator[str]:
        taken = {figure.name for figure in self.figures}
        for matrix in self.matrices:
            if matrix.name in taken:
                yield f"matrices: {matrix.name!r} is there twice"
            taken.add(matrix.name)
            yield from matrix.find_problems(self.axes, steps)


@cache
def packaged_names() -> tuple[str, ...]:
    """The experiments that come with the package."""
    files = (Path(entry.name) for entry in _package_directory().iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".toml"))


def load_experiment(name_or_path: str | Path, attackers: Sequence[Path] = ()) -> tuple[str, Experiment]:
    """Load an experiment by its name or from a file, with these files of attackers beside its own. Returns its name,
    too."""
    name = str(name_or_path)
    if name in packaged_names():
        text = (_package_directory() / f"{name}.toml").read_bytes()
        return name, _convert(text, name, Experiment, attackers=attackers)
    path = Path(name)
    if path.suffix != ".toml":
        raise ConfigError(f"no experiment {name}; `veilcast lab list` shows those there are")
    try:
        return path.stem, _convert(path.read_bytes(), name, Experiment, path.parent, attackers)
    except OSError as error:
        raise ConfigError(f"no experiment {name}: {error.strerror}") from error


def read_experiment(name_or_path: str) -> str:
    """The text of an experiment's file."""
    packaged = name_or_path in packaged_names()
    return (_package_directory() / f"{name_or_path}.toml" if packaged else Path(name_or_path)).read_text()


def load_outline(name_or_path: str) -> tuple[str, ExperimentOutline]:
    """Load an outline. Figures, matrices and stated numbers, most of the text of a packaged file, are not parsed."""
    if name_or_path not in packaged_names():
        return load_experiment(name_or_path)
    text = (_package_directory() / f"{name_or_path}.toml").read_text()
    tables = re.split(r"^(?=\[)", text, flags=re.MULTILINE)
    kept = "".join(table for table in tables if not table.lstrip("[").startswith(_DRAWN))
    return name_or_path, _convert(kept.encode(), name_or_path, ExperimentOutline)


def parse_experiment(toml: bytes, name: str) -> Experiment:
    return _convert(toml, name, Experiment)


def _convert(toml: bytes, name: str, kind: type[_O], parent: Path | None = None, attackers: Sequence[Path] = ()) -> _O:
    table = add_kinds(read_toml(toml, f"experiment {name}"))
    if parent is not None and isinstance(folder := table.get("folder", ""), str):
        table["folder"] = str(Path(parent, folder).absolute())
    if attackers and isinstance(listed := table.get("attackers", []), list):
        table["attackers"] = [*listed, *(f"{FILE}{path.absolute()}" for path in attackers)]
    try:
        return msgspec.convert(table, kind)
    except (msgspec.ValidationError, ConfigError) as error:
        told = "; ".join(find_problems(table, kind)) or str(error)
        raise ConfigError(f"experiment {name}: {told}") from error


def _package_directory() -> Traversable:
    return resources.files("veilcast") / "experiments"


_DRAWN: Final = ("figures", "matrices", "published", "earlier", "checks", "overview", "costs")
