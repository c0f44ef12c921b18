"""`veilcast invite`: the authority's side of an invitation, from the code to the grant.

The command waits at an address for one joiner. It holds the authority's passphrase and no lock while it waits: the
state is read again, and written, when the joiner has shown that it knows the code. A sub-authority's directory serves
as well, so the root's key can stay offline.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from veilcast.authority import issuer, request
from veilcast.authority.epoch import epoch_of, epochs_in
from veilcast.authority.issuer import Authority
from veilcast.authority.secret_file import lock_directory, read_secret
from veilcast.authority.topic_keys import TopicRole
from veilcast.authority.topic_record import check_topic
from veilcast.cli.context import Context, Report
from veilcast.cli.files import open_authority, state_file, write_authority
from veilcast.cli.phrases import format_epoch, format_time
from veilcast.cli.shared_network import SharedNetwork, keep_network, load_network, read_network
from veilcast.crypto.secret import Secret
from veilcast.errors import AuthorityError, ConfigError, ExpiredError, UnreachableError, VeilcastError
from veilcast.invitation.code import InvitationCode, draw_code
from veilcast.invitation.inviter import InvitationOver, Inviter, RendezvousOpened, Requested
from veilcast.invitation.messages import InvitationOffer, JoinRequest, Reason
from veilcast.invitation.rendezvous import LIFE_US, sign_permit
from veilcast.machine import Address, Event
from veilcast.nearest import did_you_mean
from veilcast.net.clock import SystemClock
from veilcast.net.invitations import listen_at, own_host, run_to_end


def invite(arguments: argparse.Namespace, context: Context) -> Report:
    arguments.dir = _authority_directory(arguments)
    with lock_directory(arguments.dir):
        authority, secret = open_authority(context, arguments)
    host = _Host(arguments, context, authority, secret)
    clock = SystemClock()
    until = clock.now() + round(arguments.minutes * 60e6)
    via = _rendezvous(arguments, host.network)
    listener, permit = None, b""
    if via:
        place = Address(via)
    else:
        listener, bound = listen_at(arguments.listen or f"{own_host()}:0")
        place = Address(arguments.address or bound)
    try:
        code = draw_code(place, context.entropy, rendezvous=bool(via))
    except ConfigError:
        if listener is not None:
            listener.close()
        raise
    host.told = _announcement(arguments, context, code, until)
    if via:
        permit = sign_permit(authority.key, authority.delegation, code.number, place, until)
    else:
        host.told()
    opened_by = clock.now() + OPEN_US if via else None
    host.machine = Inviter(code, host.offer(), until, context.entropy, permit, opened_by)
    asyncio.run(run_to_end(host.machine, host.handle, clock, listener))
    return host.report()


def _announcement(
    arguments: argparse.Namespace, context: Context, code: InvitationCode, until: int
) -> Callable[[], None]:
    def announce() -> None:
        ends = format_time(until)
        if arguments.json:
            told = {"code": code.format(), "link": code.format_link(), "place": code.place, "until": ends}
            context.say(json.dumps(told))
        else:
            context.say(f"one person can join until {ends}; tell nobody else:")
            context.say(f"  veilcast join {code.format()}")
            context.warn(f"waiting at {code.place}; Ctrl-C takes the invitation back")

    return announce


def _rendezvous(arguments: argparse.Namespace, network: SharedNetwork) -> str:
    """The rendezvous to meet at: the one that is named, or that of the network; none if an address is named."""
    if arguments.via is not None and (arguments.listen is not None or arguments.address is not None):
        raise ConfigError("--via names a rendezvous that both call; leave --listen and --address away")
    via = str(arguments.via or ("" if arguments.listen or arguments.address else network.via))
    if via and arguments.minutes > LIFE_US / 60e6:
        raise ConfigError(f"--minutes: a rendezvous holds an invitation for {LIFE_US / 60e6:g} minutes at most")
    return via


class _Host:
    """The owner of an inviter's machine: it grants what the joiner asks for, if that is what was offered."""

    machine: Inviter
    told: Callable[[], None]
    """Tells the operator the code."""

    def __init__(self, arguments: argparse.Namespace, context: Context, authority: Authority, secret: Secret) -> None:
        self._context, self._secret, self._directory = context, secret, arguments.dir
        self._topic: str = arguments.topic or ""
        self._role: TopicRole = arguments.role or "subscriber"
        if self._topic:
            check_topic(self._topic)
        elif arguments.role is not None:
            raise ConfigError("--role goes with a topic; without one, the member neither publishes nor subscribes")
        if self._topic and self._topic not in authority.topics:
            issuer.declare_label(authority, self._topic, "hardened", context.entropy)
            close = did_you_mean(self._topic, authority.topics)
            context.warn(f"{self._topic!r} is a new topic, which the authority declares when somebody joins{close}")
        self._member: str = arguments.member or _free_name(authority)
        if self._member in authority.members and authority.members[self._member].revoked:
            raise AuthorityError(f"{self._member!r} has been revoked; invite under another name if that is meant")
        self._epochs = epochs_in(arguments.days, authority.epoch_us)
        self._authority = authority
        self.network = _find_network(arguments)
        self._granted: dict[str, Any] | None = None
        self._over: InvitationOver | None = None

    def offer(self) -> InvitationOffer:
        members = sum(not each.revoked for each in self._authority.members.values())
        return InvitationOffer(
            self._authority.root,
            self._authority.epoch_us,
            self._topic,
            self._role,
            self._epochs,
            self._context.now_us(),
            members + (self._member not in self._authority.members),
            self.network.format(),
            dict(self.network.files),
        )

    def handle(self, event: Event, now: int) -> bool:
        if isinstance(event, Requested):
            try:
                reply = self._grant(event.ask)
            except VeilcastError as error:
                self._context.warn(f"the request was refused: {error}")
                self.machine.refuse(str(error), now)
            else:
                self.machine.answer(reply, now)
        elif isinstance(event, RendezvousOpened):
            self.told()
            self.told = lambda: None  # The number is opened again after a broken stream.
        elif isinstance(event, InvitationOver):
            self._over = event
            return True
        return False

    def report(self) -> Report:
        assert self._over is not None
        outcome = self._over.outcome
        if outcome == "burned":
            raise AuthorityError(
                "somebody came with a wrong code, so the invitation is void; nothing was granted: invite again"
            )
        if self._granted is None:
            if outcome == "unreachable":
                raise UnreachableError("the rendezvous does not answer; no code was made: try another, or --listen")
            if self._over.reason is Reason.FORBIDDEN:
                raise AuthorityError(
                    "the rendezvous takes no invitations of this authority, or not by this address; check --via"
                )
            if self._over.reason is Reason.FULL:
                raise UnreachableError("the rendezvous is full; try again later, or another one")
            if outcome == "expired":
                raise ExpiredError("nobody joined in time; nothing was granted: invite again")
            raise AuthorityError("nothing was granted: invite again")
        if outcome != "used":
            raise UnreachableError(
                f"{self._member} was granted what it asked for, and never said that it has it; if it has no keyring,"
                f" revoke {self._member} and invite again"
            )
        what = f"{self._role} of {self._topic}" if self._topic else "member, with no topic,"
        until = format_epoch(self._granted["last_epoch"] + 1, self._authority.epoch_us)
        where = f", at {self._granted['address']}" if self._granted["address"] else ""
        return Report(self._granted, [f"{self._member} is {what} until {until}{where}"])

    def _grant(self, ask: JoinRequest) -> bytes:
        """Decide, write the authority's state, and return the reply."""
        asked = request.decode_request(ask.request)
        if (asked.topic, asked.role) != (self._topic, self._role):
            raise AuthorityError("the request asks for something else than the invitation offers")
        with lock_directory(self._directory):
            authority = read_secret(state_file(self._directory), Authority, self._secret)
            if self._topic:
                authority = issuer.declare_label(authority, self._topic, "hardened", self._context.entropy)
            epoch = epoch_of(self._context.now_us(), authority.epoch_us)
            authority, reply = issuer.grant(authority, self._member, asked, epoch, self._epochs, self._context.entropy)
            write_authority(self._context, self._directory, authority, self._secret)
            keep_network(self._directory, self.network.add_peer(_readable(ask.address)))
        self._granted = {
            "member": self._member,
            "topic": self._topic,
            "role": self._role if self._topic else "",
            "address": _readable(ask.address),
            "last_epoch": asked.first + self._epochs - 1,
        }
        return reply


def _authority_directory(arguments: argparse.Namespace) -> Path:
    directory = Path(arguments.authority or os.environ.get("VEILCAST_AUTHORITY") or "authority")
    if not state_file(directory).exists():
        raise ConfigError(
            f"{directory} holds no authority; name its directory by --authority DIR, or make one with"
            f" `veilcast authority init {directory}`"
        )
    return directory


def _find_network(arguments: argparse.Namespace) -> SharedNetwork:
    """From the file that is named; else what earlier invitations kept; else the node's file in this directory; else a
    new mesh, whose first member is the one invited."""
    here = Path(os.environ.get("VEILCAST_NODE") or "node.toml")
    if arguments.config is not None:
        network = read_network(arguments.config)
    elif (kept := load_network(arguments.dir)) is not None:
        network = kept
    else:
        network = read_network(here) if here.is_file() else SharedNetwork({"mode": "mesh"}, {})
    return network if arguments.via is None else network._replace(via=arguments.via)


def _free_name(authority: Authority) -> str:
    number = 1
    while f"member-{number}" in authority.members:
        number += 1
    return f"member-{number}"


def _readable(address: str) -> str:
    """The address that a joiner gave, if it is one."""
    from veilcast.node.toml_file import check_address

    try:
        return check_address("address", address) if address else ""
    except ConfigError:
        return ""


OPEN_US: Final = 20_000_000
"""How long a rendezvous may take to open a number, in microseconds."""
