"""`veilcast lab attack`: attacks stored runs again, in this process or on Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilcast.cli.context import Context, Report
from veilcast.cli.lab import finite_rows, lab_extra
from veilcast.errors import ConfigError

if TYPE_CHECKING:
    from veilcast.lab.attack.foreign import AttackerSource
    from veilcast.lab.attack.registry import Attacker
    from veilcast.lab.runs.stored_attack import AttackedRuns


def attack(arguments: argparse.Namespace, context: Context) -> Report:
    with lab_extra():
        from veilcast.lab.runs.stored_attack import attack_stored, choose_kept_experiments
        from veilcast.lab.spark import LOCAL, Progress, SparkLater, SparkOptions
        from veilcast.lab.spark.locations import open_location
    options = SparkOptions.parse(arguments.conf, ui=arguments.ui, event_log=arguments.event_log)
    master = arguments.master or LOCAL
    stored = open_location(arguments.dir, master, options)
    out = open_location(arguments.out, master, options) if arguments.out is not None else None
    names = choose_kept_experiments(stored, arguments.names)
    say: Callable[[str], object] = (lambda _: None) if arguments.json else context.say
    attackers, sources, controls = _choose_attackers(arguments.attacker, say)
    found: list[dict[str, Any]] = []
    with SparkLater(master, options, say) as later, Progress(None, say=say) as progress:
        if arguments.master is not None or options != SparkOptions():
            progress.begin(f"starting Spark for {', '.join(names)}", 0, len(names))
            progress.watch(later.get())
        for name in names:
            attacked = attack_stored(later, stored, name, attackers, out=out, sources=sources, progress=progress)
            found.append(_data(attacked))
            if not arguments.json:
                progress.say(context.say, _lines(attacked, found[-1]))
    lines = [f"guesses, measures and scores are in {arguments.out}"] if arguments.out else []
    return Report({"experiments": found, "controls": controls}, lines)


def _choose_attackers(
    given: Sequence[str], say: Callable[[str], object]
) -> tuple[list[str], tuple[AttackerSource, ...], list[dict[str, Any]]]:
    """The names of the chosen attackers, the files that some of them stand in, and the controls of those."""
    from veilcast.lab.attack import foreign

    sources = tuple(foreign.read_attacker_file(Path(each)) for each in given if each.endswith(".py"))
    own, controls = run_own_controls(sources, say)
    names = [each for each in given if not each.endswith(".py")]
    return [*names, *(each.name for each in own)], sources, controls


def run_own_controls(
    sources: Sequence[AttackerSource], say: Callable[[str], object]
) -> tuple[list[Attacker[Any]], list[dict[str, Any]]]:
    """Install the attackers of these files, and run their controls. Raises `ConfigError` if shuffled scores are no
    guess."""
    from veilcast.lab.attack import foreign
    from veilcast.lab.runs.attacker_controls import run_controls

    foreign.install_attackers(sources)
    own = [each for source in sources for each in foreign.load_attackers(source)]
    controls = []
    for attacker in own:
        result = run_controls(attacker)
        say(result.describe())
        if not result.is_fair:
            raise ConfigError(f"{result.describe()}: its shuffled scores must be a guess")
        controls.append(result._asdict())
    return own, controls


def _data(attacked: AttackedRuns) -> dict[str, Any]:
    found: dict[str, Any] = {"experiment": attacked.experiment, "rows": attacked.rows, "guesses": attacked.guesses}
    if attacked.compared is not None:
        found |= {"compared": attacked.compared, "different": attacked.different}
    found |= attacked.describe_skew()
    if attacked.scores is not None:
        found["scores"] = finite_rows(attacked.scores.to_pylist())
    return found


def _lines(attacked: AttackedRuns, found: dict[str, Any]) -> list[str]:
    lines = [f"{attacked.experiment}: {attacked.guesses:,} guesses from {attacked.rows:,} rows"]
    lines.append(f"  {found['tasks']:,} tasks: median {found['median_s']:.1f} s, slowest {found['slowest_s']:.1f} s")
    if attacked.compared is not None:
        same = attacked.compared - attacked.different
        lines.append(f"  {same:,} of {attacked.compared:,} kept guesses are the same, {attacked.different:,} differ")
    for row in found.get("scores", ()):
        if row["metric"] in _SHOWN:
            interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row["seeds"] > 1 else ""
            what = f"{row['cell']}, {row['attack']}, step {row['step']:g}"
            lines.append(f"  {what}: {row['metric']} {row['value']:.3f}{interval}")
    return lines


_SHOWN = ("auc", "success")
