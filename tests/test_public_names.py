"""The public names are imported at their first use, and known to the type checker all the same.

mypy reads this file. If it accepted a name that does not exist, it would report the comment that silences the error as
unused.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import assert_type

import pytest

import veilcast
from support.waits import HANG_S
from veilcast import lazy, topics

ROOT = Path(__file__).parents[1]
UNCALLED: list[Callable[[], object]] = [
    lambda: assert_type(veilcast.Note(b"", veilcast.Publication(())).publication.body, bytes),
    lambda: assert_type(veilcast.Label("news").pair[0], str),
    lambda: assert_type(topics.Geometry, type[topics.Geometry]),
    lambda: veilcast.Lable("news"),  # type: ignore[attr-defined]
    lambda: topics.Geometries,  # type: ignore[attr-defined]
]


@pytest.mark.parametrize("package", [veilcast, topics], ids=lambda package: package.__name__)
def test_every_public_name_is_there_once_and_listed(package: object) -> None:
    names: list[str] = package.__all__  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(package))
    for name in names:
        assert getattr(package, name) is getattr(package, name)


def test_a_name_that_does_not_exist_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match=r"module 'veilcast' has no attribute 'Lable'"):
        getattr(veilcast, "Lable")  # noqa: B009
    with pytest.raises(ImportError, match="Lable"):
        exec("from veilcast import Lable")


def test_a_lazy_name_is_imported_at_its_first_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def note(name: str) -> object:
        imported.append(name)
        return sys.modules[name]

    monkeypatch.setattr(lazy, "import_module", note)
    get_name, _ = lazy.lazy_names(__name__, {"veilcast.errors": ("VeilcastError",)})
    assert not imported
    assert get_name("VeilcastError") is veilcast.VeilcastError
    assert imported == ["veilcast.errors"]
    assert globals().pop("VeilcastError") is veilcast.VeilcastError


def test_the_version_is_that_of_the_project() -> None:
    assert veilcast.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def loaded(program: str) -> Iterator[str]:
    """Modules that a fresh interpreter has after `program`."""
    told = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    yield from told.stdout.split()


def test_the_package_and_its_topics_cost_neither_numpy_nor_cryptography_nor_asyncio() -> None:
    dear = {"numpy", "cryptography", "nacl", "asyncio", "rich"}
    assert not dear & {*loaded("from veilcast import Label, Range, Box, Publication, VeilcastError")}
    assert "msgspec" not in {*loaded("import veilcast, veilcast.topics")}
