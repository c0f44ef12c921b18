"""The entry point: what happens before any command runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

SIGNALLED = """
import os, runpy, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Impatient())
runpy.run_module("veilcast.cli.main", run_name="__main__")
"""


@pytest.mark.parametrize("imported", ["veilcast.cli.commands", "veilcast.cli.brokers", "veilcast.cli.tree"])
def test_ctrl_c_while_commands_are_imported_is_told_in_one_line(imported: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", SIGNALLED, imported], capture_output=True, text=True, check=False, timeout=60
    )
    assert (child.returncode, child.stdout, child.stderr) == (130, "", "veilcast: interrupted\n")
