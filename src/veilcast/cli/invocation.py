"""The name of the program as the person typed it, for commands that the output suggests."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final


def command_name() -> str:
    """Return `veilcast` if the shell finds this program under that name; otherwise what was typed, such as `./run
    veilcast`.

    `./run` names itself in the environment, because it starts the program by another path.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return named
    path = sys.argv[0]
    if os.path.basename(path) != _NAME:
        return _NAME  # A test, or `python -m`.
    found = shutil.which(_NAME)
    return _NAME if found is not None and os.path.realpath(found) == os.path.realpath(path) else path


VARIABLE: Final = "VEILCAST_COMMAND"
_NAME: Final = "veilcast"
