"""What says how a result was made: the code, the parameters, the seeds, the versions, the command, the time it took.

A result without a manifest is none, and of a result only that counts which its manifest lists. Two results may be put
together only if the same code, on the same libraries, made them from the same parameters and data by the same engine.
"""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from pyspark.sql import SparkSession

from veilcast.decoding import JsonDecoder
from veilcast.errors import ConfigError, StorageError, TamperedError
from veilcast.lab import data, trace_file
from veilcast.lab.experiment.definition import Experiment
from veilcast.lab.experiment.kinds import add_kinds
from veilcast.lab.experiment.plan import SeedPortion
from veilcast.lab.spark.code_archive import code_fingerprint, package_root


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What something was made on, and with which libraries."""

    master: str
    cores: int
    versions: dict[str, str]


class StoredPortion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A portion that is there, whole."""

    portion: SeedPortion
    rows: int
    """Of measures."""
    sha256: dict[str, str]
    """Of its files, by their tables."""
    means: Environment
    wall_s: float


class SweepManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    experiment: str
    definition: dict[str, Any]
    """The experiment's file, so that a result explains itself though the file may change."""
    engine: str
    quick: bool
    data: str | None
    """The folder of real data, where runs read one."""
    data_sha256: dict[str, str]
    """Of the files in it that they read, by their names, and of a trace of the user's own."""
    fingerprint: str
    """Of the package's source."""
    commit: str
    """As git has it; empty where the package is not a checkout."""
    changed: bool
    """Whether the checkout had changes that are in no commit."""
    means: Environment
    """Of the last time; each portion has its own."""
    command: str
    status: Literal["running", "complete"] = "running"
    seeds: int = 0
    """Those that the scores are of."""
    wall_s: float = 0.0
    stored: tuple[StoredPortion, ...] = ()

    def portions(self) -> list[SeedPortion]:
        return [stored.portion for stored in self.stored]

    def load_definition(self) -> Experiment:
        return msgspec.convert(add_kinds(self.definition), Experiment)

    def with_session(self, spark: SparkSession) -> SweepManifest:
        """The same, made on this session."""
        context = spark.sparkContext
        java = context._jvm.java.lang.System.getProperty("java.version") if context._jvm is not None else ""
        versions = self.means.versions | {"java": str(java)}
        return msgspec.structs.replace(
            self, means=Environment(context.master or "", context.defaultParallelism, versions)
        )


def describe_sweep(
    name: str, experiment: Experiment, *, engine: str, quick: bool, folder: Path | None, command: str
) -> SweepManifest:
    """What is made from here on, with nothing stored yet."""
    # What does not read the folder is the same whatever it is.
    read = data.file_digests(experiment.data_sources(engine, quick=quick), folder)
    own = {cell.params.trace_file() for cell in experiment.make_cells(quick=quick, engine=engine)} - {""}
    commit, changed = _checkout()
    return SweepManifest(
        experiment=name,
        definition=msgspec.to_builtins(experiment),
        engine=engine,
        quick=quick,
        data=str(folder.resolve()) if folder is not None and read else None,
        data_sha256=read | {path: trace_file.digest_trace(Path(path)) for path in own},
        fingerprint=code_fingerprint(),
        commit=commit,
        changed=changed,
        means=Environment("", 0, {"python": platform.python_version(), **{one: version(one) for one in _LIBRARIES}}),
        command=command,
    )


def read_manifest(path: Path) -> SweepManifest:
    """Raises `StorageError` for what cannot be read, and `TamperedError` for what is no manifest of ours."""
    try:
        manifest = _DECODER.decode(path.read_bytes(), path)
        manifest.load_definition()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.ValidationError, ConfigError) as error:
        raise TamperedError(f"{path} is no manifest of ours: {error}") from error
    if manifest.experiment != path.stem:
        raise TamperedError(f"{path} is the manifest of {manifest.experiment}")
    return manifest


def find_difference(before: SweepManifest, now: SweepManifest) -> str:
    """In what the two differ so that their numbers must not stand together; empty if in nothing."""
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
    return ""


def _code(manifest: SweepManifest) -> str:
    return f"{manifest.commit[:9]} {manifest.fingerprint}".strip()


def _cells(manifest: SweepManifest) -> list[bytes]:
    cells = manifest.load_definition().make_cells(quick=manifest.quick, engine=manifest.engine)
    return [msgspec.json.encode(cell) for cell in cells]


def _checkout() -> tuple[str, bool]:
    """The commit of the checkout that the package lies in, and of no other that happens to be around it; and whether
    the package was changed since."""
    said = _git("rev-parse", "--show-prefix", "HEAD").split()
    if len(said) != 2 or said[0] != "src/veilcast/":
        return "", False
    return said[1], bool(_git("status", "--porcelain", "--", "."))


def _git(*words: str) -> str:
    """What it says, which is nothing where there is none."""
    command = ["git", "-C", str(package_root()), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""


_DECODER: Final = JsonDecoder(SweepManifest, TamperedError, "is no manifest of ours")
_COMPUTING: Final = ("numpy", "numba", "scipy")
"""Libraries another version of which may give another number."""

_LIBRARIES: Final = (*_COMPUTING, "pyarrow", "pyspark")
