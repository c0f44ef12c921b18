from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.errors import ConfigError
from veilcast.lab.audit import limits


@pytest.mark.parametrize(
    ("text", "crossed"),
    [("auc>0.6", True), ("auc > .7", False), ("auc>=0.7", True), ("set<20", False), ("set<=20", True)],
)
def test_a_limit_is_crossed_by_a_larger_figure(text: str, crossed: bool) -> None:
    assert limits.parse_limit(text).is_crossed({"auc": 0.7, "set": 20.0}) is crossed


def test_a_missing_figure_crosses_no_limit() -> None:
    assert not limits.parse_limit("named>0").is_crossed({"auc": 1.0})


@pytest.mark.parametrize("text", ["", "auc", "auc=1", "auc>x", "auc>1 or set<2", "AUC>1", "auc>1e9"])
def test_a_malformed_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--fail-if"):
        limits.parse_limit(text)


def test_an_unknown_limit_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match=r"there is no accuracy; there are auc, .*set"):
        limits.parse_limit("accuracy>1")


@given(st.sampled_from(sorted(limits.NAMES)), st.sampled_from([">", ">=", "<", "<="]), st.integers(0, 99_999))
def test_a_limit_is_read_as_it_is_written(name: str, sign: str, thousandths: int) -> None:
    limit = limits.Limit(name, sign, thousandths / 1000)
    assert limits.parse_limit(str(limit)) == limit
