"""The libraries leave nothing on the machine, and a library that cannot work gives a clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.waits import HANG_S

USE_THE_GROUP = "from veilcast.crypto.group import Scalar; Scalar.of(2).public() * Scalar.of(3)"

MODULES = ["veilcast", "veilcast.crypto.group", "veilcast.crypto.verifiable_sharing", "veilcast.cli.commands"]


def python(code: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that keeps its temporary files there."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
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


def test_an_unusable_temporary_directory_is_named_with_a_remedy(tmp_path: Path) -> None:
    """A limit on file sizes stands for a full disk or a `noexec` mount: all end in an `OSError` of the import."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); "
    failed = python(limit + USE_THE_GROUP, tmp_path)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("veilcast.errors.LocalError: ")
    assert "TMPDIR" in failed.stderr.splitlines()[-1]


def test_another_libsodium_is_not_loaded(tmp_path: Path) -> None:
    """Planted: a library in rbcl of which one byte differs. Nothing of it runs."""
    planted = tmp_path / "planted"
    shutil.copytree(Path(_rbcl()), planted / "rbcl")
    module = planted / "rbcl" / "_sodium.py"
    text = module.read_text()
    at = text.index("bytes.fromhex('") + 5_000
    changed = "0" if text[at] != "0" else "1"
    module.write_text(text[:at] + changed + text[at + 1 :])
    (tmp_path / "temporary").mkdir()
    failed = python(f"import sys; sys.path.insert(0, {str(planted)!r}); {USE_THE_GROUP}", tmp_path / "temporary")
    assert failed.returncode == 1
    assert "not one that was looked at" in failed.stderr.splitlines()[-1]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_module_of_the_librarys_name_on_the_path_is_not_run(tmp_path: Path) -> None:
    """rbcl alone runs it: it looks for `_sodium` everywhere before it looks at its own."""
    (tmp_path / "_sodium.py").write_text("print('it runs')")
    (tmp_path / "temporary").mkdir()
    found = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
    assert python(found + "import rbcl", tmp_path / "temporary").stdout == "it runs\n"
    used = python(found + USE_THE_GROUP, tmp_path / "temporary")
    assert (used.returncode, used.stdout) == (0, "")


def test_an_rbcl_that_was_imported_before_is_not_used(tmp_path: Path) -> None:
    """Another part of the process imported rbcl first, with a library that nobody compared."""
    failed = python(f"import rbcl; {USE_THE_GROUP}", tmp_path)
    assert failed.returncode == 1
    assert "rbcl was imported before" in failed.stderr.splitlines()[-1]
    assert python(f"{USE_THE_GROUP}; import rbcl", tmp_path).returncode == 0


def test_threads_may_use_the_group_first_together(tmp_path: Path) -> None:
    code = (
        "import threading, veilcast.crypto._primitives as primitives\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "barrier = threading.Barrier(8)\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    found = list(pool.map(lambda _: barrier.wait() * 0 or primitives._ristretto(), range(8)))\n"
        "print(len(set(map(id, found))))"
    )
    assert python(code, tmp_path).stdout == "1\n"


def test_the_library_is_loaded_from_a_directory_of_its_owner_alone(tmp_path: Path) -> None:
    code = (
        "import ctypes, os, stat; real = ctypes.CDLL\n"
        "import veilcast.crypto._primitives as primitives\n"
        "def loaded(path):\n"
        "    print(oct(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode)))\n"
        "    return real(path)\n"
        f"primitives.CDLL = loaded\n{USE_THE_GROUP}"
    )
    assert python(code, tmp_path).stdout == "0o700\n"


def _rbcl() -> str:
    package = find_spec("rbcl")
    assert package is not None
    assert package.submodule_search_locations
    return package.submodule_search_locations[0]
