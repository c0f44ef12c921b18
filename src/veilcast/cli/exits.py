"""Exit codes: one meaning each; the documentation lists them. Append only."""

from __future__ import annotations

from typing import Final

from veilcast import errors

OK: Final = 0
INTERNAL: Final = 1
USAGE: Final = 2
FAILED_CHECK: Final = 13
INTERRUPTED: Final = 130

# The first class that fits an error decides; the special stand before the general.
_CODES: Final[tuple[tuple[type[errors.VeilcastError], int, str], ...]] = (
    (errors.ConfigError, 3, "config"),
    (errors.PermissionsError, 5, "permissions"),
    (errors.StorageError, 4, "storage"),
    (errors.PassphraseError, 6, "passphrase"),
    (errors.TamperedError, 7, "tampered"),
    (errors.UnknownTopicError, 8, "unknown-topic"),
    (errors.UnknownMemberError, 9, "unknown-member"),
    (errors.ExpiredError, 10, "expired"),
    (errors.AuthorityError, 11, "refused"),
    (errors.RemoteError, 12, "forged"),
    (errors.UnreachableError, 14, "unreachable"),
    (errors.SparkError, 16, "spark"),
    (errors.LocalError, 15, "misuse"),
)


def code_of(error: errors.VeilcastError) -> tuple[int, str]:
    """Return the exit code of an error, and its name in `--json`."""
    for kind, code, name in _CODES:
        if isinstance(error, kind):
            return code, name
    return INTERNAL, "error"
