"""The grammar of the command line: the parsers of all commands, without their work.

A module here is imported for `--help` and for every call of its commands, so it imports argparse and the standard
library alone. `Later` names the function that does a command's work, and imports it when the command runs.
"""
