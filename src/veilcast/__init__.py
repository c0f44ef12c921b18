"""Publish and subscribe without revealing who you are, and measure how anonymous you really are.

The public names; everything else may change between versions.
"""

from veilcast.errors import (
    AuthorityError,
    ConfigError,
    ExpiredError,
    ForgedError,
    LocalError,
    MalformedError,
    PassphraseError,
    PermissionsError,
    RemoteError,
    StaleError,
    StorageError,
    TamperedError,
    UnknownMemberError,
    UnknownTopicError,
    UnreachableError,
    VeilcastError,
)
from veilcast.machine import Note, Publication
from veilcast.net.blocking import connect_sync
from veilcast.net.client import connect
from veilcast.topics import All, Box, Equal, Label, Range

__all__ = [
    "connect",
    "connect_sync",
    "Label",
    "Range",
    "Box",
    "Equal",
    "All",
    "Publication",
    "Note",
    "VeilcastError",
    "LocalError",
    "ConfigError",
    "StorageError",
    "PermissionsError",
    "PassphraseError",
    "UnreachableError",
    "TamperedError",
    "AuthorityError",
    "UnknownTopicError",
    "UnknownMemberError",
    "ExpiredError",
    "RemoteError",
    "MalformedError",
    "ForgedError",
    "StaleError",
]
