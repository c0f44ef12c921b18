"""The tables of a relay's model: `server`, `cells`, `topology`, `presence`, what is public, and the truth.

Pseudonyms and users have names of one length, and a publication is called by its place in the server's log. So names
sort as numbers do. Each record on a client's wire is a cell.

Roles of the truth: `member` is every user; `subscriber` and `publisher` are users of a topic; `pseudonym` is a
pseudonym that subscribes to a topic. For `owner`, `sender` and `tag` the node is a pseudonym of the user, a publication
of the user, or a tag of the topic, which stands in the column `topic`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from veilcast.lab import tables
from veilcast.lab.attack.server.server_job import PROXY_NAME
from veilcast.lab.models.prefix_tags import PrefixTags
from veilcast.lab.models.relay import EPOCH_US, WINDOW_US, RelayObservations, RelayService, RelayTruth, RelayUsers
from veilcast.lab.models.server_log import DELIVERED, KINDS, PUBLISHED, SENT, SUBSCRIBED, Numbers, ServerLog

Floats = NDArray[np.float64]
Tables = dict[str, pa.Table]


def observe_relay(
    run: str,
    people: RelayUsers,
    service: RelayService,
    shown: RelayObservations,
    answers: RelayTruth,
    popularity: Floats,
    together: Floats | None,
    queries: int,
    filter_bound: float,
    *,
    proxy: bool = True,
    wires: bool = True,
    whole: bool = True,
) -> Tables:
    """`proxy` and `wires` tell whether these have an observer; only a `whole` log of the server has its deliveries."""
    users, topics = tables.name_numbers("u", people.users), tables.name_numbers("t", popularity.size)
    requests = shown.server.select(PUBLISHED).who
    epoch, user = np.nonzero(shown.present)
    lasting = service.profile == "paper"
    facts = {"window_us": WINDOW_US, "epoch_us": EPOCH_US, "lasting": lasting, "queries": queries}
    values = [*map(float, facts.values()), filter_bound if lasting else 0.0]
    tagged = [(epoch, answers.topic[epoch]) for epoch in range(len(answers.topic))]
    found = {
        "server": pa.concat_tables(
            [
                *_server_rows(run, shown.server, requests, (SUBSCRIBED, PUBLISHED, *([DELIVERED] if whole else []))),
                *(_proxy_rows(run, shown.proxy, users) if proxy else []),
            ]
        ),
        "topology": tables.from_columns("topology", run=run, epoch=0, u=PROXY_NAME, v=users),
        "presence": tables.from_columns("presence", run=run, epoch=epoch, node=users.take(pa.array(user))),
        "facts": tables.from_columns("facts", run=run, name=[*facts, "filter_bound"], value=values),
        "popularity": tables.from_columns("popularity", run=run, topic=topics, share=popularity),
        "words": tables.from_columns("words", run=run, topic=topics, tag=_tags(answers.computed)),
        "tokens": pa.concat_tables(
            [
                tables.from_columns("tokens", run=run, epoch=epoch, token=_tags(tags), topic=topics)
                for epoch, tags in tagged
            ]
        ),
        "truth": _truth(run, people, shown, answers, users, topics, requests),
    }
    if wires:
        found["cells"] = _cells(run, shown, users)
    if together is not None:
        one, other = np.indices(together.shape).reshape(2, -1)
        pairs = {"topic": topics.take(pa.array(one)), "other": topics.take(pa.array(other))}
        found["pairs"] = tables.from_columns("pairs", run=run, **pairs, share=together.ravel())
    return found


def observe_values(run: str, drawn: PrefixTags) -> Tables:
    """Publications and ranges of one attribute: `server`, with several tags for each; the truth has the values."""
    requests, ranges = tables.name_numbers("p", len(drawn.asked)), tables.name_numbers("s", len(drawn.ranges))
    widths = [one.size for one in drawn.ranges]
    parts = {
        "server:publish": (
            requests.take(pa.array(np.repeat(np.arange(len(requests)), drawn.asked.shape[1]))),
            drawn.asked.ravel(),
        ),
        "server:subscribe": (
            ranges.take(pa.array(np.repeat(np.arange(len(ranges)), widths))),
            np.concatenate(drawn.ranges),
        ),
    }
    server = [
        tables.from_columns("server", run=run, epoch=0, t_us=0, role=role, pseudonym=names, tag=_tags(tags), size=0)
        for role, (names, tags) in parts.items()
    ]
    values = pa.array([str(value) for value in drawn.value.tolist()])
    truth = tables.from_columns(
        "truth", run=run, topic=values, node=requests, role="value", since_us=0, until_us=EPOCH_US
    )
    return {"server": pa.concat_tables(server), "truth": truth}


def _server_rows(run: str, log: ServerLog, requests: Numbers, kinds: Sequence[int]) -> Iterator[pa.Table]:
    for kind in kinds:
        rows = log.select(kind)
        numbers, which = np.unique(rows.who, return_inverse=True)
        # Publications are numbered in the order of the log.
        who = tables.name_numbers("p", requests.size) if kind == PUBLISHED else _hex(numbers).take(pa.array(which))
        yield _log_rows(run, "server", kind, rows, who)


def _proxy_rows(run: str, log: ServerLog, users: pa.Array) -> Iterator[pa.Table]:
    for kind in (SUBSCRIBED, PUBLISHED, SENT, DELIVERED):
        rows = log.select(kind)
        yield _log_rows(run, "proxy", kind, rows, users.take(pa.array(rows.who)))


def _log_rows(run: str, observer: str, kind: int, rows: ServerLog, who: pa.Array) -> pa.Table:
    role, tag = f"{observer}:{KINDS[kind]}", _tags(rows.what)
    return tables.from_columns(
        "server", run=run, epoch=rows.epoch, t_us=rows.t_us, role=role, pseudonym=who, tag=tag, size=0
    )


def _cells(run: str, shown: RelayObservations, users: pa.Array) -> pa.Table:
    parts = []
    for kind in (SUBSCRIBED, SENT, DELIVERED):
        rows = shown.proxy.select(kind)
        client = users.take(pa.array(rows.who))
        src, dst = (PROXY_NAME, client) if kind == DELIVERED else (client, PROXY_NAME)
        parts.append(
            tables.from_columns("cells", run=run, epoch=rows.epoch, t_us=rows.t_us, src=src, dst=dst, size=RECORD_BYTES)
        )
    return pa.concat_tables(parts)


def _truth(
    run: str,
    people: RelayUsers,
    shown: RelayObservations,
    answers: RelayTruth,
    users: pa.Array,
    topics: pa.Array,
    requests: Numbers,
) -> pa.Table:
    end = len(answers.topic) * EPOCH_US
    parts = [tables.from_columns("truth", run=run, topic="", node=users, role="member", since_us=0, until_us=end)]
    for role, who in (("subscriber", people.reads), ("publisher", people.writes)):
        user, topic = (pa.array(index) for index in np.nonzero(who))
        nodes = {"topic": topics.take(topic), "node": users.take(user)}
        parts.append(tables.from_columns("truth", run=run, **nodes, role=role, since_us=0, until_us=end))
    made = shown.server.select(PUBLISHED)
    senders = np.array([answers.user[number] for number in made.who.tolist()], np.int64)
    sent = {"topic": users.take(pa.array(senders)), "node": tables.name_numbers("p", requests.size)}
    parts.append(_of_epochs("sender", run, made.epoch, **sent))
    asked = shown.server.select(SUBSCRIBED)
    held = _hex(asked.who)
    parts.append(
        _of_epochs("pseudonym", run, asked.epoch, topic=topics.take(pa.array(_topics(asked, answers))), node=held)
    )
    pseudonyms, first = np.unique(asked.who, return_index=True)
    owners = np.array([answers.user[number] for number in pseudonyms.tolist()], np.int64)
    parts.append(
        _of_epochs("owner", run, asked.epoch[first], topic=users.take(pa.array(owners)), node=_hex(pseudonyms))
    )
    for epoch, tags in enumerate(answers.topic):
        names = pa.array([tag.hex() for tag in _tags(tags).to_pylist()])
        parts.append(_of_epochs("tag", run, np.full(tags.size, epoch), topic=topics, node=names))
    return pa.concat_tables(parts)


def _of_epochs(role: str, run: str, epoch: Numbers, **nodes: pa.Array) -> pa.Table:
    since = epoch * EPOCH_US
    return tables.from_columns("truth", run=run, **nodes, role=role, since_us=since, until_us=since + EPOCH_US)


def _topics(asked: ServerLog, answers: RelayTruth) -> Numbers:
    """The topic of each subscription."""
    found = np.empty(len(asked), np.int64)
    for epoch, tags in enumerate(answers.topic):
        here = asked.epoch == epoch
        order = np.argsort(tags)
        found[here] = order[np.searchsorted(tags[order], asked.what[here])]
    return found


def _hex(numbers: Numbers) -> pa.Array:
    return pa.array([f"{number:016x}" for number in numbers.tolist()], pa.string())


def _tags(numbers: Numbers) -> pa.Array:
    """Eight bytes for each; they sort as the numbers do."""
    words = np.ascontiguousarray(numbers, ">i8")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), words.size, [None, pa.py_buffer(words.tobytes())]).cast(
        pa.binary()
    )


RECORD_BYTES: Final = 500
"""Size of a record on a client's wire."""
