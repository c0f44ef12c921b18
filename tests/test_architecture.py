"""docs/ARCHITECTURE.md lists every file, and its picture of the rooms is that of the imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.architecture import LAYERS, PAGE, PICTURE, reduce_imports, render_picture, render_tree, room_imports
from support.claim_lists import replace_list


def test_the_page_lists_every_file_with_the_first_sentence_of_its_docstring(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text()
    text = replace_list(page, "tree", "\n" + render_tree() + "\n")
    if request.config.getoption("--write-pages"):
        PAGE.write_text(text)
        return
    assert page == text, "write it again: ./run test tests/test_architecture.py --write-pages"


def test_the_picture_of_the_rooms_is_that_of_the_imports(request: pytest.FixtureRequest) -> None:
    picture = render_picture(room_imports())
    if request.config.getoption("--write-pages"):
        PICTURE.write_text(picture)
        return
    assert PICTURE.read_text() == picture, "draw it again: ./run test tests/test_architecture.py --write-pages"


def test_every_directory_of_the_source_is_a_room_of_the_picture() -> None:
    rooms = {room for layer in LAYERS for room in layer}
    assert {path.parent.name for path in (PAGE.parents[1] / "src" / "veilcast").glob("*/__init__.py")} == rooms


def test_a_file_that_is_not_on_the_page_is_noticed(tmp_path: Path) -> None:
    package = tmp_path / "veilcast"
    package.mkdir()
    (package / "one.py").write_text('"""The first thing. More about it."""\n')
    before = render_tree(package)
    assert before == "### veilcast/\n\n- `one.py`: The first thing.\n"
    (package / "two.py").write_text('"""The second thing"""\n')
    assert render_tree(package) == before + "- `two.py`: The second thing.\n"


def test_an_edge_that_another_path_replaces_is_left_out() -> None:
    assert reduce_imports({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
