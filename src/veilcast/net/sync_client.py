"""`veilcast.connect_sync`: the blocking client, for programs without asyncio and for notebooks.

    with veilcast.connect_sync("node.toml") as me:
        me.publish("weather/munich", "sunny", temp=21.5)
        for note in me.subscribe("weather/munich"):
            ...

The blocking client drives the same session as `veilcast.connect`, on a plain socket. So it also works where an event
loop runs, and blocks that loop while a call waits. Bytes move only during calls. The node sends no more notes than the
window allows, so a program may take its time between calls. Ctrl-C ends a call at any moment; the client stays usable.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from pathlib import Path
from typing import Final, TypeVar

from veilcast.errors import LocalError, NotReadyError, UnreachableError, VeilcastError
from veilcast.machine import Note, Publication, Value
from veilcast.net import control_protocol
from veilcast.net.client_session import (
    GREET_S,
    LEAVE_S,
    NO_FIRST_WORD,
    Call,
    ClientSession,
    SubscriptionCalls,
    check_timeout,
    find_control_socket,
    make_interest,
    make_publication,
    not_ready_text,
    unreachable_error,
)
from veilcast.net.control_protocol import Peer, Status, Waiting
from veilcast.topics.interests import Conjunction, Label

T = TypeVar("T")


def connect_sync(config: str | os.PathLike[str]) -> BlockingClient:
    """Connect to the node that runs with this configuration file: `with connect_sync("node.toml") as me`.

    Without `with`, call `close` at the end. Raises `UnreachableError` if no node answers, `StorageError` or
    `ConfigError` if the file cannot be read, and `PermissionsError` if the node belongs to another user.
    """
    path = find_control_socket(config)
    link = _connect(path, config)
    client = BlockingClient(link)
    try:
        client._run(client._session.greet(), GREET_S)
    except BaseException as error:
        link.close()
        if isinstance(error, TimeoutError):
            raise UnreachableError(NO_FIRST_WORD) from error
        raise
    return client


class BlockingClient:
    """Publishes and subscribes through a running node. `connect_sync` makes it. Only one thread at a time may use it.

    Every method raises `UnreachableError` if the node has stopped, and the node's refusal as the error that it is.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._session = ClientSession()

    def publish(self, what: str | Label | Publication, body: bytes | str = b"", **values: Value) -> None:
        """Publish on a topic, with values of its attributes; returns when the publication is on the node's disk.

        The arguments and errors are those of `Client.publish`.
        """
        self._run(
            self._session.ask(
                control_protocol.PublishRequest(make_publication(what, body, values)), control_protocol.DoneAnswer
            )
        )

    def subscribe(self, interest: str | Conjunction, *, keep: bool = False) -> BlockingSubscription:
        """Subscribe to an interest; a string is the name of a topic. Returns when the subscription is on the node's
        disk.

        Notes arrive once the subscription is ready: see `BlockingSubscription.ready`. `keep` is as in
        `Client.subscribe`. Raises `LocalError` for an interest of another type, and the node's refusal.
        """
        wanted, calls = make_interest(interest), None
        try:
            calls = self._session.subscribe(wanted, keep=bool(keep))
            self._run(calls.start())
            return BlockingSubscription(self, calls)
        except BaseException:  # Ctrl-C, too: the caller has no subscription then, so none must stay.
            self._session.abandon(calls)
            raise

    def status(self) -> Status:
        """Return the state of the node, and how well its member is hidden."""
        return self._run(self._session.ask(control_protocol.StatusRequest(), control_protocol.StatusAnswer)).status

    def peers(self) -> list[Peer]:
        """Return the node's neighbours. This list is for the node's owner, not for a log."""
        return self._run(self._session.ask(control_protocol.PeersRequest(), control_protocol.PeersAnswer)).peers

    def reload(self) -> tuple[bool, tuple[str, ...]]:
        """Let the node take new keys from its disk. Returns whether there were any, and what could not be taken."""
        answer = self._run(self._session.ask(control_protocol.ReloadRequest(), control_protocol.ReloadedAnswer))
        return answer.changed, answer.problems

    def stop(self) -> None:
        """Ask the node to finish its work and to stop. Returns when the node has received the request."""
        self._run(self._session.ask(control_protocol.StopRequest(), control_protocol.DoneAnswer))

    def close(self) -> None:
        """End the subscriptions that are not to be kept, and disconnect; takes at most half a minute."""
        try:
            with contextlib.suppress(VeilcastError, TimeoutError):
                self._run(self._session.close(), LEAVE_S)
        finally:
            self._session.fail(LocalError("this client is closed"))
            self._link.close()

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Move bytes until the call returns. Raises `TimeoutError` after `timeout_s` seconds."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with contextlib.closing(call):
            while True:
                self._session.act_on_incoming()
                try:
                    next(call)
                except StopIteration as end:
                    found: T = end.value
                    return found
                self._exchange(deadline)

    def _exchange(self, deadline: float | None) -> None:
        """Send and receive what the socket accepts and has; wait until one of both is possible.

        The results of `send` and `recv` are appended to a list without a Python instruction in between, so no exception
        of a signal handler comes between the bytes that moved and the record of them.
        """
        messages, sent = self._session.outgoing
        events = select.POLLIN | (select.POLLOUT if messages else 0)
        wait_s = _LOOK_S
        if deadline is not None:
            wait_s = min(wait_s, deadline - time.monotonic())
            if wait_s <= 0:
                raise TimeoutError
        poll = select.poll()
        poll.register(self._link, events)
        try:
            for _, event in poll.poll(max(1, wait_s * 1000)):
                if event & select.POLLOUT:
                    sent.extend(map(self._link.send, (b"".join(messages)[sum(sent) :],)))
                    if sum(sent) == sum(map(len, messages)):
                        self._session.outgoing = ([], [])
                if event & ~select.POLLOUT:
                    incoming = self._session.incoming
                    incoming.extend(map(self._link.recv, (_CHUNK,)))
                    if not incoming[-1]:
                        self._session.fail_disconnected()
        except BlockingIOError:
            pass  # The socket has changed its mind; ask it again.
        except OSError:
            self._session.fail_disconnected()


class BlockingSubscription:
    """The notes of one subscription: `for note in subscription`, or `with ... as notes`, which ends it.

    A note is acknowledged when the program asks for the next one or calls `acknowledge`. The node delivers an
    unacknowledged note again, to the next client with the same interest.
    """

    def __init__(self, client: BlockingClient, calls: SubscriptionCalls) -> None:
        self._client, self._calls = client, calls

    def start(self) -> None:
        """Do nothing: `subscribe` has already waited for the node. Mirrors `Subscription.start`."""
        self._client._run(self._calls.start())

    def ready(self, timeout_s: float | None = None) -> None:
        """Return when this subscription receives what is published from now on, as far as the node knows.

        Raises `NotReadyError`, which is also a `TimeoutError`, after `timeout_s` seconds; the subscription stays.
        """
        limit = check_timeout(timeout_s)
        try:
            self._client._run(self._calls.ready(), limit)
        except TimeoutError:
            raise NotReadyError(not_ready_text(limit)) from None

    def waiting(self) -> Waiting | None:
        """Return None if the subscription is ready, otherwise the time from which notes arrive."""
        return self._client._run(self._calls.waiting())

    def __iter__(self) -> BlockingSubscription:
        return self

    def __next__(self) -> Note:
        """Acknowledge the last note, and wait for the next one."""
        note = self._client._run(self._calls.next_note())
        self._calls.handed_out = note
        return note

    def acknowledge(self) -> None:
        """Tell the node not to deliver the last note again. Asking for the next note does the same."""
        self._client._run(self._calls.acknowledge())

    def close(self) -> None:
        """Unsubscribe, unless the subscription is to be kept. The last note stays unacknowledged."""
        self._client._run(self._calls.close())

    def __enter__(self) -> BlockingSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(UnreachableError):  # Without a node, nothing is left to end.
            self.close()


def _connect(path: Path, config: object) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(GREET_S)
        link.connect(str(path))
        link.setblocking(False)
    except BaseException as error:
        link.close()
        if isinstance(error, OSError):
            raise unreachable_error(path, config, error) from error
        raise
    return link


_CHUNK: Final = 1 << 16
_LOOK_S: Final = 1.0
"""Seconds after which a waiting call looks for a signal that came just as the call began to wait."""
