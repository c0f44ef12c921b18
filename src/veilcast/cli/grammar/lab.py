"""`veilcast lab` and `veilcast audit`: experiments on Spark, and captures of one's own network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import Later, add_group, positive, runs


def add_lab(commands: Any) -> None:
    group = add_group(commands, "lab", help="experiments on Spark: list, run, report, doctor, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    doctor = verbs.add_parser("doctor", help="what the lab would run on, tried out")
    _add_master(doctor)
    runs(doctor, Later("lab", "doctor"))

    listed = verbs.add_parser("list", help="the experiments; of those that are named, what they claim and need")
    listed.add_argument("names", nargs="*", metavar="NAME", help="or a pattern (mesh-fig*), or a file")
    runs(listed, Later("lab", "list_experiments"))

    run = verbs.add_parser(
        "run",
        help="sweep experiments; what is there already is not done again",
        description="Sweep experiments over their cells and seeds. A sweep that was ended goes on where it was.",
    )
    run.add_argument("names", nargs="+", metavar="NAME", help="of `lab list`, a pattern (mesh-fig*), all, or a file")
    run.add_argument("--seeds", type=int, metavar="N", help="so many seeds (what each experiment asks for)")
    run.add_argument("--out", type=Path, default=_OUT, metavar="DIR", help=f"where results go ({_OUT})")
    _add_master(run)
    run.add_argument("--data", type=Path, metavar="DIR", help="the folder of real data ($VEILCAST_DATA)")
    run.add_argument("--trace", type=Path, metavar="FILE", help="interactions of your own, for brokers: CSV or Parquet")
    run.add_argument(
        "--engine",
        choices=("kernel", "machines", "live"),
        help="models, the real machines, or these on real sockets (the first that an experiment has)",
    )
    run.add_argument("--quick", action="store_true", help="as small as shows anything")
    run.add_argument("--fresh", action="store_true", help="discard what is there of these experiments")
    runs(run, Later("lab", "run"))

    report = verbs.add_parser("report", help="write one HTML page of the results in a directory")
    report.add_argument("dir", type=Path, metavar="DIR", help="of `lab run --out`")
    report.add_argument("--out", type=Path, metavar="FILE", help="the page (DIR/report.html)")
    runs(report, Later("lab", "report"))

    bench = verbs.add_parser("bench", help="kernels, attacks, matching in bulk, or traces of brokers")
    bench.add_argument(
        "what", nargs="?", choices=("kernels", "attacks", "bulk", "traces"), default="kernels", help="default: kernels"
    )
    bench.add_argument("--quick", action="store_true", help="kernels: small sizes, few rounds")
    bench.add_argument(
        "--rows",
        type=int,
        metavar="N",
        help="attacks: of the largest table (100,000,000); bulk: publications and subscriptions (1,000,000); "
        "traces: interactions of the longest (10,000,000)",
    )
    runs(bench, Later("lab", "bench"))


def _add_master(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--master", default="local[*]", metavar="URL", help="local[N], spark://HOST:PORT, yarn, k8s://..."
    )


def add_audit(commands: Any) -> None:
    text = "what an observer of every wire learns from captures of your own network"
    parser = commands.add_parser(
        "audit",
        help="what an observer learns from captures of your own network",
        description=f"{text[0].upper()}{text[1:]}: who looks like a publisher or a reader, and how surely. "
        "Captures are pcap or pcapng files, or directories of taps; several of one network are laid over one another.",
    )
    parser.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="JSON or CSV with u, v: all links, not only those that carry anything",
    )
    parser.add_argument(
        "--members",
        type=Path,
        metavar="FILE",
        help="JSON or CSV with node, role (publisher, subscriber, ...): how right are the attackers?",
    )
    parser.add_argument(
        "--only-members",
        action="store_true",
        help="the file of members names all nodes of the network: leave out all others, though they send to members",
    )
    parser.add_argument(
        "--epoch", type=positive, default=3600, metavar="SECONDS", help="how long the network's epochs are (3600)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write audit.html and audit.json there")
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="EXPR",
        help="exit with code 13 if this is so, like auc>0.6, set<20 or named>0, quoted for the shell; may be given "
        "several times; of auc, auc_low, tpr, set, named, publications, sizes, odd_links",
    )
    runs(parser, Later("audit", "run"))


_OUT: Final = Path("veilcast-results")
