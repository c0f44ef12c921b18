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
    VeilcastError,
)
from veilcast.machine import Note, Publication
from veilcast.topics import All, Box, Equal, Label, Range

__all__ = [
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
