"""`veilcast`: the entry point.

All commands together take a second to import, in which somebody may press Ctrl-C already. So they are imported here,
where it is caught; only what comes before the first line of this file cannot be helped.
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
