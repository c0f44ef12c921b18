"""The errors of Veilcast, sorted by whose fault they are.

Imports nothing. `LocalError` is our own misuse, configuration or files; `RemoteError` is bad bytes or behaviour of a
stranger. Toward the network every `RemoteError` is the same silence; the class and text are for the local trace only.
No message ever holds a key, a passphrase, a token or a plaintext, so `str(error)` may be printed.
"""

from __future__ import annotations


class VeilcastError(Exception):
    """The base of every error this package raises on purpose."""


class LocalError(VeilcastError):
    """This process, or the person at this machine, did something that cannot work."""


class ConfigError(LocalError):
    """A configuration, scenario or topic declaration is wrong; the text names the offending key."""


class StorageError(LocalError):
    """A file could not be read or written; what was there before is untouched."""


class LostDatabaseError(StorageError):
    """The database of a host does not answer, or has ended its session; what was confirmed is in it."""


class PermissionsError(StorageError):
    """A secret file is readable by others, or not ours to read."""


class PassphraseError(LocalError):
    """The passphrase does not open the file, or none was given."""


class TamperedError(LocalError):
    """A local file is not what we wrote: damaged, truncated or edited."""


class UnreachableError(LocalError):
    """The node of this machine is not running, or has gone away."""


class FullError(LocalError):
    """There is no room for one more; something else has to end first."""


class NotReadyError(LocalError, TimeoutError):
    """A subscription was not ready in the caller's time; it continues all the same."""


class SparkError(LocalError):
    """Spark gave up: its Java machine, an executor or a worker failed, and failed again."""


class AuthorityError(LocalError):
    """The authority refuses: the request does not fit what it has declared and granted."""


class UnknownTopicError(AuthorityError):
    """No topic of that name is declared, or no grant for it is held."""


class UnknownMemberError(AuthorityError):
    """No member of that name has been granted anything."""


class ExpiredError(AuthorityError):
    """A grant or delegation of ours is no longer valid at the time asked for."""


class RemoteError(VeilcastError):
    """Bytes or behaviour of another node that we refuse."""


class MalformedError(RemoteError):
    """Bytes that are not a message of ours."""


class ForgedError(RemoteError):
    """A signature, tag, commitment or proof that does not hold."""


class StaleError(RemoteError):
    """A certificate, anchor or bulletin that is genuine, but not valid at this time."""


class ExcessError(RemoteError):
    """A neighbour sent more than its limit."""
