from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest

from veilcast.authority.topic_record import COVER_SHARES, Privacy, TopicRecord, choose_cover_share
from veilcast.errors import ConfigError
from veilcast.topics import Schema


def test_more_privacy_takes_more_cover_and_the_default_is_high() -> None:
    levels = tuple(COVER_SHARES)
    assert levels == get_args(Privacy)
    assert all(choose_cover_share(less) < choose_cover_share(more) < 1 for less, more in pairwise(levels))
    assert TopicRecord("t", Schema()).cover_share == choose_cover_share("high") == 0.9


@pytest.mark.parametrize("privacy", ["low", "medium", "high"])
def test_a_topic_of_a_fifth_of_the_members_is_sent_to_all(privacy: Privacy) -> None:
    assert choose_cover_share(privacy, subscribers=99, members=500) == COVER_SHARES[privacy]
    assert choose_cover_share(privacy, subscribers=0, members=65) == COVER_SHARES[privacy]
    assert choose_cover_share(privacy, subscribers=100, members=500) == 1.0
    assert choose_cover_share(privacy, subscribers=500, members=500) == 1.0


@pytest.mark.parametrize("privacy", ["low", "medium", "high"])
def test_in_a_group_of_up_to_64_members_all_act_as_subscribers(privacy: Privacy) -> None:
    for members in (1, 12, 64):
        assert choose_cover_share(privacy, members=members) == 1.0
        assert choose_cover_share(privacy, subscribers=1, members=members) == 1.0
    assert choose_cover_share(privacy, members=65) == COVER_SHARES[privacy]


@pytest.mark.parametrize(("subscribers", "members"), [(1, None), (2, 1), (-1, 5), (0, 0), (0, -1)])
def test_an_impossible_topic_size_is_an_error(subscribers: int | None, members: int | None) -> None:
    with pytest.raises(ConfigError):
        choose_cover_share("high", subscribers=subscribers, members=members)
