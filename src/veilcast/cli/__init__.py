"""The command line: the composition root. It parses, wires and prints; no other room imports it."""
