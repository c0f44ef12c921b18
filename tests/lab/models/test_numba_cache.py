"""What is kept of compiled kernels is used for the very same kernels only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import veilcast
from veilcast.lab.models import numba_cache

CALL = "from veilcast.lab.models.rng import to_fraction, mix_bits; print(float(to_fraction(mix_bits(7))))"


def test_a_kernel_that_another_file_changed_is_compiled_anew(tmp_path: Path) -> None:
    package = Path(veilcast.__file__).parent
    shutil.copytree(package, tmp_path / "veilcast", ignore=shutil.ignore_patterns("__pycache__"))

    def kept() -> set[str]:
        subprocess.run([sys.executable, "-c", CALL], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, check=True)
        return {path.name for path in (tmp_path / "veilcast/lab/models/__pycache__").iterdir() if path.is_dir()}

    first = kept()
    assert len(first) == 1
    assert kept() == first
    with (tmp_path / "veilcast/lab/models/graph.py").open("a") as changed:
        changed.write("# another\n")
    assert len(kept() - first) == 1


def test_who_has_no_home_and_may_write_nowhere_has_kernels_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert numba_cache._cache_directory("") == ""
