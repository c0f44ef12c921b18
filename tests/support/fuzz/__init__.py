"""The fuzzer: its programs, its mutators, and the targets, by groups of parsers."""
