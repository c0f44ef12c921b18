"""Sweeps: an experiment's file, the runs it asks for, and the tables that come of them."""
