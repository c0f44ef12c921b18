"""A trace of any size on Spark: made part by part in the executors, and replayed to a matrix of brokers.

No part of a trace comes to this process. A part is made from its number alone (`models.synthetic_trace`), so executors
receive numbers. The places of users are broadcast. Every task returns what its interactions add to the matrix of
brokers, and Spark shuffles and adds the entries that are not 0: for 400 brokers at most 160,000 rows for a task, for
any length of the trace. Hops, shares and losses are computed here, from the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from veilcast.lab import tables
from veilcast.lab.models.synthetic_trace import TraceLaw
from veilcast.lab.models.user_placement import Matrix, UserPlacement
from veilcast.lab.tables import Interaction, Relation, Replayed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SyntheticParts(msgspec.Struct, frozen=True):
    """Makes parts of a synthetic trace, by their numbers."""

    law: TraceLaw
    parts: int
    row: type[Interaction] | type[Relation]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = tables.arrow_schema(self.row)
        for batch in batches:
            for number in batch["id"].to_pylist():
                users = self.law.part(number, self.parts)
                made = self.law.interactions_of(users) if self.row is Interaction else self.law.relations_of(users)
                arrays = [pa.array(column, field.type) for column, field in zip(made, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def make_synthetic_trace(spark: SparkSession, law: TraceLaw, row: type[Interaction] | type[Relation]) -> DataFrame:
    """The interactions of a trace, or its relations. All rows of a publisher are in one part."""
    total = law.interactions if row is Interaction else law.relations
    parts = max(spark.sparkContext.defaultParallelism, -(-total // PART_ROWS))
    numbers = spark.range(0, parts, 1, parts)
    return numbers.mapInArrow(SyntheticParts(law, parts, row), tables.spark_schema(row))


def replay_on_spark(interactions: DataFrame, placements: Mapping[float, UserPlacement]) -> dict[float, Matrix]:
    """By alpha, the number of interactions from each broker to each other."""
    spark = interactions.sparkSession
    homes = spark.sparkContext.broadcast(dict(placements))
    schema = tables.arrow_schema(Replayed)

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[float, Matrix] = {}
        for batch in batches:
            ends = [batch[name].to_numpy().astype(np.int32) for name in ("publisher", "subscriber")]
            for alpha, placement in homes.value.items():
                matrix = placement.matrix(ends[0], ends[1])
                found[alpha] = found[alpha] + matrix if alpha in found else matrix
        for alpha, matrix in found.items():
            start, end = np.nonzero(matrix)
            columns = (np.full(start.size, alpha), start, end, matrix[start, end])
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)

    counted = interactions.select("publisher", "subscriber").mapInArrow(add, tables.spark_schema(Replayed))
    summed = counted.groupBy("alpha", "source", "target").sum("interactions").toArrow()
    whole = {
        alpha: np.zeros((placement.below.size, placement.below.size), np.int64)
        for alpha, placement in placements.items()
    }
    for alpha, matrix in whole.items():
        rows = summed.filter(pc.equal(summed["alpha"], alpha))
        matrix[rows["source"].to_numpy(), rows["target"].to_numpy()] = rows["sum(interactions)"].to_numpy()
    return whole


PART_ROWS: Final = 500_000
"""Approximate rows of a part."""
