"""The manifest of a result: how it was made, with which code, parameters, seeds, versions and command, and in what
time.

The manifest is a file, `manifests/NAME.json`, and beside it a directory with a small file for each stored portion. A
portion's file is written once and never again, so the cost of a sweep grows with its portions and not with their
square. `SweepManifest` is both together. Results of earlier versions have their portions in the first file.

A result counts only as far as its manifest lists it. Two results can be combined only if the same code, on the same
libraries, made them from the same parameters and data by the same engine.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import data, trace_file
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.kept_tables import KeptFile
from veilcast.lab.experiment.kinds import add_kinds
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.spark.code_archive import code_fingerprint, package_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Spark master, its cores, and the versions of libraries. The master is empty for runs in the sweep's own
    process."""

    master: str
    cores: int
    versions: dict[str, str]


class StoredPortion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A portion that is stored completely."""

    portion: SeedPortion
    rows: int
    """Rows of measures."""
    sha256: dict[str, str]
    """Digests of the portion's files, by table."""
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

    def portions(self) -> list[SeedPortion]:
        return [stored.portion for stored in self.stored]

    def load_definition(self) -> Experiment:
        return msgspec.convert(add_kinds(self.definition), Experiment)

    def with_session(self, spark: SparkSession | None) -> SweepManifest:
        """The same manifest with the environment of this session, or of this process."""
        if spark is None:
            return msgspec.structs.replace(self, means=Environment("", 1, self.means.versions))
        context = spark.sparkContext
        java = context._jvm.java.lang.System.getProperty("java.version") if context._jvm is not None else ""
        versions = self.means.versions | {"java": str(java)}
        return msgspec.structs.replace(
            self, means=Environment(context.master or "", context.defaultParallelism, versions)
        )


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


def read_manifest(path: Path) -> SweepManifest:
    """Raises `StorageError` if a file cannot be read, and `TamperedError` if it is not of a manifest of ours."""
    try:
        manifest = _DECODER.decode(path.read_bytes(), path)
        manifest.load_definition()
        entries = sorted(portions_directory(path).glob("seeds-*.json"))
        added = [_PORTION_DECODER.decode(entry.read_bytes(), entry) for entry in entries]
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.ValidationError, ConfigError) as error:
        raise TamperedError(f"{path} is no manifest of ours: {error}") from error
    if manifest.experiment != path.stem:
        raise TamperedError(f"{path} is the manifest of {manifest.experiment}")
    return msgspec.structs.replace(
        manifest,
        stored=tuple(sorted([*manifest.stored, *added], key=lambda one: one.portion)),
        wall_s=manifest.wall_s + sum(one.wall_s for one in added),
    )


def encode_head(manifest: SweepManifest) -> bytes:
    """The manifest's own file: without its portions, and the time that they took."""
    spent = manifest.wall_s - sum(one.wall_s for one in manifest.stored)
    return msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(manifest, stored=(), wall_s=spent)))


def portions_directory(path: Path) -> Path:
    """Where the portions of the manifest at `path` are."""
    return path.with_suffix("")


def portion_entry(path: Path, portion: SeedPortion) -> Path:
    return portions_directory(path) / Path(portion.file).with_suffix(".json")


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


_DECODER: Final = JsonDecoder(SweepManifest, TamperedError, "is no manifest of ours")
_PORTION_DECODER: Final = JsonDecoder(StoredPortion, TamperedError, "is no portion of a manifest of ours")
_COMPUTING: Final = ("numpy", "numba", "scipy")
"""Libraries whose version can change a number."""

_LIBRARIES: Final = (*_COMPUTING, "pyarrow", "pyspark")
