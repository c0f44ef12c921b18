from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest

from veilcast.authority.privacy import SHARES, Privacy, cover_share
from veilcast.authority.record import TopicRecord
from veilcast.errors import ConfigError
from veilcast.topics import Schema


def test_more_privacy_takes_more_cover_and_the_default_is_high() -> None:
    levels = tuple(SHARES)
    assert levels == get_args(Privacy)
    assert all(cover_share(less) < cover_share(more) < 1 for less, more in pairwise(levels))
    assert TopicRecord("t", Schema()).cover_share == cover_share("high") == 0.78


@pytest.mark.parametrize("privacy", ["low", "medium", "high"])
def test_a_topic_of_a_fifth_of_the_members_is_sent_to_all(privacy: Privacy) -> None:
    assert cover_share(privacy, subscribers=99, members=500) == SHARES[privacy]
    assert cover_share(privacy, subscribers=0, members=1) == SHARES[privacy]
    assert cover_share(privacy, subscribers=100, members=500) == 1.0
    assert cover_share(privacy, subscribers=500, members=500) == 1.0


@pytest.mark.parametrize(("subscribers", "members"), [(1, None), (None, 1), (2, 1), (-1, 5), (0, 0), (0, -1)])
def test_a_size_that_cannot_be_is_told(subscribers: int | None, members: int | None) -> None:
    with pytest.raises(ConfigError):
        cover_share("high", subscribers=subscribers, members=members)
