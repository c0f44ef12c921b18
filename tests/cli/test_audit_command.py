"""`veilcast audit`: exit codes for CI, one line for what cannot be read, and a page that needs nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from patience import HANG_S
from veilcast.cli.main import main

sys.path.insert(0, str(Path(__file__).parents[1] / "lab" / "attack"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab" / "audit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "lab" / "capture"))
from capture_writing import Sent, framed, ip, pcap, put
from recorded import PUBLISHER, loud, members, silent
from wires import NODES, record


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["audit", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def captured(seconds: int = 4, ahead_us: int = 0, link: int = 1) -> bytes:
    """What a program that records packets makes of a network's wires."""
    cells = record(1, seconds)[0]
    sent = [
        Sent(1_700_000_000_000_000 + each.t_us, each.src, each.dst, each.t_us.to_bytes(4, "big") + bytes(each.size - 4))
        for each in cells
    ]
    return pcap([(each.t_us + ahead_us, framed(ip(each), 1)) for each in sent], link)


def test_a_network_whose_notes_stand_out_fails_the_checks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checks = ("--fail-if", "auc>0.6", "--fail-if", "set<2", "--fail-if", "publications>99")
    code, out, _ = run(
        capsys, loud(tmp_path / "net"), "--members", members(tmp_path / "m.json"), *checks, "--out", tmp_path / "out"
    )
    assert code == 13
    assert [line for line in out.splitlines() if line.startswith("failed")] == ["failed: auc>0.6", "failed: set<2"]
    assert f"  {PUBLISHER}  score 1, confidence 1.00, among 1, rightly" in out.splitlines()
    page = (tmp_path / "out" / "audit.html").read_text()
    assert not re.search(r"https?:|<script|src=|@import", page)
    assert "auc&gt;0.6: failed" in page
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["publications"] == 38


def test_a_silent_network_passes_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checks = ("--fail-if", "auc>0.6", "--fail-if", "set<12", "--fail-if", "named>0", "--json")
    code, out, _ = run(capsys, silent(tmp_path / "net"), "--members", members(tmp_path / "m.json"), *checks)
    assert code == 0
    assert json.loads(out)["crossed"] == []
    assert json.loads(out)["found"]["set"] == 12


def test_without_members_it_says_that_these_are_scores_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, loud(tmp_path / "net"), "--out", tmp_path)
    assert code == 0
    assert "scores only" in out
    assert "scores only" in (tmp_path / "audit.html").read_text()
    code, _, err = run(capsys, tmp_path / "net", "--fail-if", "auc>0.6")
    assert (code, err.count("\n")) == (3, 1)
    assert "--members" in err


def test_a_check_that_cannot_be_made_is_no_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    known = tmp_path / "m.csv"
    known.write_text(f"node,role\n{PUBLISHER},publisher\n{NODES[2]},reader\n")
    code, _, err = run(capsys, loud(tmp_path / "net", 8), "--members", known, "--fail-if", "auc>0.6")
    assert (code, err.count("\n")) == (3, 1)
    assert "members who read" in err


def test_a_place_for_the_page_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, _, err = run(capsys, tmp_path / "missing", "--out", tmp_path / "file")
    assert (code, err) == (4, f"veilcast: cannot make {tmp_path / 'file'}: File exists\n")


def test_a_capture_that_ends_early_is_read_as_far_as_it_goes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, put(tmp_path, captured()[:-700]))
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
def test_what_is_no_capture_of_a_network_is_told_in_a_line(
    data: bytes, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, put(tmp_path, data))
    assert code in (3, 4, 7)
    assert err.count("\n") == 1
    assert said in err


def test_traffic_that_is_not_ours_is_said_to_be_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    packets = [(number, framed(ip(Sent(number, "10.0.0.1:53", "10.0.0.2:9", bytes(64))), 1)) for number in range(20)]
    code, out, _ = run(capsys, put(tmp_path, pcap(packets)))
    assert code == 0
    assert "this is no traffic of ours" in out
    assert "publishers: no attacker says who they are" in out


def test_clocks_that_disagree_are_set_and_it_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first, second = put(tmp_path, captured()), put(tmp_path, captured(ahead_us=7_000_000), "b.pcap")
    code, out, _ = run(capsys, first, second, "--json")
    assert code == 0
    told = json.loads(out)
    assert [clock["ahead_us"] for clock in told["reading"]["clocks"]] == [7_000_000]
    assert told["wire"]["cells"] == len(record(1, 4)[0])
    assert told["wire"]["nodes"] == len(NODES)


def test_without_the_lab_it_says_what_to_install() -> None:
    blocked = "import sys; sys.modules['numba'] = None; from veilcast.cli.main import main; sys.exit(main())"
    child = subprocess.run(
        [sys.executable, "-c", blocked, "audit", "x"], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert child.returncode == 3
    assert child.stderr.count("\n") == 1
    assert "pip install 'veilcast[lab]'" in child.stderr
