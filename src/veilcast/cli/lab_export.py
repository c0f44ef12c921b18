"""`veilcast lab export mlflow DIR`: hands stored results to MLflow, where a team keeps its runs."""

from __future__ import annotations

import argparse

from veilcast.cli.context import Context, Report
from veilcast.cli.lab import lab_extra


def export(arguments: argparse.Namespace, _: Context) -> Report:
    with lab_extra():
        from veilcast.lab.report.mlflow_export import export_results
        from veilcast.lab.spark.locations import open_location
    found = export_results(open_location(arguments.dir), arguments.uri, arguments.names)
    lines = [
        f"{each.experiment}: run {each.run} and its {each.cells:,} cells "
        f"{'exported' if each.is_new else 'were exported before'}"
        for each in found
    ]
    return Report({"exported": [each._asdict() for each in found]}, lines)
