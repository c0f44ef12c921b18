"""The grammar of the command line: the parsers of all commands, and nothing that a command does.

A module here is imported for `--help` and for every call of its commands, so it imports argparse and the standard
library alone. What a command does is named by `Later`, and imported when the command runs.
"""
