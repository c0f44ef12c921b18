"""The member's side of `veilcast authority`: asking with keys of its own, taking the answer, applying bulletins."""

from __future__ import annotations

import argparse
from pathlib import Path

from veilcast.authority import bulletin, request
from veilcast.authority.epoch import epoch_of, epochs_in
from veilcast.authority.keyring import Keyring
from veilcast.authority.request import Asking
from veilcast.authority.vault import read_secret, write_secret, write_whole
from veilcast.cli import passphrase
from veilcast.cli.context import Context, Report
from veilcast.cli.files import asking_file, check_place, keyring_passphrase, passphrase_file, read_file
from veilcast.cli.show import keyring_report
from veilcast.errors import AuthorityError


def ask(arguments: argparse.Namespace, context: Context) -> Report:
    check_place(arguments.out)
    check_place(arguments.keyring, overwrite=True)
    link = None
    if arguments.keyring.exists():
        secret = keyring_passphrase(context, arguments)
        link = read_secret(arguments.keyring, Keyring, secret).membership.link
    else:
        secret = passphrase.fresh(
            context, str(arguments.keyring), arguments.passphrase_file, passphrase_file(arguments.keyring)
        )
    length = round(arguments.epoch * 1_000_000)
    first = epoch_of(context.now_us(), length)
    asking, asked = request.ask(
        arguments.topic, arguments.role, first, epochs_in(arguments.days, length), context.entropy, link
    )
    # The private half first: a request whose keys were lost would be worth nothing.
    write_secret(asking_file(arguments.keyring), asking, secret, cost=context.cost, entropy=context.entropy)
    write_whole(arguments.out, request.encode(asked), mode=0o644)
    return Report(
        {"topic": arguments.topic, "role": arguments.role, "out": str(arguments.out), "first_epoch": first},
        [f"wrote {arguments.out}; bring it to the authority, then `veilcast authority accept` its answer"],
    )


def accept(arguments: argparse.Namespace, context: Context) -> Report:
    keyring_file: Path = arguments.keyring
    waiting = asking_file(keyring_file)
    if not waiting.exists():
        raise AuthorityError(f"no request is waiting beside {keyring_file}; make one with `veilcast authority request`")
    secret = keyring_passphrase(context, arguments)
    existing = read_secret(keyring_file, Keyring, secret) if keyring_file.exists() else None
    keyring = request.complete(read_secret(waiting, Asking, secret), read_file(arguments.answer), existing)
    write_secret(keyring_file, keyring, secret, cost=context.cost, entropy=context.entropy)
    waiting.unlink()
    return keyring_report(keyring, context, None, f"wrote {keyring_file}")


def apply(arguments: argparse.Namespace, context: Context) -> Report:
    secret = keyring_passphrase(context, arguments)
    keyring = read_secret(arguments.keyring, Keyring, secret)
    notice = bulletin.decode(read_file(arguments.bulletin))
    changed = bulletin.apply(keyring, notice, epoch_of(context.now_us(), keyring.epoch_us))
    write_secret(arguments.keyring, changed, secret, cost=context.cost, entropy=context.entropy)
    return Report(
        {"bulletin": notice.number, "effective_epoch": notice.effective, "changed": changed != keyring},
        [f"bulletin {notice.number} applied to {arguments.keyring}; in force from epoch {notice.effective}"],
    )
