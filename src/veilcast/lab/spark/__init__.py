"""Spark: the one place that makes a session and knows Java, masters, and how code reaches executors.

Work that needs no session imports no Spark.
"""

from typing import TYPE_CHECKING

from veilcast.lazy import lazy_names

if TYPE_CHECKING:
    from veilcast.lab.spark.error_translation import SPARK_ERRORS as SPARK_ERRORS
    from veilcast.lab.spark.error_translation import translate_error as translate_error
    from veilcast.lab.spark.later import SparkLater as SparkLater
    from veilcast.lab.spark.master import LOCAL as LOCAL
    from veilcast.lab.spark.master import Master as Master
    from veilcast.lab.spark.progress import Progress as Progress
    from veilcast.lab.spark.sessions import session as session
    from veilcast.lab.spark.settings import SparkOptions as SparkOptions
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "veilcast.lab.spark.error_translation": ("SPARK_ERRORS", "translate_error"),
            "veilcast.lab.spark.later": ("SparkLater",),
            "veilcast.lab.spark.master": ("LOCAL", "Master"),
            "veilcast.lab.spark.progress": ("Progress",),
            "veilcast.lab.spark.sessions": ("session",),
            "veilcast.lab.spark.settings": ("SparkOptions",),
        },
    )
