"""Publish and subscribe without revealing who you are, and measure how anonymous you really are.

These are the public names; everything else may change between versions. A name is imported at its first use, so a
program pays only for what it uses.
"""

from veilcast.errors import (
    AuthorityError,
    ConfigError,
    ExpiredError,
    ForgedError,
    LocalError,
    MalformedError,
    NotReadyError,
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
from veilcast.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from veilcast.machine import Delay, Note, Publication
    from veilcast.net.client import Client, Connection, Subscription, connect
    from veilcast.net.control_protocol import Peer, Status, Waiting
    from veilcast.net.sync_client import BlockingClient, BlockingSubscription, connect_sync
    from veilcast.topics.interests import All, Box, Equal, Label, Range
    from veilcast.topics.predicates import parse_predicates
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "veilcast.machine": ("Delay", "Note", "Publication"),
            "veilcast.net.control_protocol": ("Peer", "Status", "Waiting"),
            "veilcast.net.sync_client": ("BlockingClient", "BlockingSubscription", "connect_sync"),
            "veilcast.net.client": ("Client", "Connection", "Subscription", "connect"),
            "veilcast.topics.interests": ("All", "Box", "Equal", "Label", "Range"),
            "veilcast.topics.predicates": ("parse_predicates",),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "connect",
    "connect_sync",
    "Connection",
    "Client",
    "Subscription",
    "BlockingClient",
    "BlockingSubscription",
    "Status",
    "Peer",
    "Waiting",
    "Delay",
    "Label",
    "Range",
    "Box",
    "Equal",
    "All",
    "parse_predicates",
    "Publication",
    "Note",
    "VeilcastError",
    "LocalError",
    "ConfigError",
    "StorageError",
    "PermissionsError",
    "PassphraseError",
    "UnreachableError",
    "NotReadyError",
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
