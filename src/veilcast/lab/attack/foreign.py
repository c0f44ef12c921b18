"""Attackers from outside the package: of a Python file, or of an entry point of the group `veilcast.attackers`.

A file has a module-level `ATTACKER` or `ATTACKERS`: an `Attacker` of `lab.attack.registry`, or several. An entry point
names the same. Attackers are loaded by `install_attackers`, in this process and in each executor, which gets the text
of the file; an executor must have the distribution of an entry point. A foreign attacker runs only where an experiment
names it.

What holds for a foreign attacker:

- It is handed observations and nothing else: a copy, so it cannot change what others see.
- A file that imports a room that knows the truth, or how networks are built, is refused: the same rooms that the
  attackers of the package cannot import. This stops a mistake and not an intent: Python code can reach all of its
  process. Read a file before you run it, and compare its controls (`experiment.attacker_controls`).
- Its scores must be finite, one for each node or candidate. A fault ends the sweep with one line that names it.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from veilcast.errors import ConfigError, LocalError, StorageError
from veilcast.lab.attack import registry
from veilcast.lab.attack.insider.observations import CoalitionObservations
from veilcast.lab.attack.insider.tree_nodes import TreeObservations
from veilcast.lab.attack.observer.observations import CaptureObservations, EpochObservations, WireObservations
from veilcast.lab.attack.registry import PUBLISHER, SUBSCRIBER, Attacker
from veilcast.lab.attack.server.attackers import PSEUDONYM
from veilcast.lab.attack.server.observations import ServerObservations
from veilcast.lab.attack.stream.model import StreamObservations


class AttackerSource(NamedTuple):
    """Where attackers come from, in a form that can be sent to an executor."""

    place: str
    """Path of the file, or name of the entry point."""
    code: str = ""
    """Text of the file; empty for an entry point."""


def read_attacker_file(path: Path) -> AttackerSource:
    """Raises `StorageError` for an unreadable file."""
    try:
        code = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise StorageError(f"cannot read {path}: {why}; it is a Python file with ATTACKER or ATTACKERS") from error
    if not code.strip():
        raise ConfigError(f"{path} is empty; it is a Python file with ATTACKER or ATTACKERS")
    return AttackerSource(str(path), code)


def load_attackers(source: AttackerSource) -> tuple[Attacker[Any], ...]:
    """The attackers of a file or an entry point, guarded. Raises `ConfigError`, in one line, for what is none."""
    return _load(source)


def install_attackers(sources: Iterable[AttackerSource]) -> None:
    """Make these attackers, and no others from outside, known by their names in this process."""
    found: dict[str, Attacker[Any]] = {}
    known = {each.name for each in registry.ATTACKERS}
    for source in dict.fromkeys(sources):
        for attacker in load_attackers(source):
            if attacker.name in known:
                raise ConfigError(
                    f"{source.place}: {attacker.name!r} is an attacker of the package; choose another name"
                )
            if attacker.name in found:
                raise ConfigError(f"{source.place}: there is another attacker {attacker.name!r}; choose another name")
            found[attacker.name] = attacker
    registry.FOREIGN.clear()
    registry.FOREIGN.update(found)


def guard_attacker(attacker: object, place: str) -> Attacker[Any]:
    """An attacker that a program made, guarded as those of files are. Raises `ConfigError` for what is none."""
    _check(place, attacker)
    assert isinstance(attacker, Attacker)
    if any(each.name == attacker.name for each in registry.ATTACKERS):
        raise ConfigError(f"{place}: {attacker.name!r} is an attacker of the package; choose another name")
    return replace(attacker, score=_GuardedScore(attacker, place))


@contextmanager
def known_attackers(attackers: Iterable[Attacker[Any]]) -> Iterator[None]:
    """Make these guarded attackers known by their names in this process, beside those that are."""
    before = dict(registry.FOREIGN)
    registry.FOREIGN.update({each.name: each for each in attackers})
    try:
        yield
    finally:
        registry.FOREIGN.clear()
        registry.FOREIGN.update(before)


@lru_cache(maxsize=64)
def _load(source: AttackerSource) -> tuple[Attacker[Any], ...]:
    found = _find_attackers(source) if source.code else _load_entry_point(source.place)
    several = tuple(found) if isinstance(found, (tuple, list)) else (found,)
    if not several:
        raise ConfigError(f"{source.place}: ATTACKERS is empty")
    for each in several:
        _check(source.place, each)
    return tuple(replace(each, score=_GuardedScore(each, source.place, source)) for each in several)


def _restore_score(source: AttackerSource, name: str) -> Any:
    """The guarded score of an attacker, in a process that has its source alone."""
    return next(each.score for each in _load(source) if each.name == name)


def run_attacker_file(source: AttackerSource) -> ModuleType:
    """The module of a file with an attacker. Raises `ConfigError`, in one line, for a file that fails, or imports a
    forbidden room."""
    _check_imports(source)
    module = ModuleType(f"veilcast_attacker_{hashlib.sha256(source.code.encode()).hexdigest()[:16]}")
    module.__file__ = source.place
    sys.modules[module.__name__] = module
    try:
        exec(compile(source.code, source.place, "exec"), module.__dict__)  # noqa: S102
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise ConfigError(f"{source.place}{_line_of(error, source.place)}: {describe_error(error)}") from error
    return module


def _find_attackers(source: AttackerSource) -> object:
    module = run_attacker_file(source)
    for name in ("ATTACKER", "ATTACKERS"):
        if hasattr(module, name):
            return getattr(module, name)
    raise ConfigError(f"{source.place} has neither ATTACKER nor ATTACKERS (veilcast.lab.attack.registry.Attacker)")


def _load_entry_point(name: str) -> object:
    try:
        [point] = metadata.entry_points(group=GROUP, name=name)
        return point.load()
    except ValueError as error:
        raise ConfigError(f"there is no entry point {name!r} of the group {GROUP}, or there are several") from error
    except Exception as error:
        raise ConfigError(f"the entry point {name!r} of the group {GROUP} fails: {describe_error(error)}") from error


def _check_imports(source: AttackerSource) -> None:
    try:
        tree = ast.parse(source.code, source.place)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{source.place}{_line_of(error, source.place)}: {describe_error(error)}") from error
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            if room := next((room for room in FORBIDDEN if f"{name}.".startswith(f"{room}.")), None):
                raise ConfigError(
                    f"{source.place}, line {getattr(node, 'lineno', 0)}: an attacker cannot import {room}: it has what "
                    "it saw, and nothing of how the network is built or what is true"
                )


def _check(place: str, found: object) -> None:
    if not isinstance(found, Attacker):
        raise ConfigError(f"{place}: {found!r:.80} is no Attacker of veilcast.lab.attack.registry")
    if not isinstance(found.name, str) or not _NAME.fullmatch(found.name):
        raise ConfigError(f"{place}: {found.name!r:.80} is no name: 1 to 40 small letters, digits and hyphens")
    if found.observes not in OBSERVED:
        names = ", ".join(each.__name__ for each in OBSERVED)
        raise ConfigError(f"{place}: attacker {found.name} observes none of {names}")
    roles = find_roles(found.observes)
    if found.role not in roles:
        raise ConfigError(f"{place}: attacker {found.name} looks for {found.role!r}, not for {' or '.join(roles)}")
    if found.observes in (TreeObservations, ServerObservations):
        parts = [field.name for field in fields(found.observes)]
        for need in found.needs:
            if need not in parts:
                raise ConfigError(f"{place}: attacker {found.name} needs {need!r}, and not one of {', '.join(parts)}")
    if not callable(found.score):
        raise ConfigError(f"{place}: the score of attacker {found.name} is no function")


@dataclass(frozen=True)
class _GuardedScore:
    """The score of a foreign attacker: it gets a copy, and what it returns is checked. An executor that a score is sent
    to loads the attacker's source."""

    attacker: Attacker[Any]
    place: str
    source: AttackerSource | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is not None:
            return _restore_score, (self.source, self.attacker.name)
        return _GuardedScore, (self.attacker, self.place)

    def __call__(self, observed: Any) -> Any:
        try:
            scores = np.asarray(self.attacker.score(copy.deepcopy(observed)), np.float64)
        except Exception as error:
            self._fail(describe_error(error, self.place), error)
        if isinstance(observed, StreamObservations):
            wanted = observed.candidates.shape
            if scores.shape != wanted:
                self._fail(f"its probabilities have shape {scores.shape}, and candidates {wanted}")
            if not np.isfinite(scores).all() or (scores < 0).any() or not np.allclose(scores.sum(axis=-1), 1):
                self._fail("its probabilities of the candidates of a step are not shares of 1")
        elif isinstance(observed, ServerObservations):
            if scores.ndim != 2:
                self._fail(f"its scores have shape {scores.shape}, and not rows x columns")
        elif scores.ndim not in (1, 2) or scores.shape[-1] != observed.nodes or not scores.size:
            self._fail(f"its scores have shape {scores.shape}, and there are {observed.nodes} nodes")
        if not np.isfinite(scores).all():
            self._fail(f"{np.count_nonzero(~np.isfinite(scores))} of its scores are no finite numbers")
        return scores

    def _fail(self, why: str, error: Exception | None = None) -> NoReturn:
        raise LocalError(f"attacker {self.attacker.name} ({self.place}): {why}") from error


def find_roles(observes: type[Any]) -> tuple[str, ...]:
    """The roles that a foreign attacker on these observations can look for."""
    return _ROLES.get(observes, (SUBSCRIBER, PUBLISHER))


def serves(attacker: Attacker[Any], kind: str) -> bool:
    """Whether runs of this kind have what the attacker observes."""
    return any(issubclass(observed, attacker.observes) for observed in SERVES.get(kind, ()))


def describe_error(error: BaseException, place: str = "") -> str:
    """One line: the error, and the last line of the file `place` that it passed through."""
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{told}{_line_of(error, place)}" if place else told


def _line_of(error: BaseException, place: str) -> str:
    """The last line of that file that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == place and error.lineno:
        return f", line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == place]
    return f", line {lines[-1]}" if lines else ""


GROUP: Final = "veilcast.attackers"
OBSERVED: Final[tuple[type[Any], ...]] = (
    WireObservations,
    EpochObservations,
    CaptureObservations,
    CoalitionObservations,
    TreeObservations,
    ServerObservations,
    StreamObservations,
)
"""What a foreign attacker can observe: the observations that runs of experiments have."""
SERVES: Final[dict[str, tuple[type[Any], ...]]] = {
    "mesh.epochs": (EpochObservations, CoalitionObservations),
    "mesh.wires": (CaptureObservations,),
    "tree.attacks": (TreeObservations,),
    "tree.definitions": (TreeObservations,),
    "relay.attacks": (ServerObservations,),
    **dict.fromkeys(("foil.guesses", "foil.categories", "foil.game", "foil.overhead"), (StreamObservations,)),
}
"""Kind of run -> the observations that its attackers have."""
_ROLES: Final[dict[type[Any], tuple[str, ...]]] = {
    StreamObservations: ("truth",),
    TreeObservations: (SUBSCRIBER,),
    ServerObservations: (SUBSCRIBER, PUBLISHER, PSEUDONYM),
}
"""The roles that an attacker can look for, where they are not those of a mesh."""
FORBIDDEN: Final = (
    "veilcast.authority",
    "veilcast.brokers",
    "veilcast.foil",
    "veilcast.invitation",
    "veilcast.lab.challenge",
    "veilcast.lab.measure",
    "veilcast.lab.experiment",
    "veilcast.lab.runs",
    "veilcast.link",
    "veilcast.mesh",
    "veilcast.net",
    "veilcast.node",
    "veilcast.relay",
    "veilcast.sim",
    "veilcast.tree",
)
"""Rooms that no attacker imports; the wall of the package's own attackers."""
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
