"""The lab: experiments, attackers and audits, on Spark. Needs the extra `veilcast[lab]`; nothing below imports it.

Its public names are imported at their first use: `from veilcast import lab; lab.run(None, "mesh-fig07", "results")`.
`attack` and `measure` are rooms of the lab, too. So these two modules can be called: a call is that of the function of
the same name in `lab.api`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from veilcast.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from veilcast.lab.api import (
        attack,
        captures,
        chart,
        controls,
        measure,
        register_sources,
        results,
        run,
        stored_runs,
        summarise,
    )
    from veilcast.lab.attack.registry import Attacker
    from veilcast.lab.experiment.definition import Experiment, load_experiment
else:
    from veilcast.lab import attack, measure

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "veilcast.lab.api": (
                "captures",
                "chart",
                "controls",
                "register_sources",
                "results",
                "run",
                "stored_runs",
                "summarise",
            ),
            "veilcast.lab.attack.registry": ("Attacker",),
            "veilcast.lab.experiment.definition": ("Experiment", "load_experiment"),
        },
    )

    class CallableRoom(ModuleType):
        def __call__(self, *given: object, **named: object) -> object:
            return getattr(import_module("veilcast.lab.api"), self.__name__.rpartition(".")[2])(*given, **named)

    for room in (attack, measure):
        room.__class__ = CallableRoom

__all__ = [
    "Attacker",
    "Experiment",
    "attack",
    "captures",
    "chart",
    "controls",
    "load_experiment",
    "measure",
    "register_sources",
    "results",
    "run",
    "stored_runs",
    "summarise",
]
