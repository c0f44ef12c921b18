"""The manifest of a result: how it was made, with which code, parameters, seeds, versions and command, and in what
time.

The manifest is a log, `manifests/NAME/000000.json` and so on (`write_once_log`). Its entries say that a sweep began,
that portions are stored, and that scores and verdicts are. `SweepManifest` is what all entries together say. Entries
are never changed, so the cost of a sweep grows with its portions and not with their square.

A result counts only as far as its manifest lists it. Two results can be combined only if the same code, on the same
libraries, made them from the same parameters and data by the same engine.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import data, trace_file
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.kept_tables import KeptFile
from veilcast.lab.experiment.kinds import add_kinds
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.spark.code_archive import code_fingerprint, package_root
from veilcast.lab.storage.location import Location
from veilcast.lab.storage.write_once_log import WriteOnceLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Spark master, its cores, and the versions of libraries. The master is empty for runs in the sweep's own
    process."""

    master: str
    cores: int
    versions: dict[str, str]


class StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a table that the sweep's own process has written."""

    path: str
    """Below the location of results."""
    sha256: str


class StoredPortion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A portion that is stored completely."""

    portion: SeedPortion
    rows: int
    """Rows of measures."""
    measures: StoredTable
    means: Environment
    wall_s: float
    kept: tuple[KeptFile, ...] = ()
    """Files of kept observation tables."""


class SweepManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    experiment: str
    definition: dict[str, Any]
    """The contents of the experiment's file. The file itself can change later."""
    engine: str
    quick: bool
    data: str | None
    """The data folder, if runs read one."""
    data_sha256: dict[str, str]
    """Digests of the data files that runs read, by name, and of the user's own files, by path."""
    fingerprint: str
    """Digest of the package's source."""
    commit: str
    """The git commit; empty if the package is not in a checkout."""
    changed: bool
    """Whether the checkout had uncommitted changes."""
    means: Environment
    """The environment of the last call; each portion has its own."""
    command: str
    status: Literal["running", "complete"] = "running"
    seeds: int = 0
    """Number of seeds that the scores are computed from."""
    wall_s: float = 0.0
    stored: tuple[StoredPortion, ...] = ()
    keep: tuple[str, ...] = ()
    """Names of the observation tables that are kept of every run."""
    scores: StoredTable | None = None
    verdicts: StoredTable | None = None

    def portions(self) -> list[SeedPortion]:
        return [stored.portion for stored in self.stored]

    def load_definition(self) -> Experiment:
        return msgspec.convert(add_kinds(self.definition), Experiment)

    def with_session(self, spark: SparkSession | None) -> SweepManifest:
        """The same manifest with the environment of this session, or of this process."""
        if spark is None:
            return msgspec.structs.replace(self, means=Environment("", 1, self.means.versions))
        from veilcast.lab.spark.platform import describe_platform

        platform = describe_platform(spark)
        versions = self.means.versions | {"java": platform.java}
        return msgspec.structs.replace(self, means=Environment(platform.master, platform.cores, versions))


def describe_sweep(
    name: str,
    experiment: Experiment,
    *,
    engine: str,
    quick: bool,
    folder: Path | None,
    command: str,
    keep: Collection[str] = (),
) -> SweepManifest:
    """The manifest of a new sweep, with nothing stored yet."""
    # A sweep that reads no data is the same with any data folder.
    read = data.file_digests(experiment.data_sources(engine, quick=quick), folder)
    own = {file.path for file in experiment.user_files(engine, quick=quick)}
    code = describe_code()
    return SweepManifest(
        experiment=name,
        definition=msgspec.to_builtins(experiment),
        engine=engine,
        quick=quick,
        data=str(folder.resolve()) if folder is not None and read else None,
        data_sha256=read | {path: trace_file.digest_trace(Path(path)) for path in own},
        fingerprint=code.fingerprint,
        commit=code.commit,
        changed=code.changed,
        means=Environment("", 0, {"python": platform.python_version(), **{one: version(one) for one in _LIBRARIES}}),
        command=command,
        keep=tuple(sorted(set(keep))),
    )


class CodeVersion(NamedTuple):
    fingerprint: str
    """Digest of the package's source."""
    commit: str
    """The git commit; empty if the package is not in a checkout."""
    changed: bool
    """Whether the checkout had uncommitted changes."""


def describe_code() -> CodeVersion:
    """The code that this process runs."""
    return CodeVersion(code_fingerprint(), *_checkout())


class SweepBegun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="begun", tag_field="entry"):
    """A sweep has claimed the log."""

    manifest: SweepManifest
    """Without what is stored."""
    fresh: bool
    """Whether all earlier entries are discarded."""
    void: tuple[int, ...] = ()
    """Numbers of earlier entries that were incomplete: they never count."""


class PortionsStored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stored", tag_field="entry"):
    portions: tuple[StoredPortion, ...]


class SweepFinished(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="finished", tag_field="entry"):
    seeds: int
    scores: StoredTable
    verdicts: StoredTable
    wall_s: float


LogEntry: TypeAlias = SweepBegun | PortionsStored | SweepFinished


class ReadManifest(NamedTuple):
    """What a log of a result says."""

    manifest: SweepManifest | None
    """None if no sweep has begun."""
    next: int
    """The number of the next entry."""
    incomplete: tuple[int, ...]
    """Entries that nobody has declared void, and that are incomplete."""
    listed: frozenset[str]
    """Every file that an entry lists, whether the entry counts or not; but no earlier scores and verdicts."""


def manifest_log(location: Location, name: str) -> WriteOnceLog:
    return WriteOnceLog(location, f"{MANIFESTS}/{name}")


def list_manifests(location: Location) -> list[str]:
    """The names of all experiments with a manifest, in order. Raises `StorageError` if an earlier version has written
    one."""
    found: dict[str, None] = {}
    for file in location.list_files(MANIFESTS):
        _, name, *entry = file.name.split("/")
        if not entry and name.endswith(".json"):
            raise StorageError(
                f"{location.path_of(file.name)} is a manifest of an earlier version, which this one does not read; "
                "report it with that version, or run the experiment again in another --out"
            )
        found[name] = None
    return list(found)


def read_manifest(location: Location, name: str) -> SweepManifest:
    """Raises `StorageError` if there is none, and `TamperedError` if it is not of a manifest of ours."""
    manifest = read_log(location, name).manifest
    if manifest is None:
        raise StorageError(f"{location.place} holds no results of {name}; `veilcast lab run {name}` makes some")
    return manifest


def read_log(location: Location, name: str) -> ReadManifest:
    log = manifest_log(location, name)
    while True:
        numbers = log.numbers()
        entries, void = _read_entries(log, numbers)
        incomplete = tuple(number for number, entry in entries.items() if entry is None and number not in void)
        # An entry that is completed meanwhile may declare others void.
        if not any(log.read(number) for number in incomplete):
            break
    _check_whole(log, entries, void)
    counted = {number: entry for number, entry in entries.items() if entry is not None and number not in void}
    manifest = _combine(list(counted.values()))
    if manifest is not None and manifest.experiment != name:
        raise TamperedError(f"{log.path} is the manifest of {manifest.experiment}")
    finished = [number for number, entry in counted.items() if isinstance(entry, SweepFinished)]
    since = max(finished, default=0)
    listed = [
        path
        for number, entry in entries.items()
        if entry is not None and (number >= since or isinstance(entry, PortionsStored))
        for path in _files(entry)
    ]
    return ReadManifest(manifest, max(numbers, default=-1) + 1, incomplete, frozenset(listed))


def _read_entries(log: WriteOnceLog, numbers: Sequence[int]) -> tuple[dict[int, LogEntry | None], set[int]]:
    """The entries in order, and the numbers of those that never count."""
    entries: dict[int, LogEntry | None] = {}
    void: set[int] = set()
    # Entries before the last fresh start do not count, and may be on their way out.
    for number in reversed(numbers):
        line = log.read(number)
        entries[number] = entry = None if line is None else _DECODER.decode(line, log.path_of(number))
        if isinstance(entry, SweepBegun) and number not in void:
            void.update(entry.void)
            if entry.fresh:
                break
    return dict(sorted(entries.items())), void


def encode_entry(entry: LogEntry) -> bytes:
    return msgspec.json.encode(entry)


def _check_whole(log: WriteOnceLog, entries: Mapping[int, LogEntry | None], void: Collection[int]) -> None:
    for before, number in pairwise(entries):
        if number != before + 1:
            raise TamperedError(f"{log.path_of(before + 1)} is gone, though later entries follow it")
        if entries[before] is None and before not in void and entries[number] is not None:
            raise TamperedError(f"{log.path_of(before)} is cut, though later entries follow it")
    first = next((entry for number, entry in entries.items() if entry is not None and number not in void), None)
    if first is not None and not (isinstance(first, SweepBegun) and first.fresh):
        raise TamperedError(f"{log.path} does not begin with the beginning of a sweep")


def _combine(entries: Sequence[LogEntry]) -> SweepManifest | None:
    """What entries say together, from the last fresh start on."""
    found: SweepManifest | None = None
    for entry in entries:
        if isinstance(entry, SweepBegun):
            _check_definition(entry.manifest)
            kept = {} if found is None or entry.fresh else {name: getattr(found, name) for name in _CONTINUED}
            found = msgspec.structs.replace(entry.manifest, **kept)
        elif found is not None and isinstance(entry, PortionsStored):
            stored = sorted([*found.stored, *entry.portions], key=lambda one: one.portion)
            spent = found.wall_s + sum(one.wall_s for one in entry.portions)
            found = msgspec.structs.replace(found, stored=tuple(stored), wall_s=spent)
        elif found is not None and isinstance(entry, SweepFinished):
            found = msgspec.structs.replace(
                found,
                status="complete",
                seeds=entry.seeds,
                scores=entry.scores,
                verdicts=entry.verdicts,
                wall_s=found.wall_s + entry.wall_s,
            )
    return found


def _check_definition(manifest: SweepManifest) -> None:
    try:
        manifest.load_definition()
    except (msgspec.ValidationError, ConfigError) as error:
        raise TamperedError(f"the manifest of {manifest.experiment} is no manifest of ours: {error}") from error


def _files(entry: LogEntry) -> list[str]:
    if isinstance(entry, PortionsStored):
        kept = [file.path for one in entry.portions for file in one.kept]
        return [*kept, *(one.measures.path for one in entry.portions)]
    return [entry.scores.path, entry.verdicts.path] if isinstance(entry, SweepFinished) else []


def find_difference(before: SweepManifest, now: SweepManifest) -> str:
    """Why the two results must not be combined; empty if they may be."""
    if before.fingerprint != now.fingerprint:
        return f"by other code ({_code(before)}; this is {_code(now)})"
    for what in ("engine", "quick"):
        if getattr(before, what) != getattr(now, what):
            return f"with {what} {getattr(before, what)}, not {getattr(now, what)}"
    for library in _COMPUTING:
        one, other = (manifest.means.versions.get(library) for manifest in (before, now))
        if one != other:
            return f"with {library} {one}, not {other}"
    for file in before.data_sha256 | now.data_sha256:
        if before.data_sha256.get(file) != now.data_sha256.get(file):
            return f"from another {file}"
    if _cells(before) != _cells(now):
        return "with other parameters"
    if missing := sorted(set(now.keep) - set(before.keep)):
        return f"without --keep {','.join(missing)}"
    return ""


def _code(manifest: SweepManifest) -> str:
    return f"{manifest.commit[:9]} {manifest.fingerprint}".strip()


def _cells(manifest: SweepManifest) -> list[bytes]:
    cells = manifest.load_definition().make_cells(quick=manifest.quick, engine=manifest.engine)
    return [msgspec.json.encode(cell) for cell in cells]


def _checkout() -> tuple[str, bool]:
    """The commit of the checkout that contains the package, and whether the package was changed since. A checkout that
    only surrounds an installed package does not count."""
    said = _git("rev-parse", "--show-prefix", "HEAD").split()
    if len(said) != 2 or said[0] != "src/veilcast/":
        return "", False
    return said[1], bool(_git("status", "--porcelain", "--", "."))


def _git(*words: str) -> str:
    """The output of a git command; empty if it fails or git is missing."""
    command = ["git", "-C", str(package_root()), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""


MANIFESTS: Final = "manifests"
"""The directory of all manifests."""
_DECODER: Final = JsonDecoder(SweepBegun | PortionsStored | SweepFinished, TamperedError, "is no manifest of ours")
_CONTINUED: Final = ("seeds", "wall_s", "stored", "keep", "scores", "verdicts")
"""What a sweep that continues takes over: all else may have changed, such as figures and published numbers."""
_COMPUTING: Final = ("numpy", "numba", "scipy")
"""Libraries whose version can change a number."""

_LIBRARIES: Final = (*_COMPUTING, "pyarrow", "pyspark")
