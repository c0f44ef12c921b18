"""docs/tests.md says which claims leave the quick run, and its lists are those of the marks."""

from __future__ import annotations

import pytest

from support.claim_lists import COLLECTED, MARKS, PAGE, lists_of, replace_list


def test_the_page_lists_every_claim_that_only_a_longer_run_holds(request: pytest.FixtureRequest) -> None:
    if request.config.args != ["tests"]:
        pytest.skip("compares the lists when all tests are collected")
    items = request.config.stash[COLLECTED]
    page = text = PAGE.read_text()
    for mark, lines in lists_of(items).items():
        text = replace_list(text, mark, lines)
    if request.config.getoption("--write-pages"):
        PAGE.write_text(text)
        return
    assert page == text, "write the lists anew: ./run test tests --write-pages -k the_page_lists_every_claim"


def test_every_folder_of_tests_is_on_the_page() -> None:
    folders = {path.name for path in PAGE.parents[1].joinpath("tests").iterdir() if path.is_dir()}
    page = PAGE.read_text()
    assert [name for name in sorted(folders - {"__pycache__", "vectors"}) if f"`tests/{name}`" not in page] == []


def test_a_claim_that_is_not_on_the_page_is_noticed(request: pytest.FixtureRequest) -> None:
    """A planted mark: the list of a test with it is not the list of the same test without."""
    item = request.node
    before = lists_of([item])
    item.add_marker(MARKS[1])
    assert lists_of([item])[MARKS[1]] != before[MARKS[1]] == ""
    assert "a claim that is not on the page is noticed" in lists_of([item])[MARKS[1]]
