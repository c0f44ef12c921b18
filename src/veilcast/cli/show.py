"""`veilcast authority show`: an authority (a directory) or a keyring (a file), without a secret in sight."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veilcast.authority.epoch import epoch_of
from veilcast.authority.issuer import Authority
from veilcast.authority.keyring import Keyring
from veilcast.authority.vault import read_secret
from veilcast.cli.context import Context, Report
from veilcast.cli.files import keyring_passphrase, open_authority
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ExpiredError


def show(arguments: argparse.Namespace, context: Context) -> Report:
    path: Path = arguments.path
    if path.is_dir():
        arguments.dir = path
        return _authority_report(open_authority(context, arguments)[0], arguments.topic)
    arguments.keyring = path
    keyring = read_secret(path, Keyring, keyring_passphrase(context, arguments))
    return keyring_report(keyring, context, arguments.topic, f"keyring {path}")


def keyring_report(keyring: Keyring, context: Context, only: str | None, title: str) -> Report:
    now = epoch_of(context.now_us(), keyring.epoch_us)
    held = keyring.at(now)
    if only is not None:
        held.topic(only)
    grants: list[dict[str, Any]] = [
        {"topic": record.topic, "role": grant.role, "first_epoch": grant.first, "last_epoch": grant.last(record)}
        for grant, record in keyring.records()
        if only in (None, record.topic)
    ]
    if grants and all(grant["last_epoch"] < now for grant in grants):
        raise ExpiredError("every grant of this keyring has ended; ask the authority for new ones")
    data = {"authority": fingerprint(keyring.root).hex(), "epoch": now, "grants": grants}
    lines = [f"{title}, of authority {data['authority']}, now epoch {now}"]
    lines += [f"  {g['role']} of {g['topic']}, epochs {g['first_epoch']} to {g['last_epoch']}" for g in grants]
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
        held = ", ".join(f"{g['role']} of {g['topic']} to epoch {g['last_epoch']}" for g in member["grants"])
        lines.append(f"  member  {member['member']}: {'revoked' if member['revoked'] else held or 'nothing'}")
    lines += [f"  group   {group}/... is a sub-authority's" for group in sorted(authority.delegated)]
    return Report(data, lines)
