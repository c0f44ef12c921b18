"""`veilcast audit`: exit codes for CI, one line for unreadable input, and a page that needs no network."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from support.capture_files import Pcapng, SentPacket, frame_packet, ip, pcap, write_file
from support.recorded_network import (
    PUBLISHER,
    make_probes,
    members,
    other_network,
    write_cells,
    write_loud_network,
    write_silent_network,
)
from support.ring_traffic import NODES, heartbeats, record_ring, sort_by_time
from support.waits import HANG_S
from veilcast.cli.main import main
from veilcast.observe import CellRow


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["audit", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def packets(cells: list[CellRow], ahead_us: int = 0) -> list[tuple[int, bytes]]:
    sent = [
        SentPacket(
            1_700_000_000_000_000 + each.t_us, each.src, each.dst, each.t_us.to_bytes(4, "big") + bytes(each.size - 4)
        )
        for each in cells
    ]
    return [(each.t_us + ahead_us, frame_packet(ip(each), 1)) for each in sent]


def captured(seconds: int = 4, ahead_us: int = 0, link: int = 1) -> bytes:
    """Return a capture of a network's wires, as a packet recorder writes it."""
    return pcap(packets(record_ring(1, seconds)[0], ahead_us), link)


def recorded_as(form: str, place: Path, cells: list[CellRow]) -> list[Path]:
    """The same cells as a capture, or as the taps of all nodes of the network."""
    if form == "pcap":
        return [write_file(place, pcap(packets(cells)))]
    if form == "pcapng":
        file = Pcapng().interface(1)
        for t_us, data in packets(cells):
            file.enhanced(0, t_us, data)
        return [write_file(place, file.bytes, "a.pcapng")]
    own = {node: sort_by_time([each for each in cells if node in (each.src, each.dst)]) for node in NODES}
    return [write_cells(place / node.replace(":", "-"), several) for node, several in own.items()]


def test_a_network_whose_notes_stand_out_fails_the_checks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checks = ("--fail-if", "auc>0.6", "--fail-if", "set<2", "--fail-if", "publications>99")
    code, out, _ = run(
        capsys,
        write_loud_network(tmp_path / "net"),
        "--members",
        members(tmp_path / "m.json"),
        *checks,
        "--out",
        tmp_path / "out",
    )
    assert code == 13
    assert [line for line in out.splitlines() if line.startswith("failed")] == ["failed: auc>0.6", "failed: set<2"]
    assert f"  {PUBLISHER}  score 1, confidence 1.00, among 1, rightly" in out.splitlines()
    page = (tmp_path / "out" / "audit.html").read_text()
    assert not re.search(r"https?:|<script|src=|@import", page)
    assert "auc&gt;0.6: failed" in page
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["publications"] == 38


@pytest.mark.parametrize("form", ["pcap", "pcapng", "taps"])
def test_a_broken_network_fails_though_strangers_are_in_its_capture(
    form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known, own = members(tmp_path / "m.json"), record_ring(1, 8)[0]
    foreign = [*other_network(Random(1), 8), *make_probes(Random(2), 8, NODES, cells=3)]
    checks = ("--members", known, "--fail-if", "auc>0.6", "--fail-if", "set<2", "--json")
    found = []
    for name, cells in (("alone", own), ("mixed", sort_by_time([*own, *foreign]))):
        (tmp_path / name).mkdir()
        code, out, _ = run(capsys, *recorded_as(form, tmp_path / name, cells), *checks, "--out", tmp_path / name)
        told = json.loads(out)
        found.append((code, told["found"], told["publications"], told["wire"], told["advice"], told["attackers"]))
        page = (tmp_path / name / "audit.html").read_text()
        assert "10.9.0." not in re.sub(r'<p class="notice">In doubt.*?</p>', "", page).split("How it was read")[0]
    assert found[0][0] == 13
    assert found[0][1:3] == found[1][1:3]
    assert found[0] == found[1]
    assert len(told["left_out"]["doubts"]) == 1


def test_a_check_with_a_linked_stranger_is_refused_or_made_of_the_members_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cells = [*heartbeats(Random(2), 8, 1200), *make_probes(Random(2), 8, NODES[:1], cells=1)]
    known, net = members(tmp_path / "m.json"), write_cells(tmp_path / "net", sort_by_time(cells))
    code, out, err = run(capsys, net, "--members", known, "--fail-if", "auc>0.6")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert re.search(r"the checks cannot be made: 1 node \(10\.9\.0\.\d:4000\) is not listed .*--only-members", err)
    code, out, _ = run(capsys, net, "--members", known, "--only-members", "--fail-if", "auc>0.6")
    assert code == 0
    assert "left out: 1 node outside the audited networks, 1 cell" in out.splitlines()
    code, out, _ = run(capsys, net, "--members", known)
    assert code == 0
    assert any(line.startswith("in doubt: 1 node") for line in out.splitlines())
    code, _, err = run(capsys, net, "--only-members")
    assert (code, err) == (3, "veilcast: --only-members leaves out all but the members; give --members\n")


def test_without_members_each_network_has_its_own_lines_and_its_own_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cells = sort_by_time([*record_ring(1, 8)[0], *other_network(Random(1), 8, note=1200)])
    code, out, _ = run(capsys, write_cells(tmp_path / "net", cells), "--out", tmp_path, "--fail-if", "publications>0")
    assert code == 13
    assert [line for line in out.splitlines() if line.startswith(("network", "the page", "failed"))] == [
        "network 1 of 2, with 127.1.0.1:4000:",
        "network 2 of 2, with 10.9.0.1:4000:",
        "failed: publications>0",
        f"the page: {tmp_path / 'audit.html'}",
        f"the page: {tmp_path / 'audit-2.html'}",
    ]


def test_many_files_and_their_clocks_have_one_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    taps = recorded_as("taps", tmp_path, record_ring(1, 8)[0])
    code, out, _ = run(capsys, *taps)
    assert code == 0
    before = out[: out.index("12 nodes")].splitlines()
    assert [re.sub(r"\d[\d.,]*\d|\d", "N", line) for line in before] == [
        "N files (tap): N cells",
        "N clocks corrected, by N s at most, known within N s",
        "nothing has the N bytes of a Veilcast cell: this is no traffic of ours, or that of the paper profile, whose "
        "datagrams have the size of what they carry",
        "",
    ]
    code, out, _ = run(capsys, *taps, "--json")
    assert len(json.loads(out)["reading"]["clocks"]) == 11


def test_a_silent_network_passes_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checks = ("--fail-if", "auc>0.6", "--fail-if", "set<12", "--fail-if", "named>0", "--json")
    code, out, _ = run(
        capsys, write_silent_network(tmp_path / "net"), "--members", members(tmp_path / "m.json"), *checks
    )
    assert code == 0
    assert json.loads(out)["crossed"] == []
    assert json.loads(out)["found"]["set"] == 12


def test_without_members_the_audit_prints_scores_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, write_loud_network(tmp_path / "net"), "--out", tmp_path)
    assert code == 0
    assert "scores only" in out
    assert "scores only" in (tmp_path / "audit.html").read_text()
    code, _, err = run(capsys, tmp_path / "net", "--fail-if", "auc>0.6")
    assert (code, err.count("\n")) == (3, 1)
    assert "--members" in err


def test_a_check_that_cannot_be_made_is_no_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = tmp_path / "m.csv"
    known.write_text(
        "node,role\n" + "".join(f"{node},{'publisher' if node == PUBLISHER else 'reader'}\n" for node in NODES)
    )
    code, _, err = run(capsys, write_loud_network(tmp_path / "net", 8), "--members", known, "--fail-if", "auc>0.6")
    assert (code, err.count("\n")) == (3, 1)
    assert "subscribers, and other members" in err


def test_a_place_for_the_page_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, _, err = run(capsys, tmp_path / "missing", "--out", tmp_path / "file")
    assert (code, err) == (4, f"veilcast: cannot make {tmp_path / 'file'}: File exists\n")


def test_a_capture_that_ends_early_is_read_as_far_as_it_goes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, write_file(tmp_path, captured()[:-700]))
    assert code == 0
    assert re.search(r"a\.pcap \(pcap\): [\d,]+ cells of", out)
    assert re.search(r"ends within|cut|truncated", out)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (captured(link=147), "link type"),
        (pcap([]), "holds no packets"),
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "a.pcap"),
        (b"", "a.pcap"),
    ],
)
def test_a_file_that_is_no_capture_is_reported_in_one_line(
    data: bytes, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, write_file(tmp_path, data))
    assert code in (3, 4, 7)
    assert err.count("\n") == 1
    assert said in err


def test_foreign_traffic_is_reported_as_no_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sent = [
        (number, frame_packet(ip(SentPacket(number, "10.0.0.1:53", "10.0.0.2:9", bytes(64))), 1))
        for number in range(20)
    ]
    code, out, _ = run(capsys, write_file(tmp_path, pcap(sent)))
    assert code == 0
    assert "this is no traffic of ours" in out
    assert "publishers: no attacker names any" in out


def test_clocks_that_disagree_are_set_and_it_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = write_file(tmp_path, captured()), write_file(tmp_path, captured(ahead_us=7_000_000), "b.pcap")
    code, out, _ = run(capsys, first, second, "--json")
    assert code == 0
    told = json.loads(out)
    assert [clock["ahead_us"] for clock in told["reading"]["clocks"]] == [7_000_000]
    assert told["wire"]["cells"] == len(record_ring(1, 4)[0])
    assert told["wire"]["nodes"] == len(NODES)


def test_without_the_lab_it_says_what_to_install() -> None:
    blocked = "import sys; sys.modules['numba'] = None; from veilcast.cli.main import main; sys.exit(main())"
    child = subprocess.run(
        [sys.executable, "-c", blocked, "audit", "x"], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert child.returncode == 3
    assert child.stderr.count("\n") == 1
    assert "pip install 'veilcast[lab]'" in child.stderr


def test_a_location_whose_server_is_silent_is_refused_before_anything_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, said = run(capsys, "hdfs://127.0.0.1:1/net.pcap", "--out", tmp_path / "out")
    assert code == 14
    assert len(said.splitlines()) == 1
    assert "hdfs://127.0.0.1:1/net.pcap: no server answers at 127.0.0.1:1: Connection refused" in said
    assert not (tmp_path / "out").exists()


def test_pages_are_written_to_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, said = run(capsys, write_file(tmp_path, captured()), "--out", "hdfs://namenode/out")
    assert code == 3
    assert "is no path of this machine, and pages are written there alone" in said


def test_a_wrong_setting_of_spark_is_refused_before_anything_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = run(capsys, "missing.pcap", "--conf", "spark.ui.port")
    assert code == 3
    assert "spark.ui.port" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--every", "5"), "--every is for an audit while traffic is recorded; give --follow"),
        (("--ask", "leaf"), "--ask is for an audit while traffic is recorded; give --follow"),
        (("--follow", "--fail-if", "named>0"), "--fail-if is for a whole record; give it without --follow"),
        (("--follow", "--out", "o"), "--out is for a whole record; give it without --follow"),
        (("--follow", "--window", "-1"), "--window -1: must be from 0 to 1,000,000,000 seconds"),
        (("--follow", "--ask", "disclosure"), "disclosure needs the whole record, and a stream keeps none"),
        (("--follow", "--ask", "lef"), "no attack from outside is called 'lef'; there are leaf"),
        (("--follow", "--only-members"), "--only-members leaves out all but the members; give --members"),
    ],
)
def test_wrong_words_about_following_are_refused_before_spark_starts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    code, out, err = run(capsys, write_loud_network(tmp_path / "net", 2), *words)
    assert (code, out) == (3, "")
    assert err.startswith(f"veilcast: {reason}")
    assert err.count("\n") == 1


def test_a_file_to_follow_must_be_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, tmp_path / "none.pcap", "--follow")
    assert code == 4
    assert "there is nothing; --follow waits for files inside a directory alone" in err


@pytest.mark.all_only
@pytest.mark.parametrize("form", ["json", "lines"])
def test_a_followed_network_is_reported_until_ctrl_c(form: str, tmp_path: Path) -> None:
    """It ends with exit code 0, and says nothing of it."""
    net = write_loud_network(tmp_path / "net", 20)
    words = [
        sys.executable,
        "-m",
        "veilcast.cli.main",
        "audit",
        str(net),
        "--follow",
        "--every",
        "1",
        "--ask",
        "flow-source",
    ]
    words += ["--json"] if form == "json" else []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, err = process.stdout.read(), process.stderr.read()
        process.wait(HANG_S)
    assert (process.returncode, err) == (0, "veilcast: following; Ctrl-C ends it\n")
    if form == "json":
        report = json.loads(line)
        assert report["attackers"][0]["suspects"][0]["node"] == PUBLISHER
        assert (report["final"], report["nodes"]) == (False, len(NODES))
    else:
        assert line.startswith("00:00:")
        assert f"{len(NODES)} nodes, 24 links (each way), " in line
        assert f"    {PUBLISHER}  score 1, confidence 0.00, among 1" in rest
