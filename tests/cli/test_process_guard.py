"""A process that holds secrets leaves no core dump, and no process of its user reads its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.waits import HANG_S

PROGRAM = """
import ctypes, resource, sys
from veilcast.cli.main import main
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
code = main(sys.argv[1:])
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) if sys.platform == "linux" else 0
sys.stderr.write(f"{code} {resource.getrlimit(resource.RLIMIT_CORE)} {dumpable}\\n")
"""


def after(*arguments: str) -> str:
    """Return the process's own report after the command has ended."""
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
        stdin=-3,
    )
    return child.stderr.splitlines()[-1].partition(" ")[2]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has PR_SET_DUMPABLE")
def test_every_command_that_unlocks_a_file_guards_its_process(tmp_path: Path) -> None:
    authority, keys = str(tmp_path / "authority"), tmp_path / "keys"
    guarded = "(0, 0) 0"
    assert after("authority", "init", authority) == guarded
    assert after("authority", "show", authority) == guarded
    keys.write_bytes(b"no keyring")
    keys.chmod(0o600)
    (tmp_path / "passphrase").write_bytes(b"secret")
    (tmp_path / "passphrase").chmod(0o600)
    (tmp_path / "node.toml").write_text('keyring = "keys"\npassphrase_file = "passphrase"\nlisten = "127.0.0.1:4000"\n')
    assert after("node", "run", "-c", str(tmp_path / "node.toml")) == guarded
    assert not after("sim", "run", "no such scenario").endswith(" 0"), "a command without secrets is as it was"
