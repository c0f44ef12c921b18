"""`veilcast lab` and `veilcast audit`: experiments on Spark, and captures of one's own network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from veilcast.cli.grammar.options import Later, add_group, positive, runs


def add_lab(commands: Any) -> None:
    group = add_group(commands, "lab", help="experiments on Spark: list, run, report, doctor, ...")
    verbs = group.add_subparsers(title="commands", metavar="COMMAND")

    doctor = verbs.add_parser("doctor", help="test what the lab would run on: Java, Spark, the master")
    _add_master(doctor, "local[*]", "local[*]")
    doctor.add_argument(
        "--class-archive",
        action="store_true",
        help="first store Java's classes in ~/.cache/veilcast (190 MB): sessions on this machine then start sooner",
    )
    runs(doctor, Later("lab", "doctor"))

    listed = verbs.add_parser("list", help="list the experiments; for named ones, what they claim and need")
    listed.add_argument("names", nargs="*", metavar="NAME", help="an experiment, a pattern (mesh-fig*) or a file (all)")
    runs(listed, Later("lab", "list_experiments"))

    show = verbs.add_parser("show", help="print an experiment; with --json, all that was read from it")
    show.add_argument("name", metavar="NAME", help="an experiment of `lab list`, or a file")
    runs(show, Later("lab_show", "show"))

    new = verbs.add_parser("new", help="write an experiment of a kind, to begin with; it runs as it stands")
    new.add_argument("kind", metavar="KIND", help="a kind of `lab reference`, such as mesh.epochs")
    new.add_argument("-o", "--out", type=Path, metavar="FILE", help="the file to write (it is printed)")
    runs(new, Later("lab_show", "new"))

    reference = verbs.add_parser("reference", help="list kinds of experiments, parameters, attackers and metrics")
    reference.add_argument(
        "what", nargs="?", metavar="KIND", help="a kind, for its parameters; or `attackers`, or `metrics` (all kinds)"
    )
    runs(reference, Later("lab_show", "reference"))

    data = verbs.add_parser("data", help="list published data sets, or put a downloaded file in its place")
    data.add_argument("--data", type=Path, metavar="DIR", help="the directory of real data ($VEILCAST_DATA)")
    data.add_argument("action", nargs="?", choices=("list", "import"), default="list", help="default: list")
    data.add_argument("files", nargs="*", type=Path, metavar="FILE", help="import: files that you have downloaded")
    runs(data, Later("lab_data", "data"))

    run = verbs.add_parser(
        "run",
        help="run experiments; existing results are not computed again",
        description="Run experiments over their cells and seeds. An interrupted run continues where it stopped.",
    )
    run.add_argument(
        "names", nargs="+", metavar="NAME", help="an experiment of `lab list`, a pattern (mesh-fig*), all, or a file"
    )
    run.add_argument("--seeds", type=int, metavar="N", help="number of seeds (what each experiment asks for)")
    run.add_argument("--out", default=_OUT, metavar="DIR", help=f"the directory or location for results ({_OUT})")
    add_spark_options(run)
    run.add_argument("--data", type=Path, metavar="DIR", help="the directory of real data ($VEILCAST_DATA)")
    run.add_argument("--trace", type=Path, metavar="FILE", help="for brokers: your own interactions, as CSV or Parquet")
    run.add_argument(
        "--series",
        metavar="FILE:COLUMN",
        help="for foiling: your own series, a column of a CSV file, in place of real prices",
    )
    run.add_argument(
        "--attacker",
        type=Path,
        action="append",
        default=[],
        metavar="FILE.py",
        help="an attacker of your own, a Python file with ATTACKER, beside those of the experiment; several times",
    )
    run.add_argument(
        "--engine",
        choices=("kernel", "machines", "live"),
        help="numeric models, the real machines, or the machines on real sockets (the first that an experiment has)",
    )
    run.add_argument("--quick", action="store_true", help="run the smallest version of each experiment, to try it out")
    run.add_argument(
        "--keep",
        default="",
        metavar="TABLES",
        help="also keep what the adversaries saw, for `lab attack`: all, or cells,truth,...",
    )
    run.add_argument(
        "--check", action="store_true", help="exit with code 13 if a verdict is not the one that the experiment expects"
    )
    run.add_argument("--fresh", action="store_true", help="discard existing results of these experiments")
    runs(run, Later("lab", "run"))

    attack = verbs.add_parser(
        "attack",
        help="attack stored runs again, without running them again",
        description="Attack the tables that `lab run --keep` has kept, by the attackers of the experiment or by those "
        "that you name. If the truth was kept, the guesses are measured; if guesses were kept, they are compared.",
    )
    attack.add_argument("dir", metavar="DIR", help="the directory or location of `lab run --out`")
    attack.add_argument("names", nargs="*", metavar="NAME", help="experiments in that directory (all that kept tables)")
    attack.add_argument(
        "--attacker",
        action="append",
        default=[],
        metavar="ATTACK",
        help="an attacker by its name, or a Python file with one of your own; several times (those of the experiment)",
    )
    attack.add_argument("--out", metavar="DIR", help="write guesses, measures and scores there")
    add_spark_options(attack)
    runs(attack, Later("lab_attack", "attack"))

    report = verbs.add_parser("report", help="write one HTML page of the results in a directory, or in several")
    report.add_argument(
        "dirs",
        nargs="+",
        metavar="DIR",
        help="a directory or location of `lab run --out`; an experiment by models in one and by machines in another is "
        "drawn once, with both",
    )
    report.add_argument("--out", type=Path, metavar="FILE", help="where to write the page (the first DIR/report.html)")
    _add_conf(report)
    runs(report, Later("lab", "report"))

    record = verbs.add_parser(
        "record",
        help="put complete results into a record, and write its pages",
        description="Copy what complete results say (scores, verdicts, and how they were made) into a record, a "
        "directory that is small enough for a repository. Then judge all recorded scores by the experiments as they "
        "stand, and write the pages and figures again.",
    )
    record.add_argument("dirs", nargs="*", metavar="DIR", help="directories of `lab run --out`; none: add nothing")
    record.add_argument("-o", "--out", type=Path, default=Path(_RECORD), metavar="DIR", help=f"the record ({_RECORD})")
    runs(record, Later("lab_record", "record"))

    verify = verbs.add_parser(
        "verify",
        help="make recorded results again, and compare",
        description="Make every result of a record again, and compare all scores; hold every verdict against its "
        "scores and against what the experiment expects. Exits with code 13 if anything differs.",
    )
    verify.add_argument("names", nargs="*", metavar="NAME", help="experiments, or patterns (all)")
    verify.add_argument("--record", type=Path, default=Path(_RECORD), metavar="DIR", help=f"the record ({_RECORD})")
    verify.add_argument("--quick", action="store_true", help="only the quick runs: minutes in place of hours")
    verify.add_argument("--out", metavar="DIR", help="keep what is made again in this directory; a second call goes on")
    verify.add_argument("--data", type=Path, metavar="DIR", help="the directory of real data ($VEILCAST_DATA)")
    add_spark_options(verify)
    runs(verify, Later("lab_record", "verify"))

    export = verbs.add_parser(
        "export",
        help="hand stored results to MLflow: parameters, scores, verdicts and lineage",
        description="Hand stored results to MLflow: a run for each experiment, with a run for each cell below it. What "
        "was exported before is not exported again. MLflow must be installed: pip install mlflow-skinny.",
    )
    export.add_argument("to", choices=("mlflow",), help="where to: mlflow")
    export.add_argument("dir", metavar="DIR", help="the directory of `lab run --out`")
    export.add_argument("names", nargs="*", metavar="NAME", help="experiments in that directory (all)")
    export.add_argument("--uri", default="", metavar="URI", help="MLflow's server or store ($MLFLOW_TRACKING_URI)")
    runs(export, Later("lab_export", "export"))

    challenge = verbs.add_parser(
        "challenge",
        help="make a labelled set of observations, to try attackers on",
        description="The challenge is a set of observations of all modes and profiles, made again from seeds: a part "
        "with labels to train on, and a part without to be tested on. `lab challenge make DIR` makes the small size.",
    )
    challenge.add_argument(
        "action",
        choices=("list", "make", "check", "digests", "baselines"),
        help="list the settings; make a set in DIR; check DIR against the repository; make digests, or the scores of "
        "the lab's attackers on DIR, for the repository",
    )
    challenge.add_argument("dir", nargs="?", type=Path, metavar="DIR", help="the directory of the set")
    _add_challenge_options(challenge)
    runs(challenge, Later("lab_challenge", "challenge"))

    score = verbs.add_parser(
        "score",
        help="score anybody's attacker on the challenge",
        description="Score guesses, or code, on the test part of the challenge, beside the lab's own attackers.",
    )
    score.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="guesses as Parquet or CSV (run, topic, role, node, score), or a Python file with guess() or ATTACKER",
    )
    score.add_argument("--set", type=Path, metavar="DIR", help="a set of `lab challenge make`; needed for Python files")
    _add_challenge_options(score)
    runs(score, Later("lab_challenge", "score"))

    # Without help, it is not listed: it tells those who typed it what replaced it.
    bench = verbs.add_parser("bench")
    bench.add_argument("what", nargs="*", help=argparse.SUPPRESS)
    bench.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    bench.add_argument("--rows", help=argparse.SUPPRESS)
    runs(bench, Later("lab", "bench"))


def _add_challenge_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--size", choices=("small", "large"), help="the size of the set (small)")
    verb.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="rows or settings, such as mesh-* or foil-paper/03; may be given several times (all)",
    )
    verb.add_argument(
        "--salt-file", type=Path, metavar="FILE", help="the secret that the test part is made with (none)"
    )


def _add_master(verb: argparse.ArgumentParser, default: str | None, told: str) -> None:
    verb.add_argument(
        "--master",
        default=default,
        metavar="URL",
        help=f"the Spark master: local[N], spark://HOST:PORT, sc://HOST:PORT (Connect), yarn or k8s://... ({told})",
    )


def _add_conf(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Spark, before spark-defaults.conf; may be given several times",
    )


def add_spark_options(verb: argparse.ArgumentParser) -> None:
    """The options of every command that works on Spark."""
    _add_master(verb, None, "short work in one process, other work on local[*]")
    _add_conf(verb)
    verb.add_argument("--ui", action="store_true", help="serve Spark's web page, and print its address")
    verb.add_argument("--event-log", default="", metavar="DIR", help="write Spark's event log there")


def add_audit(commands: Any) -> None:
    text = "what an observer of every wire learns from captures of your own network"
    parser = commands.add_parser(
        "audit",
        help="what an observer learns from captures of your own network",
        description=f"{text[0].upper()}{text[1:]}: who looks like a publisher or a reader, and how surely. "
        "Captures are pcap or pcapng files, or directories of taps; several captures of one network are merged.",
    )
    parser.add_argument(
        "captures", nargs="+", metavar="CAPTURE", help="a pcap or pcapng file, a directory of taps, or a location"
    )
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="JSON or CSV with u, v: all links, including those without traffic",
    )
    parser.add_argument(
        "--members",
        type=Path,
        metavar="FILE",
        help="JSON or CSV with node, role (publisher, subscriber, ...): to measure how right the attackers are",
    )
    parser.add_argument(
        "--only-members",
        action="store_true",
        help="ignore all nodes that the file of --members does not name, even if they send to members",
    )
    parser.add_argument(
        "--epoch", type=positive, default=3600, metavar="SECONDS", help="length of the network's epochs (3600)"
    )
    parser.add_argument(
        "--attacker",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a Python file with attackers of your own, beside those of the package; may be given several times",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write audit.html and audit.json to this directory")
    live = parser.add_argument_group("while traffic is recorded (Ctrl-C ends it)")
    live.add_argument("--follow", action="store_true", help="follow taps and pcap files that grow, and report again")
    live.add_argument("--every", type=positive, metavar="SECONDS", help="time between two reports (5)")
    live.add_argument(
        "--window", type=float, metavar="SECONDS", help="begin a new record after this time; 0 for never (3600)"
    )
    live.add_argument("--checkpoint", type=Path, metavar="DIR", help="keep the state here, and go on from it")
    live.add_argument("--ask", action="append", metavar="NAME", help="ask this attacker alone; several times")
    add_spark_options(parser)
    parser.set_defaults(master=None)
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="EXPR",
        help="exit with code 13 if EXPR is true, for example 'auc>0.6', 'set<20' or 'named>0'; may be given several "
        "times; the names are auc, auc_low, tpr, set, named, publications, sizes and odd_links",
    )
    runs(parser, Later("audit", "run"))


_OUT: Final = "veilcast-results"
_RECORD: Final = "docs/results"
