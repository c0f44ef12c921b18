"""The known name that is nearest to a mistyped one, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(typed: str, known: Iterable[str]) -> str:
    """The text "; did you mean 'x'?"; empty if no known name is near. Case and leading dashes do not count."""
    from difflib import get_close_matches  # Only a mistake pays for it.

    names = {name.lstrip("-").casefold(): name for name in known}
    near = get_close_matches(typed.lstrip("-").casefold(), names, n=1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""
