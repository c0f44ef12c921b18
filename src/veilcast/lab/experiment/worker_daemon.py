"""The parent process of Spark's Python workers on this machine: it imports once what tasks need, and forks the workers.

    python -m veilcast.lab.experiment.worker_daemon pyspark.worker      as Spark starts it

1. Spark's own parent imports almost nothing, so each worker imports all for itself: about a second of processor time
   for each core, before its first task. Here a worker begins with the modules of its parent.
2. A fork copies one thread. A lock that another thread holds at that moment would stay locked in the worker. So no
   module below may start a thread: Arrow's memory allocator is told so (`settings`), and a test counts the threads.
3. Spark collects garbage after each task. `gc.freeze` exempts the imported objects: a collection is then short, and
   their memory stays shared.
"""

# ruff: noqa: F401 - the imports are all that this module adds.

from __future__ import annotations

import gc

import duckdb
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark.worker
from pyspark.daemon import manager

from veilcast.lab.attack.insider import coalition_job
from veilcast.lab.attack.observer import capture_job, epoch_job
from veilcast.lab.capture import tasks
from veilcast.lab.experiment import task

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
