"""Writes docs/experiments.md from the structs that an experiment's file is decoded to, and from packaged experiments.

`python tests/support/experiment_reference.py > docs/experiments.md` writes it again.
"""

from __future__ import annotations

import inspect
import re
import sys

import msgspec

from veilcast.lab import data, user_files
from veilcast.lab.attack.foreign import SERVES, find_roles
from veilcast.lab.experiment import definition as experiment
from veilcast.lab.experiment.definition import (
    AttackMatrix,
    Experiment,
    Figure,
    FigureCurve,
    MachineSettings,
    OverviewCost,
    OverviewEntry,
    QuickSettings,
    Series,
)
from veilcast.lab.experiment.kinds import KINDS
from veilcast.lab.experiment.reference import describe_attackers, describe_fields, find_drawn_metrics, summarize
from veilcast.lab.measure.stated_numbers import EarlierNumber, OwnCheck, PublishedNumber
from veilcast.lab.runs.stored_attack_task import STORED_ATTACKS
from veilcast.lab.runs.table import RUNS, WITHOUT_TABLES, list_kept_tables

EXAMPLE = """
title = "Covers and degree"
kind = "mesh.flows"
claim = "one cover each makes leaves harder to name"
reading = "the leaf rule of the paper, on its own overlay"
minutes = 0.5
seeds = 30

[base]
nodes = 200

[axes]
degree = [4, 6, 8]

[[series]]
name = "no covers"

[[series]]
name = "one cover"
params = { cover = "one", mu = 0.7 }

[[figures]]
name = "accuracy"
title = "How often the leaf rule is right"
x = "degree"
x_label = "links of a node"
y_label = "accuracy"
curves = [
  { label = "no covers", series = "no covers", attack = "leaf", metric = "accuracy_all" },
  { label = "one cover", series = "one cover", attack = "leaf", metric = "accuracy_all" },
]
"""

OWN_ATTACKER = '''
"""An attacker on subscribers: nodes that were in more meshes are likelier to subscribe."""

import numpy as np

from veilcast.lab.attack.observer.observations import ObservedMesh, WireObservations
from veilcast.lab.attack.registry import SUBSCRIBER, Attacker


def score_members(seen: WireObservations) -> np.ndarray:
    """One score for each node; larger is likelier."""
    return seen.average(seen.each_mesh(score_mesh))


def score_mesh(seen: WireObservations, mesh: ObservedMesh) -> np.ndarray:
    return mesh.members.astype(float)


ATTACKER = Attacker("members", SUBSCRIBER, WireObservations, score_members)
'''
OWN_GRAPH = """
title = "A mesh on my graph"
kind = "mesh.epochs"
claim = "the leaf rule and group testing name subscribers on a scale-free graph"
reading = "as20000102.txt has two numbers of systems in a line"
minutes = 2
seeds = 30

[base]
graph = "file:as20000102.txt"
insiders = 0.05
steps = [1, 5]
attacks = ["leaf", "group-testing", "first-spy"]

[[figures]]
name = "auc"
title = "Subscribers named"
x = "step"
x_label = "epochs"
y_label = "AUC"
curves = [
  { label = "leaf", attack = "leaf", metric = "auc" },
  { label = "group testing", attack = "group-testing", metric = "auc" },
]
"""

STRUCTS: dict[str, tuple[type[msgspec.Struct], str]] = {
    "The file": (Experiment, "Fields before the first table of the file."),
    "`[[series]]`": (Series, "Things that stand beside one another. Each is run for all values of the axes."),
    "`[quick]`": (QuickSettings, "What `--quick` changes."),
    "`[machines]`": (MachineSettings, "What `--engine machines` changes: the real code, some thousand times slower."),
    "`[[figures]]`": (Figure, "A figure has one x and any number of curves."),
    "`curves`": (FigureCurve, "One line of a figure."),
    "`[[matrices]]`": (AttackMatrix, "Series down, attackers across, one metric in each cell."),
    "`[[published]]`": (PublishedNumber, "A number that a paper prints, or states in words, held against a curve."),
    "`[[earlier]]`": (EarlierNumber, "The same for a number of an earlier run. All other fields are as above."),
    "`[[overview]]`": (OverviewEntry, "A cell of the overview of a report: a mode and profile against an adversary."),
    "`[[costs]]`": (OverviewCost, "A cost in the overview of a report."),
    "`[[checks]]`": (OwnCheck, "The same for a number of our own: a formula, a control, or an aim."),
}


def render_reference() -> str:
    parts = [_HEAD.format(example=EXAMPLE.strip())]
    for title, (kind, text) in STRUCTS.items():
        parts.append(f"### {title}\n\n{text}\n\n{_table(kind)}")
    parts.append(f"## Kinds\n\n{_KINDS}\n\n{_kinds()}")
    for name, params in KINDS.items():
        parts.append(f"### `{name}`\n\n{inspect.getdoc(params)}\n\n{_table(params)}")
    parts.append(f"## Attackers\n\n{_ATTACKERS}\n\n{_attackers()}")
    parts.append(_OWN_ATTACKERS.format(example=OWN_ATTACKER.strip(), observed=_observed()))
    parts.append(f"## Kept tables\n\n{_KEPT}\n\n{_kept_tables()}")
    parts.append(f"## Metrics\n\n{_METRICS}\n\n{_metrics()}")
    rows = [f"| `{name}` | {text} | {bound} |" for name, (text, bound) in _OWN_FORMATS.items()]
    table = "\n".join(["| parameter | format | bounds |", "|---|---|---|", *rows])
    parts.append(_OWN_DATA.format(table=table, example=OWN_GRAPH.strip()))
    parts.append(f"## Data folder\n\n{_DATA}\n\n{_data()}")
    return "\n\n".join(parts) + "\n"


def _table(kind: type[msgspec.Struct]) -> str:
    rows = ["| field | value | default | |", "|---|---|---|---|"]
    for field in describe_fields(kind):
        values = _quote_values(field.value)
        default = "**required**" if field.required else f"`{field.default}`"
        rows.append(f"| `{field.name}` | {values} | {default} | {_cell(field.meaning)} |")
    return "\n".join(rows)


def _quote_values(text: str) -> str:
    return re.sub(r'"[^"]*"|\b\d+\b', r"`\g<0>`", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _kinds() -> str:
    rows = ["| kind | | engines |", "|---|---|---|"]
    for kind, params in KINDS.items():
        rows.append(f"| [`{kind}`](#{kind.replace('.', '')}) | {summarize(params)} | {', '.join(RUNS[kind])} |")
    return "\n".join(rows)


def _attackers() -> str:
    rows = ["| looks for | from | names |", "|---|---|---|"]
    for each in describe_attackers():
        rows.append(f"| {each.target} | {each.place} | {', '.join(f'`{name}`' for name in each.names)} |")
    return "\n".join(rows)


def _observed() -> str:
    rows = ["| kind of run | it observes | it looks for |", "|---|---|---|"]
    for kind, observed in SERVES.items():
        classes = ", ".join(f"`{each.__name__}` of `{each.__module__}`" for each in observed)
        roles = ", ".join(dict.fromkeys(f"`{role}`" for each in observed for role in find_roles(each)))
        rows.append(f"| `{kind}` | {classes} | {roles} |")
    return "\n".join(rows)


def _kept_tables() -> str:
    rows = ["| kind | engine | tables | `lab attack` |", "|---|---|---|---|"]
    for kind, engines in RUNS.items():
        if kind in WITHOUT_TABLES:
            rows.append(f"| `{kind}` | | none: {WITHOUT_TABLES[kind]} | |")
            continue
        for engine in engines:
            names = ", ".join(f"`{name}`" for name in list_kept_tables(kind, engine)) or "none"
            again = "yes" if engine in STORED_ATTACKS.get(kind, {}) else "no"
            rows.append(f"| `{kind}` | {engine} | {names} | {again} |")
    return "\n".join(rows)


def _metrics() -> str:
    rows = ["| metric | drawn in |", "|---|---|"]
    for metric, drawn in find_drawn_metrics().items():
        more = f" and {len(drawn) - 2} more" if len(drawn) > 2 else ""
        rows.append(f"| `{metric}` | {', '.join(f'`{name}`' for name in drawn[:2])}{more} |")
    return "\n".join(rows)


def _data() -> str:
    readers: dict[str, list[str]] = {}
    for name in experiment.packaged_names():
        loaded = experiment.load_experiment(name)[1]
        for source in {source for engine in loaded.engines for source in loaded.data_sources(engine)}:
            readers.setdefault(source, []).append(name)
    rows = ["| source | file below the folder | where it comes from | read by |", "|---|---|---|---|"]
    for source in sorted(readers):
        shown = ", ".join(f"`{name}`" for name in readers[source][:3]) + (", ..." if len(readers[source]) > 3 else "")
        rows += [f"| `{source}` | `{file.name}` | {file.origin} | {shown} |" for file in data.files_of([source])]
    return "\n".join(rows)


_HEAD = """# Experiments of your own

`veilcast lab run my.toml` runs an experiment from a file. This page is written from the code by
`tests/support/experiment_reference.py`, and a test holds the two equal.

An experiment has cells: the product of its axes, once for each series. A cell and a seed are a run. A run gives
metrics, of the network itself or of an attacker on it. A figure draws metrics over an axis, or over the steps inside a
run.

```toml
{example}
```

```sh
veilcast lab new mesh.flows -o my.toml   # a commented experiment to begin with, which runs as it stands
veilcast lab reference mesh.flows        # the parameters of a kind; `attackers` and `metrics` list those
veilcast lab show mesh-fig07             # a packaged experiment
veilcast lab run my.toml --quick     # 4 seeds
veilcast lab run my.toml
veilcast lab report lab-results
```

All missing and unknown fields, and all names that do not fit, are told at once, before Spark starts. Each cell is run
once with seed 0 until every curve has its metric, and a metric that no run gives is refused with those that there are.

## Fields"""
_KINDS = (
    "A kind names the run: what is simulated, and what is measured. Its parameters stand in `base`, in `params` of a "
    "series, and as axes; a parameter that the kind does not have is refused. A series can name a kind of its own. The "
    "packaged experiments are examples: `src/veilcast/experiments/`. A file that names no kind is of an older version: "
    "its kind is inferred."
)
_ATTACKERS = (
    "`attacks` of `mesh.epochs` names attackers, and `guessers` of the kinds that foil do. Other kinds have attackers "
    "of their own; the error about a wrong curve names them. You can bring [attackers of your "
    "own](#attackers-of-your-own)."
)
_KEPT = """Runs hand observation tables to their attackers, and get `guesses`; `measure` joins the truth.
`--keep` stores these tables, and `lab attack` attacks them again. `veilcast.observe` and `veilcast.lab.tables` define
their columns."""
_OWN_ATTACKERS = """## Attackers of your own

An attacker is a function from observations to scores. A Python file with `ATTACKER` or `ATTACKERS` brings one
or several:

```python
{example}
```

`attackers = ["file:mine.py"]` in an experiment makes its names known to `attacks` and `guessers`;
`lab run mesh-attacks --attacker mine.py` puts it beside the attackers of any experiment, `lab attack DIR` lets
it attack stored runs, and `veilcast audit --attacker mine.py` captures. An installed distribution can offer
attackers by entry points of the group `veilcast.attackers`: an experiment that uses such a name gets it.
Executors get the text of a file; they must have the distribution of an entry point.

{observed}

A relay's scores have a row for each topic and a column for each user, or what the role asks for
(`veilcast.lab.attack.server.attackers` has the table). Scores of a stream are probabilities. All others have one
number for each node, or one row of them for each topic.

- **Controls.** Before the sweep each attacker runs where attackers of the package succeed, over twenty seeds: on
  a mesh of 150 nodes without defence over ten epochs, on the paper's trees or relay, on streams among
  independent noise, or, over ten seeds, on captured wires of a mesh whose messages leave at once. This is the
  positive control. The null control is the same with its scores dealt out at random, as shuffled labels. Both
  are printed, and stand in `--json`. An attacker whose shuffled scores are no guess is refused. One that does no
  better than a guess in the positive control is reported as such.
- **The truth.** An attacker gets a copy of its observations and nothing else. A file that imports a room that
  knows the truth (`veilcast.lab.measure`, `veilcast.lab.runs`, ...) is refused, as the package's own
  attackers are. This stops a mistake and not an intent: Python code can reach all of its process, so read a
  file before you run it.
- **Faults.** A file that cannot be loaded, and a name that is taken, are refused before Spark starts. An
  attacker that raises, or returns scores of the wrong shape or not finite, ends the sweep with one line that
  names it, and its line in the file.
- The manifest has the digest of the file, so results of two versions of an attacker do not mix."""
_OWN_FORMATS: dict[str, tuple[str, str]] = {
    "graph": (
        "edges: two names of nodes in a line (numbers or words; further columns, such as weights, are ignored); a "
        "first line of words above numbers is a heading. Edges have no direction. Repeated edges and loops are left "
        "out. `component` says what to do with a graph of several components.",
        f"{user_files.NODES_MAX:,} nodes, {user_files.EDGES_MAX:,} edges",
    ),
    "subscriptions": (
        "`node,topic` in a line: each node must be one of the graph; for `relay.attacks`, the users",
        f"{user_files.SUBSCRIPTIONS_MAX:,} subscriptions, {user_files.TOPICS_MAX:,} topics",
    ),
    "latencies": (
        "round trips in milliseconds, the same both ways: a square matrix, or `u,v,ms` for each pair of hosts below "
        "this heading",
        f"{user_files.HOSTS_MAX:,} hosts",
    ),
    "truth": (
        "a series: CSV with a heading; `column` names the column. A column `day` divides the series, and no stream "
        "crosses from one day to the next; without it, the series is cut into ten parts at most. A column `volume` is "
        "activity that the public sees. The unit of the values is their last decimal. Any length.",
        f"{user_files.ROWS_MAX:,} values",
    ),
    "trace": (
        "interactions: a heading, then `sender,receiver,time`; or Parquet, as for `lab run --trace` "
        "([trace](researcher.md#the-lab))",
        "",
    ),
}
_OWN_DATA = """## Data of your own

A parameter that takes `"file:PATH"` reads a file of yours. The path is relative to the experiment's file, or to
`folder`. Files are text, packed by gzip or not, with commas or white space between fields; lines that begin
with `#` or `%` are comments. All faults of all files are told before Spark starts, each with its file and line.
What is left out, such as a repeated edge, is counted and told. The manifest has the digest of each file, so
results of two versions of a file do not mix. On a cluster the executors must see the files under the same path.

{table}

An overlay such as that of the Internet's autonomous systems, by a file alone:

```toml
{example}
```

`lab run foil-default --series prices.csv:close` puts a column of a file in place of the real prices of an experiment
about foiling, as `--trace FILE` does for traces."""
_DATA = (
    "Some experiments read real data, which does not come with the package: `--data DIR`, or `VEILCAST_DATA`. Files "
    "that are missing are named all at once. A file is taken only if it has exactly the rows that it should have. "
    "`veilcast lab data` lists the sets with licence, citation and checksum, and says which are there; `veilcast lab "
    "data import FILE` checks a file that you have downloaded, packed or not, and puts it in its place. Nothing is "
    "downloaded."
)
_METRICS = "Metrics that packaged experiments draw. `veilcast lab list NAME` says what each experiment is about."

if __name__ == "__main__":
    sys.stdout.write(render_reference())
