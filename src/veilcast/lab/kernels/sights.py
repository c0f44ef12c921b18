"""What an insider may have seen on a link to an honest neighbour in an epoch, as codes.

Whoever makes a view writes them and attackers read them; they stand alone here, so that an attacker gets them without
anything that knows the truth.
"""

from __future__ import annotations

from typing import Final

AWAY: Final = -1
"""The neighbour was not there."""
SILENT: Final = 0
"""It was there, and nothing was said of the topic but the advert."""
ASKED: Final = 1
"""It subscribed with the observer, and not because that had invited it."""
RECRUITED: Final = 2
"""It accepted the observer's invitation, and subscribed with it: it was not in the mesh."""
REFUSED: Final = 3
"""It refused the observer's invitation: it is in the mesh."""
INVITED: Final = 4
"""It invited the observer, who accepted, or refused: it is in the mesh."""
FOLLOWED: Final = 5
"""The observer subscribed with it."""
