"""Spark: the one place that makes a session and knows Java, masters, and how code reaches executors."""

from veilcast.lab.spark.error_translation import SPARK_ERRORS, translate_error
from veilcast.lab.spark.master import LOCAL, Master
from veilcast.lab.spark.progress import Progress
from veilcast.lab.spark.sessions import session
from veilcast.lab.spark.settings import SparkOptions

__all__ = ["LOCAL", "SPARK_ERRORS", "Master", "Progress", "SparkOptions", "session", "translate_error"]
