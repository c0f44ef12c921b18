"""The control socket: the tags of its messages are part of the protocol, whatever the classes are called."""

from __future__ import annotations

from typing import get_args

import msgspec

from veilcast.net.control_protocol import Answer, Request

REQUESTS = {
    "PublishRequest": "Publish",
    "SubscribeRequest": "Subscribe",
    "UnsubscribeRequest": "Unsubscribe",
    "AcknowledgeRequest": "Acknowledge",
    "StatusRequest": "AskStatus",
    "PeersRequest": "AskPeers",
    "StopRequest": "Stop",
    "ReloadRequest": "Reload",
}
ANSWERS = {
    "Welcome": "Welcome",
    "DoneAnswer": "Done",
    "SubscribedAnswer": "Subscribed",
    "NoteArrived": "Noted",
    "SubscriptionEnded": "Ended",
    "Readiness": "Readiness",
    "StatusAnswer": "StatusIs",
    "PeersAnswer": "PeersAre",
    "ReloadedAnswer": "Reloaded",
    "RefusedAnswer": "Refused",
}


def test_messages_keep_their_tags() -> None:
    assert tags(Request) == REQUESTS
    assert tags(Answer) == ANSWERS


def tags(union: object) -> dict[str, object]:
    kinds: tuple[type[msgspec.Struct], ...] = get_args(union)
    return {kind.__name__: kind.__struct_config__.tag for kind in kinds}
