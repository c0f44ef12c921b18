"""The member's side of `veilcast authority`: makes a request with its own keys, accepts the answer, applies
bulletins."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.authority import bulletin, request
from veilcast.authority.epoch import epoch_of, epochs_in
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import PendingRequest
from veilcast.authority.secret_file import (
    lock_directory,
    open_secret,
    read_secret,
    replace_file,
    rewrite_secret,
    write_secret,
)
from veilcast.authority.struct_codec import encode_struct
from veilcast.authority.topic_record import check_topic
from veilcast.cli import passphrase
from veilcast.cli.authority_show import keyring_report
from veilcast.cli.context import Context, Report
from veilcast.cli.files import asking_file, check_place, check_there, keyring_passphrase, passphrase_file
from veilcast.cli.input_checks import read_file
from veilcast.cli.key_erasure import first_kept_epoch
from veilcast.cli.phrases import format_epoch
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.passphrase import make_lock
from veilcast.errors import AuthorityError, ForgedError, RemoteError


def ask(arguments: argparse.Namespace, context: Context) -> Report:
    keyring_file: Path = arguments.keyring
    if arguments.topic:
        check_topic(arguments.topic)
    check_place(arguments.out)
    check_place(keyring_file, overwrite=True)
    with lock_directory(keyring_file.parent):
        waiting = asking_file(keyring_file)
        if waiting.exists() and not arguments.force:
            raise AuthorityError(f"a request waits for its answer in {waiting}; accept that first, or add --force")
        link, length = None, round(arguments.epoch * 1_000_000)
        if keyring_file.exists():
            secret = keyring_passphrase(context, arguments)
            held = read_secret(keyring_file, Keyring, secret)
            link, length = held.membership.link, held.epoch_us
        first, epochs = epoch_of(context.now_us(), length), epochs_in(arguments.days, length)
        asking = request.make_request(
            arguments.topic, arguments.role, length, first, epochs, context.entropy, link, tls=True
        )
        if link is None:
            option: Path | None = arguments.passphrase_file
            secret = passphrase.new_passphrase(context, str(keyring_file), option, passphrase_file(keyring_file))
        # The private half first: a request whose keys were lost would be worth nothing.
        write_secret(waiting, asking, secret, cost=context.cost, entropy=context.entropy)
        replace_file(arguments.out, encode_struct(asking.request), mode=0o644)
    return Report(
        {"topic": arguments.topic, "role": arguments.role, "out": str(arguments.out), "first_epoch": first},
        [f"wrote {arguments.out}; bring it to the authority, then `veilcast authority accept` its answer"],
    )


def accept(arguments: argparse.Namespace, context: Context) -> Report:
    keyring_file: Path = arguments.keyring
    with lock_directory(keyring_file.parent):
        waiting = asking_file(keyring_file)
        if not waiting.exists():
            raise AuthorityError(f"no request is waiting in {waiting}; make one with `veilcast authority request`")
        secret = keyring_passphrase(context, arguments)
        existing, lock = open_secret(keyring_file, Keyring, secret) if keyring_file.exists() else (None, None)
        try:
            keyring = request.complete_request(
                read_secret(waiting, PendingRequest, secret), read_file(arguments.answer), existing
            )
        except RemoteError as error:
            raise ForgedError(f"{arguments.answer} is no answer to the request that waits here: {error}") from error
        root = fingerprint(keyring.root).hex()
        if arguments.authority not in (None, root):
            raise AuthorityError(f"the answer is of authority {root}, not of {arguments.authority}; nothing was taken")
        if existing is None and arguments.authority is None:
            context.warn(f"this binds the keyring to authority {root}: compare it with what your authority says")
        keyring.erase_past(first_kept_epoch(context.now_us(), keyring.epoch_us))
        # With the lock of the existing file, so that a running node can read what is new.
        lock = lock or make_lock(secret, context.cost, context.entropy)
        rewrite_secret(keyring_file, keyring, lock, context.entropy)
        waiting.unlink()
    return keyring_report(keyring, context, None, f"wrote {keyring_file}")


def apply(arguments: argparse.Namespace, context: Context) -> Report:
    keyring_file: Path = arguments.keyring
    with lock_directory(keyring_file.parent):
        check_there(keyring_file)
        keyring, lock = open_secret(keyring_file, Keyring, keyring_passphrase(context, arguments))
        notice = bulletin.decode_bulletin(read_file(arguments.bulletin))
        changed = bulletin.apply_bulletin(keyring, notice, epoch_of(context.now_us(), keyring.epoch_us))
        if changed != keyring:
            changed.erase_past(first_kept_epoch(context.now_us(), changed.epoch_us))
            rewrite_secret(keyring_file, changed, lock, context.entropy)
    since = format_epoch(notice.effective, keyring.epoch_us)
    done = "applied" if changed != keyring else "changes nothing here"
    return Report(
        {"bulletin": notice.number, "effective_epoch": notice.effective, "changed": changed != keyring},
        [f"bulletin {notice.number}, in force from {since}: {done}"],
    )
