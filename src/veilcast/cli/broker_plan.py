"""`veilcast brokers plan`: where replicas should be placed, by what running brokers report about one another; and with
--apply, places them, in an overlay on this computer.

Elsewhere, the operator reads the plan, changes `overlay.toml`, signs it, and hands it to any broker (`brokers order`):
no program can start a broker on another operator's computer.

Replicas that do not answer are listed, too: without a majority a node carries nothing, and takes no step.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.progress import Progress

from veilcast.authority.secret_file import lock_directory
from veilcast.brokers.operations.placement import PlacementPlan
from veilcast.brokers.operations.redeployment_plan import (
    RedeployStep,
    ReplicaFindings,
    evaluate_reports,
    make_plan,
    overlay_paths,
    plan_steps,
)
from veilcast.brokers.overlay import BrokerOverlay
from veilcast.cli.broker_facts import ask_brokers
from veilcast.cli.broker_reports import parse_facts, read_paths, read_reports, reports_since
from veilcast.cli.context import Context, Report
from veilcast.cli.input_checks import check_range
from veilcast.cli.local import network, workers
from veilcast.cli.local.overlay_operator import LocalOperator
from veilcast.cli.phrases import pluralize
from veilcast.errors import ConfigError, LocalError, UnreachableError
from veilcast.node.broker_overlay import decode_operator_line, read_signed


class SilentReplicas(NamedTuple):
    """How many replicas of a virtual node, or of the repository, do not answer."""

    node: str
    silent: int
    replicas: int
    repository: bool

    @property
    def has_majority(self) -> bool:
        """True if more than half of the replicas answer."""
        return 2 * (self.replicas - self.silent) > self.replicas

    @property
    def name(self) -> str:
        return "the repository" if self.repository else self.node


def find_silent(overlay: BrokerOverlay, heard: Collection[bytes]) -> list[SilentReplicas]:
    """Return the nodes some of whose replicas are not among the answering keys."""
    found = [
        SilentReplicas(
            node.name,
            sum(replica.key not in heard for replica in node.replicas),
            len(node.replicas),
            node is overlay.repository,
        )
        for node in overlay.all_nodes
    ]
    return [each for each in found if each.silent]


def silent_lines(silent: Iterable[SilentReplicas]) -> list[str]:
    lines = []
    for each in silent:
        lines.append(f"  silent: {each.silent} of {each.replicas} replicas of {each.name}")
        if not each.has_majority:
            lines.append(f"  warning: no majority of {each.name} answers: nothing gets through it until more of it run")
    return lines


def silent_data(silent: Iterable[SilentReplicas]) -> list[dict[str, object]]:
    return [
        {"node": each.node, "silent": each.silent, "of": each.replicas, "majority": each.has_majority}
        for each in silent
    ]


def plan_overlay(arguments: argparse.Namespace, context: Context) -> Report:
    if (arguments.dir is None) == (not arguments.facts):
        raise ConfigError("name --dir, for an overlay on this machine, or files of FACTS")
    for option in ("spare", "cap", "replicas"):
        if (number := getattr(arguments, option)) is not None:
            check_range(f"--{option}", number, 0, _REPLICAS_MAX)
    if arguments.dir is not None:
        if arguments.overlay or arguments.operator or arguments.spare or arguments.since:
            raise ConfigError("--overlay, --operator, --spare and --since go with FACTS; with --dir they are known")
        return _plan_here(arguments, context)
    if arguments.apply:
        raise ConfigError(
            "--apply goes with --dir; elsewhere sign the next overlay, and hand it out by `brokers order`"
        )
    if arguments.overlay is None or arguments.operator is None:
        raise ConfigError("with FACTS, --overlay and --operator are needed")
    operator = decode_operator_line("--operator", arguments.operator)
    overlay = read_signed(arguments.overlay, operator).verify(operator)
    reports = read_reports(arguments.facts, overlay, arguments.overlay)
    since = read_reports(arguments.since, overlay, arguments.overlay)
    found = evaluate_reports(overlay, reports_since(reports, since))
    made = _make_plan(arguments, overlay, found, arguments.spare)
    places = {(each.node, each.index) for each in reports}
    heard = {
        replica.key
        for node in overlay.all_nodes
        for index, replica in enumerate(node.replicas, 1)
        if (node.name, index) in places
    }
    return _report(overlay, found, made, None, find_silent(overlay, heard))


def _plan_here(arguments: argparse.Namespace, context: Context) -> Report:
    directory: Path = arguments.dir
    layout = network.read_network(directory)
    with (
        lock_directory(directory) if arguments.apply else nullcontext()
    ):  # The network must not change while the plan is made.
        answers = ask_brokers(directory)
        operator = LocalOperator(directory, layout)
        left = operator.pending(answers)
        if left is not None and arguments.apply:
            # It starts the joining replicas that are down, so it may succeed although too few answer now.
            _carry_out(operator, [left], context)
            answers = ask_brokers(directory)
        overlay = operator.overlay()
        silent = find_silent(overlay, operator.answering_keys(overlay, answers))
        found, spares = evaluate_reports(overlay, parse_facts(answers), operator.liars()), operator.spares(overlay)
        made = _make_plan(arguments, overlay, found, len(spares))
        steps = plan_steps(overlay, made, spares, found, lot=operator.placement_seed)
        if arguments.apply and steps:
            _check_majorities(silent, directory)
            operator.remember_liars(found.faulty)
            _carry_out(operator, steps, context)
    # After an interruption, the operator sees that the last step is complete.
    stands = left is None and overlay.version > 1 and any(answers.values())
    return _report(overlay, found, made, steps, silent, applied=arguments.apply, left=left, stands=stands)


def _check_majorities(silent: list[SilentReplicas], directory: Path) -> None:
    """Raise `UnreachableError` before anything is signed that nobody could carry out."""
    few = [each for each in silent if not each.has_majority and not each.repository]
    if few:
        nodes = ", ".join(f"{each.replicas - each.silent} of {each.replicas} replicas of {each.node}" for each in few)
        raise UnreachableError(
            f"nothing is signed, for too few answer to carry it out: {nodes}; `veilcast brokers status --dir "
            f"{directory}` lists the brokers that are down, and `veilcast brokers run -c "
            f"{directory}/NAME/broker.toml` starts one"
        )


def _carry_out(operator: LocalOperator, steps: list[RedeployStep], context: Context) -> None:
    shown = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not shown) as progress:
        task = progress.add_task("steps", total=len(steps))
        said = ""

        def say(waits: str) -> None:
            nonlocal said
            progress.update(task, description=waits)
            if waits != said and not shown:
                context.warn(waits)
            said = waits

        for step in steps:
            coming = operator.sign(step)
            if coming:
                workers.add_worker(operator.directory, coming)
            operator.hand_out_overlay()
            _wait(partial(_gathering, operator, step), say)
            _wait(partial(_leaving, operator, step), say)
            progress.advance(task)


def _gathering(operator: LocalOperator, step: RedeployStep) -> str | None:
    """Return what a step waits for; None when enough replicas have adopted it."""
    size = sum(len(node.replicas) for node in step.overlay.nodes)
    # A Byzantine replica may deny it for ever, so all except the tolerated number are enough.
    enough = size - sum((len(node.replicas) - 1) // 2 for node in step.overlay.nodes)
    if (count := operator.count_ready(step)) >= enough:
        return None
    return f"waiting for version {step.overlay.version}: {count} of {enough} replicas that must go by it do"


def _leaving(operator: LocalOperator, step: RedeployStep) -> str | None:
    """Return what a step waits for; None when the replicas that leave by it have left."""
    staying = operator.count_staying(step)
    return f"waiting for {pluralize(staying, 'broker')} to leave by version {step.overlay.version}" if staying else None


def _wait(look: Callable[[], str | None], say: Callable[[str], object]) -> None:
    deadline = time.monotonic() + _STEP_S
    while (waits := look()) is not None:
        say(waits)
        if time.monotonic() > deadline:
            raise LocalError(
                f"gave up after {_STEP_S:g} s of {waits}; it is signed, and --apply carries it out first when it is "
                "called again; `brokers status` lists the brokers that are down"
            )
        time.sleep(_LOOK_S)


def _make_plan(
    arguments: argparse.Namespace, overlay: BrokerOverlay, found: ReplicaFindings, spare: int
) -> PlacementPlan:
    return make_plan(
        overlay,
        found,
        spare,
        profile=overlay.profile,
        paths=overlay_paths(overlay, None if arguments.paths is None else read_paths(arguments.paths, overlay)),
        method=arguments.way,
        cap=arguments.cap,
        replicas=arguments.replicas,
        move=arguments.move,
    )


def _report(
    overlay: BrokerOverlay,
    found: ReplicaFindings,
    made: PlacementPlan,
    steps: list[RedeployStep] | None,
    silent: list[SilentReplicas],
    *,
    applied: bool = False,
    left: RedeployStep | None = None,
    stands: bool = False,
) -> Report:
    """Build the report. Without `steps` the operator has to make them, because only the operator knows the new brokers.
    `left` is a step that an interrupted call has signed. `stands` is True if no step is left, because all brokers have
    adopted the last one."""
    liars = [
        f"replica {index} of {node.name}"
        for node in overlay.nodes
        for index, replica in enumerate(node.replicas, 1)
        if replica.key in found.faulty
    ]
    nodes: list[dict[str, Any]] = [
        {"node": node.name, "now": len(node.replicas), "planned": made.sizes[node.name], "risk": found.node_risk(node)}
        for node in overlay.nodes
    ]
    answers = [
        {
            "node": step.node,
            "version": step.overlay.version,
            "come": [replica.address for replica in step.joining],
            "leave": [replica.address for replica in step.leaving],
        }
        for step in steps or ()
    ]
    data = {
        "nodes": nodes,
        "liars": liars,
        "silent": silent_data(silent),
        "unused": made.unused,
        "unprotected": list(made.unprotected),
        "steps": answers,
        "applied": applied,
        "pending": None if left is None or applied else left.overlay.version,
    }
    lines = [
        f"  {row['node']}: {pluralize(row['now'], 'replica')}, planned {row['planned']}, risk {row['risk']:.3f}"
        for row in nodes
    ]
    spare = f"{pluralize(made.unused, 'replica')} to spare after the plan"
    lines.insert(0, f"{pluralize(len(nodes), 'virtual node')}, {spare}")
    lines += silent_lines(silent)
    lines += [f"  proven to lie: {name}" for name in liars]
    lines += [f"  unprotected: {path}" for path in made.unprotected]
    for step in steps or ():
        changed = f"{len(step.joining)} come, {len(step.leaving)} leave"
        lines.append(f"  step to version {step.overlay.version}: {step.node}: {changed}")
    if left is not None:
        state = "was signed before, and has been" if applied else "was signed before, and is still to be"
        lines.append(f"  version {left.overlay.version} {state} carried out")
    if stands and not steps:
        lines.append(f"  version {overlay.version} has been carried out: all brokers that answer have adopted it")
    if left is not None and not applied:
        lines.append("  --apply does that first")
    elif not liars and all(row["now"] == row["planned"] for row in nodes):
        lines.append("  nothing to do: all stands as planned")
    elif steps is None:
        lines.append("to carry it out, change overlay.toml, `brokers overlay sign` it, and `brokers order` it")
    elif not steps:
        lines.append("  nothing can be done: no spare broker can replace the faulty one")
    elif applied:
        lines.append("carried out")
    return Report(data, lines)


_REPLICAS_MAX: Final = 100_000
_STEP_S: Final = 180.0
_LOOK_S: Final = 0.3
