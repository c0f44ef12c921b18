"""Runs of a mesh: flows, epochs, topics, pruning, clocks, active insiders and captured wires."""
