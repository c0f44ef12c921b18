"""The lab: experiments, attackers and audits, on Spark. Needs the extra `veilcast[lab]`; nothing below imports it.

Its public names are imported at their first use: `from veilcast import lab; lab.run(None, "mesh-fig07", "results")`.
"""

from __future__ import annotations

from veilcast.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from veilcast.lab.api import captures, run
    from veilcast.lab.experiment.definition import Experiment, load_experiment
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "veilcast.lab.api": ("captures", "run"),
            "veilcast.lab.experiment.definition": ("Experiment", "load_experiment"),
        },
    )

__all__ = ["Experiment", "captures", "load_experiment", "run"]
