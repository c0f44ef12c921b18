"""The archive for executors is the package, and its fingerprint tells one version from another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from veilcast.lab.spark import code_archive


def test_the_archive_is_imported_from_and_has_the_experiments(tmp_path: Path) -> None:
    archive = code_archive.pack_archive(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import veilcast.lab.experiment.definition as e; "
        "print(e.__file__, 'mesh-fig12' in e.packaged_names(), e.load_experiment('mesh-fig12')[1].source)"
    )
    said = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.split(maxsplit=1)[0].startswith(f"{archive}/veilcast/")
    assert said.stdout.strip().endswith("True P0 Fig. 12")


def test_the_same_sources_are_the_same_bytes(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        place.mkdir()
    first, second = map(code_archive.pack_archive, places)
    assert first.name == second.name == f"veilcast-{code_archive.code_fingerprint()}.zip"
    assert first.read_bytes() == second.read_bytes()


def test_a_source_that_changes_moves_or_is_added_changes_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "veilcast"
    root.mkdir()
    monkeypatch.setattr(code_archive, "package_root", lambda: root)
    seen = []
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("b.py", ""), ("notes.toml", "x = 1")):
        (root / name).write_text(text)
        seen.append(code_archive.code_fingerprint())
    (root / "b.py").rename(root / "c.py")
    seen.append(code_archive.code_fingerprint())
    # An experiment's file is compared by its parameters, and is no code.
    assert seen[2] == seen[3]
    assert len(set(seen)) == 4
