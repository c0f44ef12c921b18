"""`veilcast authority show`: an authority (a directory), a keyring, a request or a bulletin, without any secret."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veilcast.authority import bulletin, request
from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.secret_file import read_secret
from veilcast.authority.struct_codec import MAGIC_OF
from veilcast.cli.context import Context, Report
from veilcast.cli.files import keyring_passphrase, open_authority
from veilcast.cli.input_checks import read_file
from veilcast.cli.phrases import format_epoch
from veilcast.crypto.derive import fingerprint
from veilcast.crypto.sign import PUBLIC
from veilcast.errors import ExpiredError


def show(arguments: argparse.Namespace, context: Context) -> Report:
    path: Path = arguments.path
    if path.is_dir():
        arguments.dir = path
        return _authority_report(open_authority(context, arguments)[0], arguments.topic)
    magic = read_file(path)[:4]
    if magic == MAGIC_OF["Request"]:
        return _request_report(request.decode_request(read_file(path)))
    if magic == MAGIC_OF["Bulletin"]:
        return _bulletin_report(bulletin.decode_bulletin(read_file(path)))
    arguments.keyring = path
    keyring = read_secret(path, Keyring, keyring_passphrase(context, arguments))
    return keyring_report(keyring, context, arguments.topic, f"keyring {path}")


def keyring_report(keyring: Keyring, context: Context, only: str | None, title: str) -> Report:
    now = epoch_of(context.now_us(), keyring.epoch_us)
    held = keyring.keys_at(now)
    if only is not None:
        held.topic(only)
    grants: list[dict[str, Any]] = [
        {"topic": record.topic, "role": grant.role, "first_epoch": grant.first, "last_epoch": grant.last(record)}
        for grant, record in keyring.records()
        if only in (None, record.topic)
    ]
    if grants and all(grant["last_epoch"] < now for grant in grants):
        raise ExpiredError("every grant of this keyring has ended; ask the authority for new ones")
    from veilcast.authority.tls_identity import (
        role_of_keyring,  # Here, because X.509 takes a tenth of a second to load.
    )

    standing = role_of_keyring(keyring)
    data = {"authority": fingerprint(keyring.root).hex(), "epoch": now, "standing": standing, "grants": grants}
    until = format_epoch(keyring.membership.certificate.leaf.last + 1, keyring.epoch_us)
    lines = [f"{title}, of authority {data['authority']}", f"  {standing or 'member'} until {until}"]
    for grant in grants:
        lines.append(
            f"  {grant['role']} of {grant['topic']} until {format_epoch(grant['last_epoch'] + 1, keyring.epoch_us)}"
        )
    return Report(data, lines)


def _authority_report(authority: Authority, only: str | None) -> Report:
    names = [authority.topic(only).record.topic] if only is not None else sorted(authority.topics)
    topics: list[dict[str, Any]] = [
        {
            "topic": name,
            "profile": authority.topics[name].record.profile,
            "cover_share": authority.topics[name].record.cover_share,
            "attributes": [domain.attribute for domain in authority.topics[name].record.schema.domains],
        }
        for name in names
    ]
    members: list[dict[str, Any]] = [
        {
            "member": name,
            "revoked": member.revoked,
            "grants": [
                {"topic": given.topic, "role": given.role, "first_epoch": given.first, "last_epoch": given.last}
                for given in member.given
                if given.topic in names
            ],
        }
        for name, member in sorted(authority.members.items())
    ]
    name = fingerprint(authority.key.public).hex()
    data = {
        "fingerprint": name,
        "epoch_s": authority.epoch_us / 1e6,
        "group": authority.group,
        "topics": topics,
        "members": members,
        "bulletins": authority.bulletins,
        "delegated": sorted(authority.delegated),
    }
    lines = [f"authority {name}, epochs of {authority.epoch_us / 1e6:g} s, {authority.bulletins} bulletins"]
    lines += [f"  topic   {t['topic']} ({t['profile']}, cover {t['cover_share']})" for t in topics]
    for member in members:
        until = [format_epoch(g["last_epoch"] + 1, authority.epoch_us) for g in member["grants"]]
        held = ", ".join(f"{g['role']} of {g['topic']} until {u}" for g, u in zip(member["grants"], until, strict=True))
        lines.append(
            f"  member  {member['member']}: {'revoked' if member['revoked'] else held or 'a member, with no topic'}"
        )
    lines += [f"  group   {group}/... is a sub-authority's" for group in sorted(authority.delegated)]
    return Report(data, lines)


def _request_report(asked: request.Request) -> Report:
    epochs = len(asked.publisher_keys) // PUBLIC
    data = {
        "request": {"topic": asked.topic, "role": asked.role, "first_epoch": asked.first, "epochs": epochs},
        "epoch_s": asked.epoch_us / 1e6,
        "link": fingerprint(asked.link).hex(),
    }
    what = f"to be {asked.role} of {asked.topic}" if asked.topic else "for a membership"
    keys = f", with keys for {epochs} epochs" if epochs else ""
    return Report(data, [f"request {what} from {format_epoch(asked.first, asked.epoch_us)} on{keys}"])


def _bulletin_report(notice: bulletin.Bulletin) -> Report:
    data = {
        "bulletin": notice.number,
        "effective_epoch": notice.effective,
        "void": len(notice.void),
        "entries": len(notice.entries) // bulletin.ENTRY,
    }
    line = f"bulletin {notice.number}, in force from epoch {notice.effective}: {data['void']} keys void, "
    return Report(data, [f"{line}{data['entries']} entries for the remaining members (signature not checked)"])
