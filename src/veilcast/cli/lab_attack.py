"""`veilcast lab attack`: attacks stored runs again, in this process or on Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilcast.cli.context import Context, Report
from veilcast.cli.lab import lab_extra
from veilcast.errors import ConfigError


def attack(arguments: argparse.Namespace, context: Context) -> Report:
    with lab_extra():
        from veilcast.lab.experiment.manifest import read_manifest
        from veilcast.lab.experiment.store import manifest_path
        from veilcast.lab.runs.stored_attack import AttackedRuns, attack_stored, compare_guesses, write_guesses
        from veilcast.lab.spark import LOCAL, SparkLater, SparkOptions
    names = arguments.names or _kept_experiments(arguments.dir)
    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    say: Callable[[str], object] = (lambda _: None) if arguments.json else context.say
    found: list[dict[str, Any]] = []
    every: list[AttackedRuns] = []
    with SparkLater(arguments.master or LOCAL, options, say) as later:
        for name in names:
            on_spark = arguments.master is not None or options != SparkOptions()
            attacked = attack_stored(
                arguments.dir, name, arguments.attacker, start_spark=later.get, on_spark=on_spark, progress=say
            )
            kept = read_manifest(manifest_path(arguments.dir, name)).keep
            compared = compare_guesses(arguments.dir, name, attacked.guesses) if "guesses" in kept else None
            found.append({"experiment": name, "guesses": len(attacked.guesses)} | _compared(compared))
            if attacked.scores is not None:
                found[-1]["scores"] = attacked.scores.to_pylist()
            every.append(attacked)
            if not arguments.json:
                for line in _lines(found[-1]):
                    context.say(line)
    if arguments.out is not None:
        write_guesses(arguments.out, every)
    return Report({"experiments": found}, [f"guesses are in {arguments.out}"] if arguments.out else [])


def _kept_experiments(root: Path) -> list[str]:
    """The experiments of which observation tables were kept."""
    from veilcast.lab.experiment.manifest import read_manifest

    paths = sorted((root / "manifests").glob("*.json"))
    names = [path.stem for path in paths if read_manifest(path).keep]
    if not names:
        raise ConfigError(f"{root} holds no kept tables; `veilcast lab run NAME --keep all --out DIR` keeps them")
    return names


def _compared(found: tuple[int, int] | None) -> dict[str, int]:
    return {} if found is None else {"compared": found[0], "different": found[1]}


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['experiment']}: {found['guesses']:,} guesses"]
    if "compared" in found:
        same = found["compared"] - found["different"]
        lines.append(f"  {same:,} of {found['compared']:,} kept guesses are the same, {found['different']:,} differ")
    for row in found.get("scores", ()):
        if row["metric"] in _SHOWN:
            interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row["seeds"] > 1 else ""
            what = f"{row['cell']}, {row['attack']}, step {row['step']:g}"
            lines.append(f"  {what}: {row['metric']} {row['value']:.3f}{interval}")
    return lines


_SHOWN = ("auc", "success")
