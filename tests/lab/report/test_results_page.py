"""The page needs nothing but itself, says what is not whole, and gives strangers' words no power over it."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support import sample_results
from veilcast.errors import ConfigError, StorageError
from veilcast.lab.experiment.definition import Experiment, packaged_names, parse_experiment
from veilcast.lab.experiment.manifest import Environment
from veilcast.lab.experiment.verdicts import ScoreTable
from veilcast.lab.report import results, results_page
from veilcast.lab.report.results import StoredResult
from veilcast.lab.storage.location import LocalDirectory

HOSTILE = '"><script>alert(1)</script><img src=//evil.example/x>\x07'


class Reader(HTMLParser):
    """What the page consists of. Raises where a tag is closed that is not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.order: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self._note(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.words += data

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.order.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def all(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(results_page.render_page(sample_results.make_results()))


def hostile() -> Experiment:
    """Every text of it tries to break out."""
    keys = ("title", "source", "claim", "reading", "what", "why", "label", "curve", "figure", "x_label", "y_label")

    def spoil(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: spoil(content, name) for name, content in value.items()}
        if isinstance(value, list | tuple):
            return [spoil(content) for content in value]
        return HOSTILE + value if key in keys else value

    spoilt = spoil(msgspec.to_builtins(sample_results.make_experiments()["mesh-degrees"]))
    spoilt["figures"][0]["name"] = HOSTILE + "accuracy"
    spoilt["base"] |= {"graph": "deezer", "topic": HOSTILE}
    return msgspec.convert(spoilt, Experiment)


def test_every_experiment_has_its_figures_its_table_its_reading_and_how_it_was_made(reader: Reader) -> None:
    for name, experiment in sample_results.make_experiments().items():
        assert name in reader.all("id")
        for words in (experiment.title, experiment.claim, experiment.reading, experiment.source):
            assert words in reader.words
    assert reader.tags["figure"] == 4
    assert reader.words.count("veilcast lab run all --out results") == 4
    for said in ("41.3 s on local[*], 2 cores", "commit 1431b1d5c0ff, source 9f3c1a77", "numba 0.68.0", "kernel"):
        assert said in reader.words


def test_seeds_are_counted_against_what_is_asked_of_the_engine() -> None:
    experiment = sample_results.make_experiments()["mesh-games"]
    stored = (sample_results.make_stored_portion(0, 29),)
    for engine, said in (("kernel", "30 (the experiment asks for 100)"), ("machines", "30Engine")):
        made = sample_results.make_result("mesh-games", experiment, engine=engine, stored=stored)
        assert f"Seeds{said}" in Reader(results_page.render_page([made])).words


def test_every_place_that_a_result_was_made_on_is_named_and_whether_the_code_was_changed() -> None:
    elsewhere = sample_results.make_stored_portion(20, 39, Environment("spark://host:7077", 64, {}))
    made = sample_results.make_result(
        "mesh-games",
        sample_results.make_experiments()["mesh-games"],
        stored=(sample_results.make_stored_portion(0, 19), elsewhere, sample_results.make_stored_portion(40, 99)),
        changed=True,
    )
    words = Reader(results_page.render_page([made])).words
    assert "41.3 s on local[*], 2 cores and on spark://host:7077, 64 cores" in words
    assert "commit 1431b1d5c0ff with changes, source 9f3c1a77" in words


def test_one_seed_is_said_to_have_no_interval() -> None:
    made = sample_results.make_result(
        "mesh-games",
        sample_results.make_experiments()["mesh-games"],
        stored=(sample_results.make_stored_portion(0, 0),),
    )
    words = Reader(results_page.render_page([made])).words
    assert "One seed: no interval." in words
    assert "95 %" not in words


def test_the_summary_counts_and_says_what_is_not_reproduced_and_why(reader: Reader) -> None:
    top = reader.words.split("Experiments")[0]
    assert "5 published numbers and 1 check of our own, held against what came out of 2 experiments." in top
    assert "Published numbers1fits2near1partly1not reproduced" in top
    assert "Checks of our own1fits0near0partly0not reproduced" in top
    assert "SG, degree 2: published 0.29, reproduced 0.13" in top
    assert "A small world of degree 2 is not connected" in top


def test_an_incomplete_or_quick_sweep_is_shown_as_such_and_not_counted() -> None:
    experiment = sample_results.make_experiments()["mesh-degrees"]
    for changes, said in (({"status": "running"}, "the sweep is incomplete"), ({"quick": True}, "a quick run")):
        words = Reader(
            results_page.render_page([sample_results.make_result("mesh-degrees", experiment, **changes)])
        ).words
        assert "1 experiment. Nothing is held against stated numbers here." in words
        assert "0fits" not in words
        assert words.count(said) == 2


def test_fewer_seeds_than_asked_for_and_experiments_that_were_not_run_are_told() -> None:
    experiment = sample_results.make_experiments()["mesh-games"]
    words = Reader(results_page.render_page([sample_results.make_result("mesh-games", experiment, stored=())])).words
    assert "0 (the experiment asks for 100)" in words
    assert (
        f"Not run: {len(packaged_names())} of the {len(packaged_names())} packaged experiments{packaged_names()[0]}, "
        in words
    )


def test_what_is_counted_with_less_behind_it_than_was_meant_is_told_at_the_top() -> None:
    experiment = sample_results.make_experiments()["mesh-degrees"]
    few = sample_results.make_result("mesh-degrees", experiment, stored=(sample_results.make_stored_portion(0, 2),))
    silent = dataclasses.replace(sample_results.make_result("mesh-degrees", experiment), verdicts=few.verdicts[1:])
    for made, said in ((few, ": 3 seeds, of 100 asked for."), (silent, ": no verdict on BL, degree 2.")):
        top = Reader(results_page.render_page([made])).words.split("Experiments")[0]
        assert f"Counted with reservationsmesh-degrees{said}" in top
    assert (
        "reservations"
        not in Reader(results_page.render_page([sample_results.make_result("mesh-degrees", experiment)])).words
    )


def test_numbers_of_our_own_are_not_called_published() -> None:
    text = re.sub(r"(?m)^place = .*\nrounding = .*$", 'run = "a prototype"', sample_results.DEGREES)
    own = parse_experiment(text.replace("[[published]]", "[[earlier]]").encode(), "own")
    words = Reader(results_page.render_page([sample_results.make_result("own", own)])).words
    assert "4 numbers of an earlier run and 1 check of our own, held against what came out of 1 experiment." in words


def test_a_miss_that_nobody_expected_is_not_explained_away() -> None:
    text = sample_results.DEGREES.replace('expect = "not reproduced"\n', "")
    text = re.sub(r'(?m)^why = "A small world.*"$', "", text)
    words = Reader(
        results_page.render_page([sample_results.make_result("x", parse_experiment(text.encode(), "x"))])
    ).words
    assert "This was expected to be otherwise (fits)." in words
    assert "expected: fits" in words


def test_a_number_that_fits_against_expectation_is_news_too(reader: Reader) -> None:
    assert "Better than expectedPF, degree 16: published 0.787" in reader.words


def test_a_sweep_without_scores_has_no_empty_figures() -> None:
    made = sample_results.make_result(
        "mesh-games", sample_results.make_experiments()["mesh-games"], status="running", stored=()
    )
    begun = StoredResult(made.name, made.experiment, made.manifest, ScoreTable([]), ())
    read = Reader(results_page.render_page([begun]))
    assert "No values yet." in read.words
    assert "the sweep is incomplete: 0 seeds stored" in read.words
    assert "plot" not in read.all("class")


def test_nothing_is_fetched_and_only_the_scripts_of_the_page_run(reader: Reader) -> None:
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    assert not {"src", "srcset"} & {name for name, _ in reader.attributes}
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    text = results_page.render_page(sample_results.make_results())
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert len(scripts) == 2
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert reader.all("content")[0] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-eval' {allowed}"
    )
    written = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "url(" not in written
    assert "@import" not in written


def test_a_page_without_figures_has_no_script() -> None:
    assert "<script" not in results_page.render_page([])


def test_links_lead_to_the_page_itself_or_to_the_files_beside_it(tmp_path: Path, reader: Reader) -> None:
    results_page.publish_results(sample_results.make_results(), tmp_path / "report.html")
    for link in reader.all("href"):
        assert link[1:] in reader.all("id") if link.startswith("#") else (tmp_path / link).is_file()


def test_headings_come_in_their_order(reader: Reader) -> None:
    levels = [int(tag[1]) for tag in reader.order if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_unique(reader: Reader) -> None:
    assert max(Counter(reader.all("id")).values()) == 1


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    made = sample_results.make_result("../" + HOSTILE, hostile())
    results_page.publish_results([made], tmp_path / "out" / "report.html")
    read = Reader((tmp_path / "out" / "report.html").read_text())
    assert "img" not in read.tags
    assert read.tags["script"] == 2 + len(made.experiment.figures)
    assert read.words.count("<script>alert(1)</script>") > 10
    assert "\x07" not in read.words
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert [str(path.parent) for path in files] == ["out/figures", "out/figures", "out/figures", "out"]


def test_a_directory_of_results_becomes_a_page_with_its_figures_as_files(tmp_path: Path) -> None:
    for name, experiment in sample_results.make_experiments().items():
        sample_results.write_result(tmp_path, name, experiment)
    path = results_page.write_report([LocalDirectory(tmp_path)])
    assert path == tmp_path / "report.html"
    assert Reader(path.read_text()).tags["figure"] == 4
    elsewhere = results_page.write_report([LocalDirectory(tmp_path)], tmp_path / "sub" / "page.html")
    assert elsewhere.read_text() == path.read_text()
    names = sorted(path.name for path in (tmp_path / "sub" / "figures").iterdir())
    assert names[:2] == ["mesh-degrees-accuracy.csv", "mesh-degrees-accuracy.json"]
    assert len(names) == 12


def test_the_numbers_of_a_figure_are_in_its_csv_unrounded(tmp_path: Path) -> None:
    (made,) = [result for result in sample_results.make_results() if result.name == "mesh-degrees"]
    results_page.publish_results([made], tmp_path / "report.html")
    with (tmp_path / "figures" / "mesh-degrees-accuracy.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert Counter(row["kind"] for row in rows) == {"reproduced": 32, "published": 4}
    score = made.scores.steps("BL degree=16", "leaf", "accuracy_all")[0.0]
    (ours,) = [row for row in rows if row["curve"] == "BL" and row["x"] == "16.0" and row["kind"] == "reproduced"]
    assert (float(ours["y"]), float(ours["low"]), float(ours["high"])) == (score.value, score.low, score.high)
    assert [row["y"] for row in rows if row["what"] == "BL, degree 16"] == ["0.988"]


def test_an_experiment_by_models_and_by_machines_is_drawn_once_with_both(tmp_path: Path) -> None:
    experiment = sample_results.make_experiments()["mesh-degrees"]
    both = [sample_results.make_result("mesh-degrees", experiment, engine=engine) for engine in ("machines", "kernel")]
    (combined,) = results.combine_engines(both)
    assert (combined.manifest.engine, combined.beside[0].manifest.engine) == ("kernel", "machines")
    read = Reader(results_page.render_page([combined]))
    assert read.tags["figure"] == 1
    assert "By the machines" in read.words
    assert "10 published numbers and 2 checks of our own" not in read.words
    assert "8 published numbers and 2 checks of our own" in read.words
    results_page.publish_results([combined], tmp_path / "report.html")
    with (tmp_path / "figures" / "mesh-degrees-accuracy.csv").open(newline="") as file:
        drawn = {row["curve"] for row in csv.DictReader(file)}
    assert {"BL", "BL, machines"} <= drawn
    with pytest.raises(ConfigError, match="mesh-degrees by the same engine"):
        results.combine_engines([both[0], both[0]])


def test_two_figures_of_one_name_are_refused(tmp_path: Path) -> None:
    one = parse_experiment(sample_results.SIZES.replace('name = "messages"', 'name = "b-c"').encode(), "a")
    other = parse_experiment(sample_results.SIZES.replace('name = "messages"', 'name = "c"').encode(), "a-b")
    with pytest.raises(ConfigError, match=r"figures/a-b-c\.csv"):
        results_page.publish_results(
            [sample_results.make_result("a", one), sample_results.make_result("a-b", other)], tmp_path / "report.html"
        )


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot make"):
        results_page.publish_results(sample_results.make_results(), tmp_path / "file" / "report.html")
