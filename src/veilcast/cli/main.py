"""`veilcast`: the entry point.

The user may press Ctrl-C while a command is still being imported. So `main` imports the commands itself, where it
catches the interrupt.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from veilcast.cli import exits

if TYPE_CHECKING:
    from veilcast.cli.context import Context


def main(argv: list[str] | None = None, context: Context | None = None) -> int:
    try:
        from veilcast.cli import commands

        return commands.run(argv, context)
    except KeyboardInterrupt:
        sys.stderr.write("veilcast: interrupted\n")
        return exits.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
