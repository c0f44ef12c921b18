"""`veilcast join`: from a code to a member's keyring and node, and with `--now` to a running node.

The keys are made here and never leave. Every file is written before the inviter is told that the keyring is stored; if
the command is interrupted before that, the same command with the same code asks the same again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any, Final, cast

from veilcast.authority import request
from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import PendingRequest
from veilcast.authority.secret_file import lock_directory, open_secret, rewrite_secret
from veilcast.authority.struct_codec import encode_struct
from veilcast.authority.topic_keys import TopicRole
from veilcast.cli import passphrase
from veilcast.cli.context import Context, Report
from veilcast.cli.files import asking_file, check_place, make_directory, passphrase_file
from veilcast.cli.key_erasure import first_kept_epoch
from veilcast.cli.phrases import format_epoch, pluralize
from veilcast.cli.shared_network import SharedNetwork, parse_offer, write_member_files
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.passphrase import PassphraseLock, make_lock
from veilcast.crypto.secret import Secret
from veilcast.crypto.sign import PUBLIC
from veilcast.errors import AuthorityError, ConfigError, ForgedError, StorageError, UnreachableError
from veilcast.invitation.code import parse_code
from veilcast.invitation.joiner import Granted, Invited, Joiner, JoinFailed, JoinFinished
from veilcast.invitation.messages import InvitationOffer, JoinRequest, Reason
from veilcast.machine import Event
from veilcast.net.clock import SystemClock
from veilcast.net.invitations import free_udp_address, own_host, run_to_end
from veilcast.node.config import NodeConfig, load_config
from veilcast.node.modes import mode_of


def join(arguments: argparse.Namespace, context: Context) -> Report:
    code = parse_code(_read_code(arguments, context))
    directory: Path = arguments.dir
    make_directory(directory)
    for name in (KEYRING, "node.toml"):
        if (directory / name).exists():
            raise StorageError(f"{directory / name} is there already: a node lives here; name another directory: --dir")
    check_place(directory / KEYRING)
    clock = SystemClock()
    with lock_directory(directory):
        guest = _Guest(arguments, context, directory, str(code.place))
        guest.machine = Joiner(code, context.entropy, clock.now(), PATIENCE_US)
        asyncio.run(run_to_end(guest.machine, guest.handle, clock))
    report = guest.report()
    if not arguments.now:
        return report
    return _run_now(report, guest.secret, arguments, context)


class _Guest:
    """The owner of a joiner's machine: it makes the request, and the files of what was granted."""

    machine: Joiner
    offer: InvitationOffer
    network: SharedNetwork

    def __init__(self, arguments: argparse.Namespace, context: Context, directory: Path, place: str) -> None:
        self._context, self._directory, self._place = context, directory, place
        self._listen: str | None = arguments.listen
        self._address: str | None = arguments.address
        self._extra: dict[str, Any] = {} if self._address is None else {"address": self._address}
        if arguments.danger_no_tor:
            self._extra["tor"] = {"danger_off": True}
        self._keyring_file = directory / KEYRING
        self._pending, self.secret, self._lock = self._open_pending(arguments)
        self._keyring: Keyring | None = None
        self._config: NodeConfig | None = None

    def handle(self, event: Event, now: int) -> bool:
        match event:
            case Invited(offer=offer):
                self.machine.ask(self._make_request(offer), now)
            case Granted(reply=reply):
                self._store(reply)
                self.machine.finish(now)
            case JoinFailed():
                raise _explain(event, self._place)
            case JoinFinished():
                return True
        return False

    def report(self) -> Report:
        assert self._keyring is not None
        assert self._config is not None
        offer, keyring = self.offer, self._keyring
        leaf = keyring.membership.certificate.leaf
        until = format_epoch(leaf.last + 1, keyring.epoch_us)
        what = f"{offer.role} of {offer.topic}" if offer.topic else "member, with no topic"
        path = self._directory / "node.toml"
        run = "veilcast node run" if self._directory == Path() else f"veilcast node run -c {path}"
        hidden = _describe_hiding(self._config)
        lines = [f"joined: {what} until {until}, mode {self._config.mode}, authority {fingerprint(offer.root).hex()}"]
        lines.append(f"hidden: {hidden}")
        if offer.members < FEW_MEMBERS:
            lines.append(
                f"warning: the group has at most {pluralize(offer.members, 'member')};"
                f" below {FEW_MEMBERS} members expect to be guessed"
            )
        lines.append(f"wrote {path} and {self._keyring_file}; start the node: {run}")
        data = {
            "authority": fingerprint(offer.root).hex(),
            "topic": offer.topic,
            "role": offer.role if offer.topic else "",
            "mode": self._config.mode,
            "members": offer.members,
            "last_epoch": leaf.last,
            "address": self._config.public_address,
            "config": str(path),
            "keyring": str(self._keyring_file),
        }
        return Report(data, lines)

    def _open_pending(self, arguments: argparse.Namespace) -> tuple[PendingRequest | None, Secret, PassphraseLock]:
        """The request of an interrupted `join`, if there is one, and the passphrase of what is stored here."""
        waiting, beside = asking_file(self._keyring_file), passphrase_file(self._keyring_file)
        what = str(self._keyring_file)
        if waiting.exists():
            secret = passphrase.read_passphrase(self._context, what, arguments.passphrase_file, beside)
            pending, lock = open_secret(waiting, PendingRequest, secret)
            return pending, secret, lock
        secret = passphrase.new_passphrase(self._context, what, arguments.passphrase_file, beside)
        return None, secret, make_lock(secret, self._context.cost, self._context.entropy)

    def _make_request(self, offer: InvitationOffer) -> JoinRequest:
        if offer.role not in ("publisher", "subscriber"):
            raise AuthorityError(f"the invitation is for a {offer.role!r}, which this version does not know")
        self.offer, self.network = offer, parse_offer(offer)
        self._check_clock(offer)
        if mode_of(self.network.mode).driver == "udp" and self._listen is None:
            towards = None if ".onion:" in self._place else self._place
            self._listen = free_udp_address(own_host(towards), FIRST_PORT)
        role = cast(TopicRole, offer.role)
        first = epoch_of(self._context.now_us(), offer.epoch_us)
        pending = self._pending
        if pending is None or not _fits(pending.request, offer, first):
            pending = request.make_request(
                offer.topic, role, offer.epoch_us, first, offer.epochs, self._context.entropy, tls=True
            )
            rewrite_secret(asking_file(self._keyring_file), pending, self._lock, self._context.entropy)
        self._pending = pending
        is_called = mode_of(self.network.mode).driver == "udp"
        return JoinRequest(encode_struct(pending.request), (self._address or self._listen or "") if is_called else "")

    def _store(self, reply: bytes) -> None:
        assert self._pending is not None
        keyring = request.complete_request(self._pending, reply, None)
        if keyring.root != self.offer.root:
            raise ForgedError("the reply is of another authority than the invitation; nothing was joined")
        keyring.erase_past(first_kept_epoch(self._context.now_us(), keyring.epoch_us))
        rewrite_secret(self._keyring_file, keyring, self._lock, self._context.entropy)
        try:
            self._config = write_member_files(self._directory, self.network, KEYRING, self._listen, self._extra)
        except ConfigError as error:
            raise ConfigError(
                f"the keyring is in {self._keyring_file}, but the node's file that was offered is wrong: {error}"
            ) from error
        asking_file(self._keyring_file).unlink(missing_ok=True)
        self._keyring = keyring

    def _check_clock(self, offer: InvitationOffer) -> None:
        ahead_s = (self._context.now_us() - offer.now_us) / 1e6
        if abs(ahead_s) > CLOCKS_S:
            way = "ahead of" if ahead_s > 0 else "behind"
            self._context.warn(
                f"this computer's clock is {abs(ahead_s):.0f} s {way} the inviter's; set it, or no link will open"
            )


def _read_code(arguments: argparse.Namespace, context: Context) -> str:
    """The code of the command line, where other users of this computer may see it; or of the terminal or a pipe."""
    words: list[str] = arguments.code
    if words and words != ["-"]:
        return " ".join(words)
    if not words and context.has_terminal():
        return context.ask_secret("code: ")
    return context.read_input()[:_TYPED_MAX].decode("utf-8", "replace")


def _run_now(report: Report, secret: Secret, arguments: argparse.Namespace, context: Context) -> Report:
    from veilcast.cli.node import run_node  # Only `--now` pays for it.

    for line in [json.dumps(report.data, sort_keys=True)] if arguments.json else report.lines:
        context.say(line)
    config = load_config(arguments.dir / "node.toml")
    return run_node(config, secret, arguments, context)


def _describe_hiding(config: NodeConfig) -> str:
    """How well the member is hidden now, in one line."""
    if config.profile != "hardened":
        return "hardly; the profile paper is for experiments"
    if config.tor.danger_off:
        return "not at all; without Tor everybody on the way sees who talks to whom"
    return _HIDDEN.get(config.mode, "this version knows nothing of that mode")


def _fits(asked: request.Request, offer: InvitationOffer, epoch: int) -> bool:
    """Whether a request that was made before is one that this offer would be answered for."""
    same = (asked.topic, asked.role, asked.epoch_us) == (offer.topic, offer.role, offer.epoch_us)
    keys = len(asked.publisher_keys) // PUBLIC
    return same and epoch - 1 <= asked.first <= epoch and keys in (0, offer.epochs)


def _explain(failed: JoinFailed, place: str) -> Exception:
    if failed.text:
        text = failed.text if failed.text.isprintable() else "it gives no readable reason"
        return AuthorityError(f"the authority refuses: {text}")
    if failed.reason is Reason.WRONG_CODE:
        return AuthorityError("the code is wrong, and the invitation is void now; ask for another one")
    if failed.reason is Reason.OVER:
        return AuthorityError("the invitation was used or is over; ask for another one")
    if failed.reason is not None:
        return UnreachableError(
            "the place where the inviter should wait does not know this invitation; ask whether it still waits"
        )
    match failed.said:
        case "unreachable":
            return UnreachableError(
                f"nobody answers at {place}; ask whether the inviter still waits, and whether this network reaches it"
            )
        case "silent":
            return UnreachableError(f"{place} answers, but not as an inviter does; try again, or ask for another code")
        case _:
            return ForgedError(
                f"what answers at {place} does not know the code, or somebody stands between; ask for another code"
            )


KEYRING: Final = "member.keys"
FIRST_PORT: Final = 4000
PATIENCE_US: Final = 40_000_000
FEW_MEMBERS: Final = 20
CLOCKS_S: Final = 30
_TYPED_MAX: Final = 4096
_HIDDEN: Final = {
    "mesh": "an observer of your line sees that you take part, and neither what you read nor what you publish",
    "relay": "the proxy sees your address and no topic; the server sees equal tags and no address",
    "tree": "other nodes see your onion name; an observer sees that you use Tor",
    "foil": "the broker sees your address and every value, and not which one is true",
    "brokers": "your edge brokers see your address; fewer than half of them cannot read what you get",
}
"""What the mode hides in the profile `hardened`; the table of the README in one line each."""
