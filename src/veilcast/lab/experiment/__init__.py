"""Experiments: their files, the sweep of their runs on Spark, and the tables of results."""
