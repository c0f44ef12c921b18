"""Spark: the one place that makes a session, and knows of Java, of masters, and of how our code reaches executors."""

from veilcast.lab.spark.master import LOCAL, Master
from veilcast.lab.spark.progress import Progress
from veilcast.lab.spark.sessions import session
from veilcast.lab.spark.trouble import SPARK_ERRORS, told

__all__ = ["LOCAL", "SPARK_ERRORS", "Master", "Progress", "session", "told"]
