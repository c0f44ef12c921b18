"""The examples of section 4.7 of the MQTT specification, and the rule in a second form: a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.mqtt_strategies import FILTER
from veilcast.wire.mqtt import filter_matches
from veilcast.wire.mqtt.fields import check_filter

FEW = st.lists(st.sampled_from(("", "a", "b", "$")), min_size=1, max_size=4).map("/".join).filter(bool)
FEW_FILTERS = (
    st.lists(st.sampled_from(("", "a", "$", "+", "+")), max_size=4)
    .flatmap(lambda levels: st.sampled_from(([*levels], [*levels, "#"])))
    .map("/".join)
    .filter(bool)
)


@pytest.mark.parametrize(
    ("pattern", "topic", "is_brought"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player2", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("sport", "SPORT", False),
    ],
)
def test_a_filter_matches_the_examples_of_the_mqtt_specification(pattern: str, topic: str, is_brought: bool) -> None:
    assert filter_matches(pattern, topic) is is_brought


@settings(max_examples=200)
@given(FEW_FILTERS, FEW)
def test_matching_is_the_regular_expression_that_the_wildcards_stand_for(pattern: str, topic: str) -> None:
    assert filter_matches(pattern, topic) is _by_expression(pattern, topic)


@given(FILTER)
def test_a_filter_that_the_checks_let_pass_has_wildcards_on_levels_of_their_own(pattern: str) -> None:
    check_filter(pattern)
    for wildcard in "+#":
        with pytest.raises(ValueError, match="wrong place"):
            check_filter(pattern.replace("/", "x") + wildcard + "x")


def _by_expression(pattern: str, topic: str) -> bool:
    if topic.startswith("$") and pattern[0] in "+#":
        return False
    expression = re.escape(pattern).replace(r"\+", "[^/]*").replace("/\\#", "(/.*)?").replace("\\#", ".*")
    return re.fullmatch(expression, topic) is not None
