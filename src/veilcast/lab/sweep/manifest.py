"""What says how a result was made: the code, the parameters, the seeds, the versions, the command, the time it took.

A result without a manifest is none, and of a result only that counts which its manifest lists. Two results may be put
together only if the same code, on the same libraries, made them from the same parameters by the same engine.
"""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec
from pyspark.sql import SparkSession

from veilcast.lab.spark.shipping import fingerprint, package_root
from veilcast.lab.sweep.experiment import Experiment
from veilcast.lab.sweep.plan import Portion


class Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A portion that is there, whole: the digest is of its file of measures."""

    portion: Portion
    rows: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    experiment: str
    definition: dict[str, Any]
    """The experiment's file, so that a result explains itself though the file may change."""
    engine: str
    quick: bool
    data: str | None
    fingerprint: str
    """Of the package's source."""
    commit: str
    """As git has it; empty where the package is not a checkout."""
    versions: dict[str, str]
    master: str
    cores: int
    command: str
    status: Literal["running", "complete"] = "running"
    seeds: int = 0
    """Those that the scores are of."""
    wall_s: float = 0.0
    stored: tuple[Stored, ...] = ()

    def portions(self) -> list[Portion]:
        return [stored.portion for stored in self.stored]


def describe(
    spark: SparkSession, name: str, experiment: Experiment, *, engine: str, quick: bool, data: str | None, command: str
) -> Manifest:
    """What is made from here on, with nothing stored yet."""
    context = spark.sparkContext
    java = context._jvm.java.lang.System.getProperty("java.version") if context._jvm is not None else ""
    return Manifest(
        experiment=name,
        definition=msgspec.to_builtins(experiment),
        engine=engine,
        quick=quick,
        data=data,
        fingerprint=fingerprint(),
        commit=_commit(),
        versions={
            "python": platform.python_version(),
            "java": str(java),
            **{library: version(library) for library in _LIBRARIES},
        },
        master=context.master or "",
        cores=context.defaultParallelism,
        command=command,
    )


def made_otherwise(before: Manifest, now: Manifest) -> str:
    """In what the two differ so that their numbers must not stand together; empty if in nothing."""
    if before.fingerprint != now.fingerprint:
        return f"by other code ({_code(before)}; this is {_code(now)})"
    for what in ("engine", "quick", "data"):
        if getattr(before, what) != getattr(now, what):
            return f"with {what} {getattr(before, what)}, not {getattr(now, what)}"
    for library in _COMPUTING:
        if before.versions.get(library) != now.versions.get(library):
            return f"with {library} {before.versions.get(library)}, not {now.versions.get(library)}"
    if _cells(before) != _cells(now):
        return "with other parameters"
    return ""


def _code(manifest: Manifest) -> str:
    return f"{manifest.commit[:9]} {manifest.fingerprint}".strip()


def _cells(manifest: Manifest) -> list[bytes]:
    experiment = msgspec.convert(manifest.definition, Experiment)
    return [msgspec.json.encode(cell) for cell in experiment.cells(quick=manifest.quick, engine=manifest.engine)]


def _commit() -> str:
    """Of the checkout that the package lies in, and of no other that happens to be around it."""
    root = package_root()
    git = ["git", "-C", str(root), "rev-parse", "--show-prefix", "HEAD"]
    try:
        said = subprocess.run(git, capture_output=True, text=True, check=True, timeout=10).stdout.split()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return ""
    return said[1] if len(said) == 2 and said[0] == "src/veilcast/" else ""


_COMPUTING: Final = ("numpy", "numba", "scipy")
"""Libraries another version of which may give another number."""

_LIBRARIES: Final = (*_COMPUTING, "pyarrow", "pyspark")
