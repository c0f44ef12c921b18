"""What the libraries leave on the machine, and what is said where one of them cannot work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

USE_THE_GROUP = "from veilcast.crypto.group import Scalar; Scalar.of(2).public() * Scalar.of(3)"

MODULES = ["veilcast", "veilcast.crypto.group", "veilcast.crypto.dealing", "veilcast.cli.commands"]


def python(code: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that keeps its temporary files there."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_using_the_group_leaves_no_file_behind(tmp_path: Path) -> None:
    assert python(USE_THE_GROUP, tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_rbcl_alone_does_leave_one(tmp_path: Path) -> None:
    """If this fails, rbcl has mended its ways, and what `_primitives` does about it can go."""
    assert python("import rbcl", tmp_path).returncode == 0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("module", MODULES)
def test_importing_does_not_load_the_group(module: str, tmp_path: Path) -> None:
    assert python(f"import sys, {module}; sys.exit('rbcl' in sys.modules)", tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_directory_that_cannot_serve_is_named_with_what_to_do(tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk or a `noexec` mount: all end in an `OSError` of the import."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "
    failed = python(limit + USE_THE_GROUP, tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("veilcast.errors.LocalError: ")
    assert "TMPDIR" in failed.stderr.splitlines()[-1]
