"""`veilcast foil ...` without a broker: the broker's view, and one line for each error."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from random import Random

import msgspec
import pytest

from support.value_series import meter, prices, sensor
from veilcast.cli.context import Context
from veilcast.cli.foil import _event, with_linger
from veilcast.cli.foil_check import check_in_background
from veilcast.cli.local.network import NetworkPlan, lay_out, node_file
from veilcast.cli.main import main
from veilcast.errors import ConfigError
from veilcast.foil.config import AttributeConfig, FoilConfig
from veilcast.machine import Address, Publication
from veilcast.node.config import load_config, parse_config
from veilcast.node.foil import FoilSettings
from veilcast.topics import Label, Reals, Schema, Strings


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments), Context(has_terminal=lambda: False))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("veilcast.net.log.set_up", lambda *_: None)
    (tmp_path / "series.csv").write_text("minute,price\n" + "".join(f"{n},{500 + n % 7}\n" for n in range(40)))
    return tmp_path


@pytest.mark.parametrize("options", [[], ["--profile", "paper", "--deviation", "2"], ["--public-after", "15"]])
def test_the_broker_sees_the_true_value_among_fakes_without_its_position(
    options: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show = ["foil", "show", "series.csv", "price", "--domain", "0..1000", "--fakes", "3", "--steps", "30", *options]
    code, out, _ = run(capsys, *show, "--json")
    found = json.loads(out)
    assert (code, len(found["candidates"]), set(found)) == (0, 30, {"candidates"})
    found = json.loads(run(capsys, *show, "--json", "--truth")[1])
    assert all(len(each) == 4 for each in found["candidates"])
    for number, (candidates, place) in enumerate(zip(found["candidates"], found["truth"], strict=True)):
        assert candidates[place] == pytest.approx(500 + number % 7, abs=1000 / 2**16)
    assert len(set(found["truth"])) > 1, "the order is a new one each time"


def test_a_domain_may_begin_below_zero(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "cold.csv").write_text("temp\n-19.5\n-3\n12\n")
    code, out, err = run(capsys, "foil", "show", "cold.csv", "temp", "--domain", "-20..60", "--json", "--truth")
    assert (code, err) == (0, "")
    found = json.loads(out)
    true = [candidates[place] for candidates, place in zip(found["candidates"], found["truth"], strict=True)]
    assert true == pytest.approx([-19.5, -3, 12], abs=80 / 2**16)


def test_a_members_file_decides_what_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "node.toml").write_text(
        'mode = "foil"\nkeyring = "k"\n[foil]\nbroker = "mqtt://127.0.0.1:1883"\nhistory = "past.csv"\nk_p = 2\n'
    )
    grown = meter(1, 400).values
    write_series(home / "past.csv", grown[:300])
    write_series(home / "next.csv", grown[300:])
    _, out, _ = run(
        capsys, "foil", "show", "next.csv", "price", "--domain", "0..8192", "-c", "node.toml", "--json", "--truth"
    )
    found = json.loads(out)["candidates"]
    assert {len(each) for each in found} == {3}
    assert [sorted(each) for each in found] == sorted(sorted(each) for each in found), "all candidates only grow"


def test_the_picture_has_a_column_for_each_event_and_marks_the_truth_on_request(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show = ["foil", "show", "series.csv", "price", "--domain", "0..1000"]
    assert "*" not in run(capsys, *show)[1]
    picture = run(capsys, *show, "--truth")[1].split("\n\n")[0].splitlines()
    assert "".join(line[13:] for line in picture).count("*") == 40
    assert max(len(line) for line in picture) == 13 + 40


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["series.csv", "price", "--domain", "0..400"], None, "'price' must be a finite number from 0.0 to 400.0"),
        (["series.csv", "cost", "--domain", "0..400"], 3, "no column 'cost', only minute, price"),
        (["series.csv", "price", "--domain", "much"], 3, "write LOW..HIGH"),
        (["none.csv", "price", "--domain", "0..400"], 3, "none.csv has no value under 'price'"),
        (["nothing.csv", "price", "--domain", "0..400"], None, "cannot read nothing.csv"),
        (["gaps.csv", "price", "--domain", "0..400"], 3, "a value of 'price' is no number"),
        (["python.csv", "price", "--domain", "0..4000"], 3, "'1_000': write digits alone"),
        (["nan.csv", "price", "--domain", "0..400"], None, "must be a finite number"),
        (["series.csv", "price", "--domain", "0..1000", "--steps", "0"], 3, "--steps"),
    ],
)
def test_a_series_that_cannot_be_shown_is_reported_in_one_line(
    arguments: list[str], code: int | None, told: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "none.csv").write_text("minute,price\n")
    (home / "gaps.csv").write_text("minute,price\n0,1\n1,\n")
    (home / "python.csv").write_text("minute,price\n0,1\n1,1_000\n")
    (home / "nan.csv").write_text("minute,price\n0,1\n1,nan\n")
    found, _, err = run(capsys, "foil", "show", *arguments)
    assert (len(err.splitlines()), told in err, found > 0) == (1, True, True), err
    assert code is None or found == code


def test_a_new_file_for_foiling_is_one_that_can_be_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "node", "new", "--keyring", "k", "--broker", "mqtt://127.0.0.1:1883")
    assert (code, parse_config(out.encode(), home / "node.toml").settings.broker) == (0, "127.0.0.1:1883")
    own = parse_config(out.encode(), home / "node.toml").settings
    assert (own.member, own.history) == (FoilConfig(), None), "the template has the default, which is what is measured"
    _, out, _ = run(capsys, "node", "new", "--keyring", "k", "--broker", "mqtt://127.0.0.1:1883", "--history", "a.csv")
    assert parse_config(out.encode(), home / "node.toml").settings.history == str(home / "a.csv")
    code, _, err = run(capsys, "node", "new", "--keyring", "k", "--broker", "mqtt://192.0.2.1:1883")
    assert (code, "only on this machine" in err) == (3, True)
    code, _, err = run(capsys, "node", "new", "--keyring", "k", "--broker", "x", "--listen", "127.0.0.1:1")
    assert (code, "--broker, with foiling" in err) == (3, True)


def write_series(path: Path, values: Iterable[float]) -> None:
    path.write_text("price\n" + "".join(f"{value:.2f}\n" for value in values))


def test_a_series_that_the_default_hides_passes_its_check(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_series(home / "prices.csv", prices(1, 2400).values)
    check = ["foil", "check", "prices.csv", "price", "--domain", "300..700", "--bits", "15"]
    code, out, err = run(capsys, *check)
    assert (code, err) == (0, "")
    assert "1,200 values, the default settings, with the first half of the series as past values" in out
    assert "no attacker is above the bounds" in out
    assert "*" in out
    found = json.loads(run(capsys, *check, "--json")[1])
    assert (found["hides"], found["chance"], found["generator"]) == (True, 0.1, "sign-flip")
    assert {"by_slot", "shuffled", "causes", "message_bound", "value_bound"} <= set(found)
    assert run(capsys, *check, "--message-bound", "0.01")[0] in (0, 13)
    assert run(capsys, *check, "--value-bound", "0.01")[0] == 13


def test_a_series_that_the_members_settings_do_not_hide_is_refused_with_its_cause(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_series(home / "meter.csv", meter(1, 1200).values)
    (home / "node.toml").write_text(
        'mode = "foil"\nkeyring = "k"\n[foil]\nbroker = "mqtt://127.0.0.1:1883"\ngenerator = "sign-flip"\n'
    )
    check = ["foil", "check", "meter.csv", "price", "--domain", "0..8192", "-c", "node.toml"]
    code, out, _ = run(capsys, *check)
    assert code == 13
    assert "drift: the values only go up, and sign-flip does not" in out
    assert "refused: a broker can tell too often" in out
    assert json.loads(run(capsys, *check, "--json")[1])["hides"] is False


def test_a_series_that_holds_the_past_values_is_attacked_where_they_end(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the season of the fakes would begin at the wrong step."""
    values = sensor(6, 1800).values
    write_series(home / "past.csv", values[:1000])
    write_series(home / "whole.csv", values)
    write_series(home / "later.csv", values[1000:])
    (home / "node.toml").write_text(
        'mode = "foil"\nkeyring = "k"\n[foil]\nbroker = "mqtt://127.0.0.1:1883"\nhistory = "past.csv"\n'
    )
    found, heads = {}, []
    for file in ("whole.csv", "later.csv", "past.csv"):
        check = ["foil", "check", file, "price", "--domain", "0..64", "-c", "node.toml"]
        found[file] = json.loads(run(capsys, *check, "--json")[1])
        heads.append(run(capsys, *check)[1].partition(";")[0])
    assert heads == [
        "800 values, settings of node.toml, after their past values",
        "800 values, settings of node.toml",
        "500 values, settings of node.toml, with the first half of the series as past values",
    ]
    assert found["whole.csv"] == found["later.csv"]
    for each in found.values():
        assert each["shuffled"]["attackers"]["expected"]["message"] < 0.2, "fakes follow the curve, too"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["series.csv", "price", "--domain", "0..1000"], "the series has 20 values; a check needs 48 or more"),
        (["series.csv", "cost", "--domain", "0..1000"], "no column 'cost', only minute, price"),
        (["long.csv", "price", "--domain", "0..400"], "a value lies outside of the declared 0.0 to 400.0"),
        (["series.csv", "price", "--domain", "0..1000", "--windows", "1"], "--windows"),
        (["series.csv", "price", "--domain", "0..1000", "--value-bound", "2"], "--value-bound: a rate is from 0 to 1"),
        (["series.csv", "price", "--domain", "0..1000", "-c", "mesh.toml"], 'this command is for mode = "foil"'),
        (["series.csv", "price", "--domain", "0..1000", "-c", "mesh.toml", "--fakes", "3"], "-c names all settings"),
        (["series.csv", "price", "--domain", "0..1000", "--fakes", "0"], "a check needs 48 or more"),
    ],
)
def test_a_series_that_cannot_be_checked_is_reported_in_one_line(
    arguments: list[str], told: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "mesh.toml").write_text('keyring = "k"\nlisten = "127.0.0.1:4000"\n')
    write_series(home / "long.csv", prices(1, 400).values)
    code, _, err = run(capsys, "foil", "check", *arguments)
    assert (code not in (0, 13), len(err.splitlines()), told in err) == (True, 1, True), err


def test_a_check_without_the_lab_says_what_to_install(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "veilcast.lab.audit.value_check", raising=False)
    for name in [each for each in sys.modules if each.startswith(("veilcast.lab.models", "veilcast.lab.attack"))]:
        monkeypatch.delitem(sys.modules, name)
    write_series(home / "prices.csv", prices(1, 400).values)
    code, _, err = run(capsys, "foil", "check", "prices.csv", "price", "--domain", "300..700")
    assert (code, "pip install 'veilcast[lab]'" in err) == (3, True), err


def test_a_member_that_starts_with_past_values_checks_them_and_warns_of_what_a_broker_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    started = threading.Thread.start

    def start(self: threading.Thread) -> None:
        threads.append(self)
        started(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    settings = FoilSettings(Address("127.0.0.1:1883"), False, "127.0.0.1", None, None, None, FoilConfig())
    schemas, warned = [Schema((Reals("level", 0, 8192, 16), Strings("kind")))], list[str]()
    check_in_background(settings, schemas, warned.append)
    assert not threads, "no past values, nothing to check"
    assert warned == [
        'level has no past values: its fakes hide neither a season nor a trend; see "history" under [foil]'
    ]
    grown = AttributeConfig(history=tuple(meter(1, 1200).values.tolist()))
    for attribute in (grown, msgspec.structs.replace(grown, generator="sign-flip")):
        member = FoilConfig(attributes={"level": attribute, "unknown": grown})
        warned.clear()
        check_in_background(msgspec.structs.replace(settings, member=member), schemas, warned.append)
        threads.pop().join()
    assert "a broker can tell level: of the past, the true message is named in" in warned[0]
    assert any(line.startswith("level: the values only go up") for line in warned)


def test_a_publication_needs_exactly_one_source(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "mesh.toml").write_text('keyring = "k"\nlisten = "127.0.0.1:4000"\n')
    for arguments, told in (
        (["publish", "t"], "-m TEXT, --value NAME=VALUE, or --csv FILE"),
        (["publish", "t", "--csv", "-", "-m", "x"], "leave -m and --value away"),
        (["publish", "t", "-m", "x"], "there is no node.toml"),
        (["publish", "t", "-m", "x", "-c", "mesh.toml"], 'this command is for mode = "foil"'),
        (["subscribe"], "name a TOPIC"),
        (["subscribe", "t", "--count", "0"], "--count"),
    ):
        code, _, err = run(capsys, "foil", *arguments)
        assert (code, len(err.splitlines()), told in err) == (3, 1, True), err


def test_numbers_in_a_table_are_digits_and_an_empty_field_leaves_its_attribute_away() -> None:
    label = Label("t")
    assert _event({"price": "512.5", "kind": "b_d", "level": "", "body": "x"}, label) == Publication(
        (label.pair, ("price", 512.5), ("kind", "b_d")), b"x"
    )
    for text in ("1_000", "1_0.5", "1_0e3"):
        with pytest.raises(ConfigError, match=f"'{text}' in the column 'price'"):
            _event({"price": text}, label)


def test_a_series_is_shown_as_finely_as_its_topic_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show = ["foil", "show", "series.csv", "price", "--domain", "0..1024", "--json"]
    _, out, _ = run(capsys, *show, "--bits", "4")
    assert {value % 64 for event in json.loads(out)["candidates"] for value in event} == {32.0}
    assert run(capsys, *show, "--bits", "17")[0] == 3


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a publisher whose broker is not there."""
    directory = tmp_path_factory.mktemp("foil") / "n"
    net = lay_out(directory, NetworkPlan(nodes=3, mode="foil", subscribers=2), Context(), Random(1))
    return node_file(directory, net.nodes_with_role("publisher")[0])


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ("price\n5000\n", 15, "'price' must be a finite number from 0.0 to 1024.0"),
        ("price\nnan\n", 15, "must be a finite number"),
        ("price\nhigh\n", 15, "must be a finite number"),
        ("price,body\n1\n", 3, "not as many fields"),
        ("prise,body\n1,x\n", 15, "declares no attribute 'prise'; did you mean 'price'? It declares price"),
        ("price,body\n,x\n", 15, "the publication lacks 'price', and the broker would see that"),
    ],
)
def test_an_invalid_publication_is_reported_in_one_line(
    given: str, code: int, told: str, publisher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = Context(read_lines=lambda: given.splitlines(keepends=True))
    found = main(["foil", "publish", "stocks/acme", "--csv", "-", "-c", str(publisher)], context)
    err = capsys.readouterr().err
    assert (found, len(err.splitlines()), told in err) == (code, 1, True), err


@pytest.mark.parametrize("values", [["--value", "prise=512"], []])
def test_one_event_with_a_misspelt_attribute_or_none_is_refused(
    values: list[str], publisher: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["foil", "publish", "stocks/acme", "-m", "hello", *values, "-c", str(publisher)], Context())
    assert code == 15
    assert "price" in capsys.readouterr().err


def test_a_publisher_that_stays_for_late_readers_repeats_for_as_long_as_it_stays(publisher: Path) -> None:
    assert with_linger(load_config(publisher), 0) == load_config(publisher)
    assert with_linger(load_config(publisher), 600).settings.member.late_us == 600_000_000
