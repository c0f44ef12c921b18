"""The command line: the composition root. It parses, wires and prints; nobody imports it."""
