"""`veilcast brokers ...`: keys and descriptions are made once and printed correctly, and errors take one line with
their exit code, before anything runs."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from veilcast.authority import issuer
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import TlsRole, derive_broker_key
from veilcast.authority.secret_file import read_secret, replace_file, write_secret
from veilcast.brokers.operations.signed_facts import sign_facts
from veilcast.cli.context import Context
from veilcast.cli.files import passphrase_file
from veilcast.cli.main import main
from veilcast.cli.phrases import pluralize
from veilcast.crypto.passphrase import PassphraseCost
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import SigningKey
from veilcast.node.broker_overlay import decode_broker_line, decode_operator_line, read_signed
from veilcast.node.config import parse_config

CHEAP = PassphraseCost(1, 1)
SECRET = Secret(b"correct horse")
CONTEXT = Context(cost=CHEAP, has_terminal=lambda: False, warn=lambda _: None)
HOUR_US = 3_600_000_000


class CommandRunner:
    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys
        self._authority = issuer.create(HOUR_US, os.urandom)

    def grant(self, name: str, standing: TlsRole) -> None:
        now, path = epoch_of(CONTEXT.now_us(), HOUR_US), self.home / f"{name}.keys"
        self._authority, keyring = issuer.grant_ready(self._authority, name, [], now, 3, os.urandom, standing)
        write_secret(path, keyring, SECRET, cost=CHEAP, entropy=os.urandom)
        replace_file(passphrase_file(path), SECRET.reveal())

    def run(self, command: str, *more: str) -> tuple[int, str, str]:
        code = main([*command.split(), *more], CONTEXT)
        out, err = self._capsys.readouterr()
        return code, out, err

    def good(self, command: str, *more: str) -> Any:
        code, out, err = self.run(command, *more, "--json")
        assert code == 0, err
        return json.loads(out)

    def bad(self, command: str, code: int, *said: str) -> None:
        told, out, err = self.run(command)
        assert (told, out) == (code, ""), err
        assert len(err.strip().splitlines()) == 1
        for words in said:
            assert words in err

    def described(self, replicas: int, links: str = "[]", nodes: tuple[str, ...] = ("north",)) -> Path:
        """Return a description with a broker for each replica."""
        text = f"links = {links}\n"
        for at, name in enumerate(nodes):
            text += f'[[nodes]]\nname = "{name}"\nreplicas = [\n'
            for index in range(replicas):
                broker = f"{name}{index}"
                if not (self.home / f"{broker}.keys").exists():
                    self.grant(broker, "broker")
                line = self.good(f"brokers init --keyring {broker}.keys")["broker"]
                text += f'{{ broker = "{line}", address = "127.0.0.{1 + at}:{4200 + index}" }},\n'
            text += "]\n"
        path = self.home / "overlay.toml"
        path.write_text(text)
        return path


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("veilcast.net.log.set_up", lambda *_: None)
    return CommandRunner(tmp_path, capsys)


def test_from_the_operators_key_to_a_signed_overlay_and_the_next(runner: CommandRunner) -> None:
    told = runner.good("brokers overlay init operator.key")
    assert (runner.home / "operator.key").stat().st_mode & 0o077 == 0
    operator = decode_operator_line("operator", told["operator"])
    runner.described(3)
    first = runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    assert (first["version"], first["nodes"][0]["scheme"], len(first["nodes"][0]["replicas"])) == (1, 1, 3)
    runner.described(5)
    second = runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    assert (second["version"], second["nodes"][0]["scheme"], len(second["nodes"][0]["replicas"])) == (2, 2, 5)
    assert read_signed(runner.home / "o.signed", operator).verify(operator).version == 2
    shown = runner.good("brokers overlay show o.signed --operator", told["operator"])
    assert {**shown, "out": "o.signed", "operator": told["operator"]} == second
    assert runner.good("brokers overlay show o.signed --operator", f'operator = "{told["operator"]}"') == shown
    _, out, _ = runner.run("brokers overlay show o.signed --operator", told["operator"])
    assert out.splitlines()[:2] == ["version 2 (hardened): 1 virtual node, 5 replicas", "  north: scheme 2"]


def test_a_brokers_line_is_that_of_its_keyring(runner: CommandRunner) -> None:
    runner.grant("bruno", "broker")
    line = runner.good("brokers init --keyring bruno.keys")["broker"]
    assert decode_broker_line("broker", line).tls_name.startswith("broker:")
    assert runner.run("brokers init --keyring bruno.keys")[1].splitlines()[1] == f'broker = "{line}"'
    runner.grant("max", "member")
    runner.bad("brokers init --keyring max.keys", 11, "the keyring is for a member, not for a broker")


@pytest.mark.parametrize(
    ("replicas", "nodes", "links", "reason"),
    [
        (4, ("north",), "[]", "an even node tolerates no more Byzantine replicas than one of 3"),
        (1, ("north",), "[]", "with fewer, one Byzantine replica reads or stops everything"),
        (3, ("a", "b", "c"), '[["a","b"],["b","c"],["c","a"]]', "the links make a cycle"),
        (3, ("a", "b"), "[]", "there is a gap in the overlay"),
    ],
)
def test_an_overlay_that_could_not_keep_a_secret_is_not_signed(
    replicas: int, nodes: tuple[str, ...], links: str, reason: str, runner: CommandRunner
) -> None:
    runner.good("brokers overlay init operator.key")
    runner.described(replicas, links, nodes)
    runner.bad("brokers overlay sign overlay.toml --key operator.key --out o.signed", 3, "overlay.toml: ", reason)
    assert not (runner.home / "o.signed").exists()


def test_a_key_is_never_written_over_and_nothing_is_advised_that_there_is_not(runner: CommandRunner) -> None:
    runner.good("brokers overlay init operator.key")
    before = (runner.home / "operator.key").read_bytes()
    _, _, err = runner.run("brokers overlay init operator.key")
    assert err == "veilcast: operator.key is there already; choose another name\n"
    runner.bad("brokers overlay init .", 4, ". is a directory; choose another name")
    assert (runner.home / "operator.key").read_bytes() == before


def test_only_the_same_operator_can_sign_a_successor(runner: CommandRunner) -> None:
    runner.good("brokers overlay init operator.key")
    other = runner.good("brokers overlay init other.key")["operator"]
    runner.described(3)
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    before = (runner.home / "o.signed").read_bytes()
    runner.bad("brokers overlay sign overlay.toml --key other.key --out o.signed", 12, "not signed by this operator")
    runner.bad(f"brokers overlay show o.signed --operator {other}", 12, "not signed by this operator")
    runner.bad("brokers overlay show o.signed --operator nonsense", 3, "--operator: not the line")
    assert (runner.home / "o.signed").read_bytes() == before


def test_an_overlay_that_running_brokers_would_reject_is_not_signed(runner: CommandRunner) -> None:
    runner.good("brokers overlay init operator.key")
    runner.described(3, '[["a","b"],["b","c"]]', ("a", "b", "c"))
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    before, first = (runner.home / "o.signed").read_bytes(), (runner.home / "overlay.toml").read_text()
    sign = "brokers overlay sign overlay.toml --key operator.key"
    (runner.home / "overlay.toml").write_text(first.replace('["b","c"]', '["a","c"]'))
    runner.bad(f"{sign} --out o.signed", 3, "by version 1 would not take this", "changes replicas, and not the tree")
    assert (runner.home / "o.signed").read_bytes() == before
    assert runner.good(f"{sign} --out other.signed")["version"] == 1


def test_a_broker_reports_bad_inputs_before_it_runs(runner: CommandRunner) -> None:
    operator = runner.good("brokers overlay init operator.key")["operator"]
    runner.described(3)
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    runner.grant("stranger", "broker")
    runner.grant("max", "member")

    def file(keyring: str, overlay: str = "o.signed", more: str = "") -> None:
        text = f'keyring = "{keyring}"\nlisten = "127.0.0.1:4200"\noverlay = "{overlay}"\noperator = "{operator}"\n'
        (runner.home / "broker.toml").write_text(text + more)

    hint = "No such file or directory; is the name right? -c FILE names another"
    runner.bad("brokers run", 3, f"cannot read broker.toml: {hint}")
    runner.bad("brokers run -c missing.toml", 3, f"cannot read missing.toml: {hint}")
    file("stranger.keys")
    runner.bad("brokers run", 3, "o.signed does not have this broker")
    file("max.keys")
    runner.bad("brokers run", 11, "the keyring is for a member, not for a broker")
    file("north0.keys", "none.signed")
    runner.bad("brokers run", 4, "cannot read")
    file("north0.keys", more="[brokers]\nbound_us = 0\n")
    runner.bad("brokers run", 3, "broker.toml: brokers.bound_us must be at least 1")
    file("north0.keys", more='profile = "paper"\n')
    runner.bad("brokers run", 3, 'o.signed is of the profile "hardened"', 'say profile = "hardened"')
    file("north0.keys", more='[brokers]\nstrategy = "two"\n')
    runner.bad("brokers run", 3, "broker.toml: brokers.strategy: 'two' is none of ")
    file("north0.keys", more='mode = "brokers"\n')
    runner.bad("brokers run", 3, "a file with a mode is a member's, which `veilcast node run` runs")
    file("north0.keys")
    runner.bad("node run -c broker.toml", 3, "this is a broker's file, which `veilcast brokers run` runs")
    runner.bad("brokers init --keyring operator.key", 7, "or it is another kind of file")
    sign = "brokers overlay sign overlay.toml --key north0.keys --out o.signed"
    runner.bad(sign, 7, "north0.keys: ", "or it is another kind of file")
    runner.bad("brokers status", 14, "is it running?")
    runner.bad("brokers order o.signed", 14, "is it running?")


def test_a_file_that_is_not_there_is_named_before_a_passphrase_is_asked_for(runner: CommandRunner) -> None:
    runner.bad("brokers init --keyring none.keys", 4, "cannot read none.keys")
    runner.bad("brokers overlay sign overlay.toml --key none.key --out o.signed", 4, "cannot read none.key")


def test_a_new_file_for_a_member_is_one_that_can_be_read_and_lacks_nothing(runner: CommandRunner) -> None:
    operator = runner.good("brokers overlay init operator.key")["operator"]
    new = "node new --keyring max.keys --overlay o.signed --edge north"
    text = runner.good(f"{new} --operator {operator}")["node.toml"]
    assert [way.edge for way in parse_config(text.encode(), runner.home / "node.toml").settings.ways] == ["north"]
    other = f"--overlay p.signed --operator {operator} --edge west"
    text = runner.good(f"{new} --operator {operator} {other}")["node.toml"]
    ways = parse_config(text.encode(), runner.home / "node.toml").settings.ways
    assert [(Path(way.overlay).name, way.edge) for way in ways] == [("o.signed", "north"), ("p.signed", "west")]
    printed = runner.good(f"{new} --operator", f'operator = "{operator}"')["node.toml"]
    assert printed == runner.good(f"{new} --operator {operator}")["node.toml"]
    runner.bad(new, 3, "--overlay, --operator and --edge are all needed")
    runner.bad(f"{new} --operator {operator} --edge west", 3, "each once for each path")
    runner.bad(f"{new} --operator nonsense", 3, "brokers.operator: not the line")


UP = """
links = [["a", "b"]]
[[nodes]]
name = "a"
[[nodes]]
name = "b"
[[members]]
edge = "a"
role = "publisher"
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "a"', 'name = "a"\nreplicas = 4', "an even node tolerates no more Byzantine replicas than one of 3"),
        ('name = "a"', 'name = "a"\nreplicas = 1', "with fewer, one Byzantine replica reads or stops everything"),
        ('name = "a"', 'name = "a"\nreplicas = 99', "1 to 15 replicas on one machine"),
        ('name = "a"', 'name = "../a"', "a name has small letters and digits"),
        ('name = "a"', 'name = "a"\nbyzantine = ["sing"]', "byzantine is one of drop, "),
        ('name = "b"', 'name = "b"\nbyzantine = ["drop", "drop", "drop", "drop"]', "more should lie"),
        ('links = [["a", "b"]]', "", "there is a gap in the overlay"),
        ('links = [["a", "b"]]', 'links = [["a", "b"], ["b", "a"]]', "links[1]: links[0] links 'b' and 'a' already"),
        ('links = [["a", "b"]]', 'links = [["a", "a"]]', "links[0]: 'a' is linked to itself"),
        ('name = "b"', 'name = "a"', "two virtual nodes have one name"),
        ('edge = "a"', 'edge = "z"', "a member's edge is 'z'"),
        ('role = "publisher"', 'role = "king"', "members[0].role: 'king' is none of publisher, subscriber"),
        ('links = [["a", "b"]]', 'links = [["a", "b"]]\nepoch = 1', "up.toml: epoch must be at least"),
        ('links = [["a", "b"]]', 'links = [["a", "b"]]\nspare = 99', "spare: 0 to 15 brokers"),
        ('links = [["a", "b"]]', 'links = [["a", "b"]]\nspare = 200000', "spare: 0 to 15 brokers"),
        ("[[members]]", "[[guests]]", "guests: unknown key"),
        ('links = [["a"', "links = [[", "not a TOML file"),
    ],
)
def test_a_whole_overlay_is_refused_with_the_reason_and_leaves_nothing(
    old: str, new: str, reason: str, runner: CommandRunner
) -> None:
    assert old in UP
    (runner.home / "up.toml").write_text(UP.replace(old, new, 1))
    runner.bad("brokers overlay up up.toml", 3, "up.toml: ", reason)
    assert [path.name for path in runner.home.iterdir()] == ["up.toml"]


def test_more_members_than_loopback_has_addresses_are_refused(runner: CommandRunner) -> None:
    runner.bad("net up 245 --mode brokers", 3, "3 to 241 nodes")


def test_more_brokers_than_loopback_has_addresses_are_refused_by_their_number(runner: CommandRunner) -> None:
    names = [f"n{number}" for number in range(17)]
    links = ", ".join(f'["{one}", "{other}"]' for one, other in pairwise(names))
    nodes = "".join(f'[[nodes]]\nname = "{name}"\nreplicas = 15\n' for name in names)
    member = '[[members]]\nedge = "n0"\nrole = "publisher"\n'
    (runner.home / "up.toml").write_text(f"links = [{links}]\n{nodes}{member}")
    runner.bad("brokers overlay up up.toml", 3, "255 brokers are too many for one machine", "take fewer")


def facts(
    node: str, index: int, *marks: tuple[str, int], proof: bool = True, count: int = 2, observed: int = 100
) -> dict[str, Any]:
    """What the broker of this place reports, with its signature; the files of its keyring are in the directory."""
    told = [
        {"node": to, "index": at, "scheme": 1, "count": count, "proof": proof, "reason": "lied"} for to, at in marks
    ]
    said = {"node": node, "index": index, "marks": told, "observed": observed, "version": 1, "at_us": observed}
    return sign_facts(said, signing_of(f"{node}{index - 1}"))


def signing_of(broker: str) -> SigningKey:
    return derive_broker_key(read_secret(Path(f"{broker}.keys"), Keyring, SECRET).membership.link)


@pytest.fixture
def planned(runner: CommandRunner) -> CommandRunner:
    """Two virtual nodes of three; a's third replica was caught by two of b, and one of b slanders a's first."""
    operator = runner.good("brokers overlay init operator.key")["operator"]
    runner.described(3, '[["a","b"]]', ("a", "b"))
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    told = {f"{node}{at}": facts(node, at) for node in "ab" for at in (1, 2, 3)}
    told["b1"], told["b2"] = facts("b", 1, ("a", 3)), facts("b", 2, ("a", 3))
    told["b3"] = facts("b", 3, ("a", 1), ("a", 2))
    (runner.home / "facts.json").write_text(json.dumps({"brokers": {**told, "c1": None}}))
    (runner.home / "operator").write_text(operator)
    return runner


def plan(runner: CommandRunner, more: str = "", files: str = "facts.json") -> str:
    return f"brokers plan {files} --overlay o.signed --operator {(runner.home / 'operator').read_text()} {more}"


def test_a_plan_uses_facts_that_more_replicas_report_than_may_lie(planned: CommandRunner) -> None:
    made = planned.good(plan(planned, "--spare 3"))
    assert made["liars"] == ["replica 3 of a"]
    assert {row["node"]: row["planned"] for row in made["nodes"]} == {"a": 5, "b": 3}
    assert (made["unused"], made["unprotected"], made["applied"]) == (0, [], False)
    assert made["silent"] == []
    assert planned.good(plan(planned, "--spare 3 --move")) == made, "no node has more than it must"
    lines = planned.run(plan(planned, "--spare 3"))[1].splitlines()
    assert lines[1].startswith("  a: 3 replicas, planned 5, risk 0.0")
    assert "  proven to lie: replica 3 of a" in lines
    assert lines[-1].startswith("to carry it out, change overlay.toml")


def test_facts_of_brokers_whose_files_have_one_name_are_all_heard(planned: CommandRunner) -> None:
    told, whole = json.loads((planned.home / "facts.json").read_text())["brokers"], planned.good(plan(planned))
    for name in told:
        (planned.home / f"{name}.json").write_text(json.dumps({"brokers": {"broker.toml": told[name]}}))
    assert planned.good(plan(planned, files=" ".join(f"{name}.json" for name in told))) == whole
    assert whole["liars"] == ["replica 3 of a"]


def test_facts_in_the_name_of_another_replica_are_refused(planned: CommandRunner) -> None:
    (planned.home / "forged.json").write_text(json.dumps({"brokers": {"broker.toml": facts("b", 2, ("a", 1))}}))
    planned.bad(plan(planned, files="facts.json forged.json"), 3, "2 reports are of replica 2 of b")
    told = json.loads((planned.home / "facts.json").read_text())["brokers"]
    changes: list[dict[str, Any]] = [
        {"observed": 101},
        {"index": 1},
        {"signature": "00"},
        {"signature": None},
        {"marks": []},
    ]
    for change in changes:
        said = {"brokers": {"broker.toml": told["b2"] | change}}
        (planned.home / "forged.json").write_text(json.dumps(said))
        whose = f"replica {change.get('index', 2)} of b"
        planned.bad(plan(planned, files="forged.json"), 3, f"forged.json: the broker that is {whose} has not signed")


def test_only_failures_after_the_earlier_reports_count_and_proofs_do_not_become_old(planned: CommandRunner) -> None:
    def write(file: str, late: int, observed: int, *, proven: bool = True) -> None:
        told = {f"{node}{at}": facts(node, at, observed=observed) for node in "ab" for at in (1, 2, 3)}
        for at in (1, 2, 3):
            told[f"b{at}"] = facts(
                "b", at, *[("a", at) for at in (1, 2, 3)], proof=False, count=late, observed=observed
            )
        (planned.home / file).write_text(json.dumps({"brokers": told}))

    def risk(more: str = "") -> float:
        return float(planned.good(plan(planned, more, files="new.json"))["nodes"][0]["risk"])

    write("old.json", 40, 100)
    write("new.json", 42, 300)
    assert risk() == pytest.approx(42.5 / 301)
    assert risk("--since old.json") == pytest.approx(2.5 / 201)
    planned.bad(plan(planned, "--since new.json", files="old.json"), 3, "is later than its report in FACTS")
    planned.bad("brokers plan --dir here --since old.json", 3, "--since go with FACTS")
    assert planned.good(plan(planned, "--since facts.json"))["liars"] == ["replica 3 of a"]
    write("new.json", 3, 300)
    assert risk("--since old.json") == pytest.approx(0.5 / 201), "fewer than before: it was started anew"


def test_replicas_go_to_the_paths_that_the_operator_names_by_their_weights(runner: CommandRunner) -> None:
    operator = runner.good("brokers overlay init operator.key")["operator"]
    runner.described(3, '[["a","b"],["b","c"]]', ("a", "b", "c"))
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    told = {f"{node}{at}": facts(node, at) for node in "abc" for at in (1, 2, 3)}
    (runner.home / "facts.json").write_text(json.dumps({"brokers": told}))
    (runner.home / "operator").write_text(operator)

    def planned_sizes(*lines: str) -> list[int]:
        (runner.home / "paths.csv").write_text("\n".join(lines))
        return [row["planned"] for row in runner.good(plan(runner, "--spare 2 --paths paths.csv"))["nodes"]]

    assert planned_sizes("from,to", "c,c") == [3, 3, 5]
    assert planned_sizes("from,to", "a,a") == [5, 3, 3]
    assert planned_sizes("from,to,weight", "a,a,1/3", "c,c,0.5", "a,b,0") == [3, 3, 5]
    assert planned_sizes("from,to,weight", "a,b,2", "b,c,1") == [3, 5, 3]
    for text, reason in (
        ("", "the first line is from,to or from,to,weight"),
        ("from,to,cost\na,b,1", "the first line is from,to or from,to,weight"),
        ("from,to\na,d", "line 2: the overlay has no node 'd', only a, b, c"),
        ("from,to\na,b\nb,a", "line 3: the path between b and a is there already"),
        ("from,to,weight\na,b", "line 2: a line has as many fields as the first"),
        ("from,to\na,b,1", "line 2: a line has as many fields as the first"),
        ("from,to,weight\na,b,-1", "line 2: '-1' is no weight"),
        ("from,to,weight\na,b,1e999999", "line 2: '1e999999' is no weight"),
        ("from,to,weight\na,b,0", "has no path with a weight above 0"),
    ):
        (runner.home / "paths.csv").write_text(text)
        runner.bad(plan(runner, "--paths paths.csv"), 3, "paths.csv", reason)
    (runner.home / "paths.csv").write_bytes(b"\xff")
    runner.bad(plan(runner, "--paths paths.csv"), 3, "paths.csv is not a CSV file")
    runner.bad(plan(runner, "--paths nowhere.csv"), 4, "nowhere.csv")


def test_a_plan_says_that_there_is_nothing_to_do_only_if_there_is_nothing(planned: CommandRunner) -> None:
    told = {f"{node}{at}": facts(node, at) for node in "ab" for at in (1, 2, 3)}
    (planned.home / "facts.json").write_text(json.dumps({"brokers": told}))
    assert planned.run(plan(planned))[1].splitlines()[-1] == "  nothing to do: all stands as planned"
    assert "nothing to do" not in planned.run(plan(planned, "--spare 2"))[1]


def test_the_singular_has_no_s(runner: CommandRunner) -> None:
    assert [pluralize(number, "process") for number in (0, 1, 2)] == ["0 processes", "1 process", "2 processes"]
    operator = runner.good("brokers overlay init operator.key")["operator"]
    runner.described(3)
    runner.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    told = {f"north{at}": facts("north", at) for at in (1, 2, 3)}
    (runner.home / "facts.json").write_text(json.dumps({"brokers": told}))
    (runner.home / "operator").write_text(operator)
    first = runner.run(plan(runner, "--spare 1"))[1].splitlines()[0]
    assert first == "1 virtual node, 1 replica to spare after the plan"


def test_a_plan_for_more_replicas_than_there_are_is_refused_with_the_reason(planned: CommandRunner) -> None:
    planned.bad(plan(planned, "--replicas 4"), 3, "asks for 4 replicas besides those that nodes keep, and there are 0")
    planned.bad(plan(planned, "--spare 3 --replicas 3"), 3, "asks for 3 replicas", "and there are 2")


def test_the_papers_plans_say_which_paths_they_leave_unprotected_and_hardened_refuses_even_nodes(
    planned: CommandRunner,
) -> None:
    planned.bad(plan(planned, "--way phases"), 3, "of the plan has ", "`pairs` for both profiles")
    described = planned.home / "overlay.toml"
    described.write_text('profile = "paper"\n' + described.read_text())
    (planned.home / "o.signed").unlink()
    planned.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    planned.bad(plan(planned, "--move"), 3, "plans for `paper` move replicas in any case")
    made = planned.good(plan(planned, "--way phases"))
    assert sum(row["planned"] for row in made["nodes"]) + made["unused"] == 6
    assert made["unprotected"] == ["a - b"]


def test_facts_of_another_overlay_version_are_refused(planned: CommandRunner) -> None:
    planned.good("brokers overlay sign overlay.toml --key operator.key --out o.signed")
    planned.bad(plan(planned), 3, "facts.json was told under version 1 of the overlay, and o.signed is version 2")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"brokers": 3}', '{"brokers": {"a": {"node": "a"}}}'])
def test_facts_that_are_no_broker_output_are_refused(text: str, planned: CommandRunner) -> None:
    (planned.home / "facts.json").write_text(text)
    planned.bad(plan(planned), 3, "facts.json is not what `veilcast brokers status --json` printed")


def test_a_plan_needs_to_know_of_whom(planned: CommandRunner) -> None:
    planned.bad("brokers plan", 3, "name --dir, for an overlay on this machine, or files of FACTS")
    planned.bad("brokers plan facts.json", 3, "with FACTS, --overlay and --operator are needed")
    planned.bad(plan(planned, "--apply"), 3, "--apply goes with --dir")
    planned.bad(plan(planned, "--spare -1"), 3, "--spare")
    planned.bad(plan(planned, "--cap -1"), 3, "--cap")
    planned.bad("brokers plan --dir nowhere --spare 2", 3, "--spare and --since go with FACTS")
    planned.bad("brokers plan --dir nowhere", 4, "holds no network")
    planned.bad("brokers status --dir nowhere", 4, "holds no network")
