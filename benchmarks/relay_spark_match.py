"""How long does Spark take to match a million publications of a relay with a million subscriptions?

    python benchmarks/relay_spark_match.py [--rows N] [--json]

A subscription is a topic and a range of sixteen bits, as the tags of its cover; a publication is a topic and a value,
as the tags of its prefixes. They are matched in three ways: by filters, as P2's server does, in blocks of 2^17 columns
with the publications broadcast ("filters"); by equal tags, as the hardened server does, which on Spark is a join
("exact"); and by a dictionary in one process of plain Python. All subscriptions are there from the start, and the
number of publications grows. No match may be missed; filters may have as many false matches as their bound allows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from measurement.peak_memory import PeakMemory
from veilcast.errors import LocalError
from veilcast.lab.models.bulk_filters import BLOCK_COLUMNS, fill_filters, match_filters
from veilcast.lab.models.rng import mix_bits, stream
from veilcast.lab.models.server_log import Numbers
from veilcast.lab.spark import session
from veilcast.topics.bloom import Geometry
from veilcast.topics.dyadic import cover_range, largest_cover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class MatchTiming(msgspec.Struct, frozen=True):
    publications: int
    subscriptions: int
    by: str
    seconds: float
    publications_s: float
    matches: int
    peak_mb: int


class SubscriptionTags(NamedTuple):
    """The tags of subscription n are those from offsets[n] to offsets[n + 1]."""

    tags: Numbers
    offsets: Numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=ROWS, metavar="N", help="publications, and subscriptions (%(default)d)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    arguments = parser.parse_args()
    found = run(arguments.rows, (lambda _: None) if arguments.json else print)
    if arguments.json:
        print(json.dumps(found))


def run(rows: int, say: Callable[[str], object]) -> dict[str, Any]:
    """Report each measurement by `say` as it is made, and return all of them. Wrong results raise `LocalError`."""
    columns = f"{'publications':>13} {'subscriptions':>14}  {'by':26} {'seconds':>9} {'publ./s':>10}"
    say(f"{columns} {'matches':>12} {'peak MB':>9}")
    found: list[MatchTiming] = []

    def tell(one: MatchTiming) -> None:
        found.append(one)
        start = f"{one.publications:>13,} {one.subscriptions:>14,}  {one.by:26} {one.seconds:>9.1f}"
        say(f"{start} {one.publications_s:>10,.0f} {one.matches:>12,} {one.peak_mb:>9,}")

    with tempfile.TemporaryDirectory(prefix="veilcast-bulk-") as folder:
        place = Path(folder)
        write_blocks(place / _SUBSCRIBED, *draw_subscriptions(rows, topic_count(rows)))
        for size in dict.fromkeys(max(_LEAST, rows // part) for part in (100, 10, 1)):
            asked = draw_publications(size, topic_count(rows))
            write_blocks(place / f"{size}", asked.reshape(-1), np.arange(size + 1) * asked.shape[1])
            plain = _in_python(place / _SUBSCRIBED, asked)
            tell(plain)
            for cores in (1, 2):
                for one in _on_spark(cores, place, asked, rows):
                    check_matches(one, plain)
                    tell(one)
    return {"cores": os.cpu_count(), "measured": msgspec.to_builtins(found)}


def check_matches(found: MatchTiming, plain: MatchTiming) -> None:
    """Exact matching must find exactly the right matches. Filters can add about as many as their bound allows."""
    more = found.matches - plain.matches
    allowed = SHAPE.bound * found.publications * found.subscriptions if "filters" in found.by else 0.0
    if not 0 <= more <= allowed + 5 * allowed**0.5:
        raise LocalError(f"{found.by} found {found.matches} matches, and {plain.matches} are right")


def topic_count(subscribed: int) -> int:
    """The number of topics that leaves about a hundred subscriptions to each."""
    return max(1, subscribed // 100)


def draw_subscriptions(count: int, topics: int) -> SubscriptionTags:
    """A random topic, and a random range up to a fifth of the domain wide."""
    rng = np.random.default_rng(stream(0, "subscriptions"))
    topic = rng.integers(topics, size=count)
    low = rng.integers(1 << BITS, size=count)
    high = np.minimum((1 << BITS) - 1, low + rng.integers((1 << BITS) // 5, size=count))
    pieces = [cover_range(first, last, BITS) for first, last in zip(low.tolist(), high.tolist(), strict=True)]
    sizes = np.array([len(nodes) for nodes in pieces])
    level, prefix = np.array([node for nodes in pieces for node in nodes], np.int64).T
    return SubscriptionTags(_tags(np.repeat(topic, sizes), level, prefix), np.concatenate([[0], np.cumsum(sizes)]))


def draw_publications(count: int, topics: int) -> Numbers:
    """Publications x prefixes, from the shortest on, sorted for matching."""
    rng = np.random.default_rng(stream(0, "publications", count))
    topic, value = rng.integers(topics, size=count), rng.integers(1 << BITS, size=count)
    order = np.lexsort((value, topic))
    level = np.arange(BITS + 1)
    return _tags(topic[order, None], level, value[order, None] >> (BITS - level))


def write_blocks(place: Path, tags: Numbers, offsets: Numbers) -> None:
    """Rows of a number and its tags; a file for each block, so that each is a task."""
    place.mkdir()
    for first in range(0, len(offsets) - 1, BLOCK_COLUMNS):
        part = offsets[first : first + BLOCK_COLUMNS + 1]
        lists = pa.ListArray.from_arrays(pa.array(part - part[0], pa.int32()), tags[part[0] : part[-1]])
        rows = pa.table({"number": np.arange(first, first + len(lists)), "tags": lists})
        pq.write_table(rows, place / f"block-{first // BLOCK_COLUMNS:04}.parquet")


def match_by_filters(spark: SparkSession, subscribed: DataFrame, asked: Numbers) -> DataFrame:
    """Columns publication, subscription. A group of rows is a block."""
    shared = spark.sparkContext.broadcast(asked)

    def of_block(rows: pa.Table) -> pa.Table:
        rows = rows.combine_chunks()
        tags = rows["tags"].chunk(0)
        bits = fill_filters(tags.flatten().to_numpy(), np.append(0, np.cumsum(tags.value_lengths().to_numpy())), SHAPE)
        publication, column = match_filters(bits, shared.value, SHAPE)
        return pa.table([publication, rows["number"].to_numpy()[column]], ["publication", "subscription"])

    # By range, because hashes would distribute a handful of blocks unevenly.
    blocks = (
        subscribed.selectExpr("*", f"number div {BLOCK_COLUMNS} as block").repartitionByRange("block").groupBy("block")
    )
    return blocks.applyInArrow(of_block, "publication bigint, subscription bigint")


def match_by_tags(subscribed: DataFrame, published: DataFrame) -> DataFrame:
    """The same with plain tags: a value has one tag in common with a range that contains it."""
    wanted = subscribed.selectExpr("number as subscription", "explode(tags) as tag")
    asked = published.selectExpr("number as publication", "explode(tags) as tag")
    return asked.join(wanted, "tag").select("publication", "subscription")


def match_in_dictionary(subscribed: SubscriptionTags, asked: Numbers) -> int:
    """Number of matches that a dictionary of lists finds."""
    index: defaultdict[int, list[int]] = defaultdict(list)
    owners = np.repeat(np.arange(len(subscribed.offsets) - 1), np.diff(subscribed.offsets))
    for tag, owner in zip(subscribed.tags.tolist(), owners.tolist(), strict=True):
        index[tag].append(owner)
    found = dict(index)
    nobody: list[int] = []
    return sum(len(found.get(tag, nobody)) for tags in asked.tolist() for tag in tags)


def _on_spark(cores: int, place: Path, asked: Numbers, subscribed: int) -> Iterator[MatchTiming]:
    with session(f"local[{cores}]") as spark:
        rows, published = (spark.read.parquet(f"file://{place / name}") for name in (_SUBSCRIBED, str(len(asked))))
        # Workers start, and compile, once.
        match_by_filters(spark, rows.limit(_LEAST), asked[:1]).count()
        ways: dict[str, Callable[[], DataFrame]] = {
            "filters": lambda: match_by_filters(spark, rows, asked),
            "exact": lambda: match_by_tags(rows, published),
        }
        for name, way in ways.items():
            with PeakMemory() as peak:
                start = time.perf_counter()
                count = way().count()
                seconds = time.perf_counter() - start
            yield _timing(asked, subscribed, f"{name}, Spark local[{cores}]", seconds, count, peak.bytes)


def _in_python(place: Path, asked: Numbers) -> MatchTiming:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_plain, place, asked).result()


def _plain(place: Path, asked: Numbers) -> MatchTiming:
    tags = pq.read_table(place)["tags"].combine_chunks()
    lengths = tags.value_lengths().to_numpy()
    subscribed = SubscriptionTags(tags.flatten().to_numpy(), np.append(0, np.cumsum(lengths)))
    with PeakMemory() as peak:
        start = time.perf_counter()
        count = match_in_dictionary(subscribed, asked)
        seconds = time.perf_counter() - start
    return _timing(asked, len(lengths), "a dictionary, plain Python", seconds, count, peak.bytes)


def _timing(asked: Numbers, subscribed: int, by: str, seconds: float, count: int, peak: int) -> MatchTiming:
    rate = round(len(asked) / seconds, 1)
    return MatchTiming(len(asked), subscribed, by, round(seconds, 2), rate, count, peak >> 20)


def _tags(topic: Numbers, level: Numbers, prefix: Numbers) -> Numbers:
    """A random-looking word for each topic and prefix."""
    plain = (topic << (BITS + 1)) + (np.int64(1) << level) + prefix
    return np.asarray(mix_bits(plain.view(np.uint64)), np.uint64).view(np.int64)  # type: ignore[arg-type]


BITS: Final = 16
SHAPE: Final = Geometry.sized(elements=largest_cover(BITS), queries=BITS + 1, bound=1e-6)
"""Of a million subscriptions, at most one gets a publication wrongly, on average."""
_LEAST: Final = 100
_SUBSCRIBED: Final = "subscriptions"
ROWS: Final = 10**6


if __name__ == "__main__":
    main()
