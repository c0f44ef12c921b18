"""Benchmarks of the lab: models and sweeps beside straightforward implementations, on one machine."""
