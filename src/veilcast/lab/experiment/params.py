"""The base of the parameters of a run, and the measures that a run returns.

A run is a function of its parameters and its seed. It depends on nothing else: neither on the Spark partition that it
falls into, nor on the runs before it. Each kind of run has its own struct of parameters, in `mesh_params`,
`relay_params`, `tree_params`, `foil_params` and `broker_params`; `kinds` lists them all. The field `kind` of their JSON
names the struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.nearest import did_you_mean

if TYPE_CHECKING:
    from veilcast.lab.experiment.recorder import TableRecorder


class UserFile(NamedTuple):
    """A file of the user's own that a run reads (`lab.user_files`, `lab.trace_file`)."""

    format: Literal["edges", "subscriptions", "latencies", "series", "trace", "attacker"]
    path: str
    of: str = ""
    """Edges: which `component`. Subscriptions: the file of edges that has the subscribers. Series: the column."""


class RunParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Parameters of a run. Each of them can be an axis of an experiment, or differ between its series."""

    STEP_UNIT: ClassVar[str] = ""
    """The unit of the steps of a run; empty if its parameters name no steps."""
    KNOWN_ATTACKERS: ClassVar[tuple[str, ...]] = ()
    """The attackers of the package that `named_attackers` can name; empty if the runs alone know them."""

    @classmethod
    def kind(cls) -> str:
        return str(cls.__struct_config__.tag)

    def step_unit(self) -> str:
        return self.STEP_UNIT

    def observed_steps(self) -> tuple[float, ...]:
        """The moments that the parameters name; empty if the run measures at its end, or at steps of its own."""
        return ()

    def data_sources(self, engine: str) -> list[str]:
        """Names, as in `lab.data`, of the data that a run by this engine reads."""
        return []

    def user_files(self) -> list[UserFile]:
        """The user's own files that a run reads."""
        return []

    def named_attackers(self) -> tuple[str, ...]:
        """Names of attackers that the parameters choose, of the package or from outside."""
        return ()

    def check_choice(self, name: str, known: Sequence[str], *, file: str) -> None:
        """Raise `ConfigError` unless the parameter is one of these names, or names a file; `file` says of what."""
        value = getattr(self, name)
        if value not in known and not file_path(value):
            names, near = ", ".join(filter(None, known)), did_you_mean(value, known)
            raise ConfigError(f'{name}: there is no {value!r}; there are {names}, and "{FILE}PATH" for {file}{near}')

    def check_shares(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be a share between 0 and 1, not {getattr(self, name)}")

    def check_not_negative(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative")

    def check_at_least(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}")


@cache
def entry_point_names() -> tuple[str, ...]:
    """Names of attackers that installed distributions offer."""
    from importlib import metadata  # Imported here, as only an unknown name needs it.

    return tuple(sorted({point.name for point in metadata.entry_points(group="veilcast.attackers")}))


def file_path(choice: str) -> str:
    """The path in a choice "file:PATH"; empty if the choice is a name."""
    return choice.removeprefix(FILE) if choice.startswith(FILE) else ""


def resolve_files(given: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """These parameters with every "file:PATH" relative to a folder."""
    return {
        name: f"{FILE}{Path(folder, path)}" if isinstance(value, str) and (path := file_path(value)) else value
        for name, value in given.items()
    }


def check_steps(steps: tuple[float, ...], *, required: bool) -> None:
    if required and not steps:
        raise ConfigError("steps must name at least one moment at which the run is measured")
    if list(steps) != sorted(set(steps)) or any(step < 0 for step in steps):
        raise ConfigError("steps must rise, and not be negative")


class Measure(msgspec.Struct, frozen=True, gc=False):
    """One number that a run returns: what an attack reached, or (with no attack) what the network did."""

    attack: str
    metric: str
    step: float
    """When it was measured, in the unit of the run's steps; 0 at the end."""
    value: float


RunFunction: TypeAlias = Callable[[RunParams, int, Path | None], list[Measure]]
"""Makes a run from its parameters, its seed, and the data folder."""
RecordedRunFunction: TypeAlias = "Callable[[RunParams, int, Path | None, TableRecorder], list[Measure]]"
"""The same; it also hands observation tables to the recorder."""
FILE: Final = "file:"
"""The beginning of a choice that names a file of the user's own."""
