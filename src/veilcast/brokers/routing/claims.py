"""Claims: what a client publishes or wants, and how a broker that knows nobody checks that it was granted.

Pure. An advertisement shows the publisher's certificate for its epoch, and is signed with the certified key; it names
the topic's reader key, whose private half comes from the topic's content key: all its readers have it, and nobody else.
A subscription is signed with that. So whoever knows a fitting advertisement can check a subscription (P4, Theorem 3: no
key goes where nobody was granted the topic), and learns of its sender only that it is one of the topic's readers.

A claim ends with its epoch, after one of grace; `paper`, where a topic has one key for ever, has leases instead. Until
then its client can withdraw it, with a key drawn for this one claim: two claims have nothing in common.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import TopicKeys, check_publisher_chain
from veilcast.crypto.derive import derive
from veilcast.crypto.sign import SIGNATURE, SigningKey, verify
from veilcast.errors import ForgedError, LocalError, MalformedError, StaleError
from veilcast.wire.brokers import BringClaim, Claim, ClaimKind, WithdrawClaim


def subscriber_key(keys: TopicKeys) -> SigningKey:
    """What the topic's readers of this epoch sign with, all alike."""
    return SigningKey(derive(keys.content, b"vc/brokers-reads"))


def make_advertisement(
    keys: TopicKeys, edge: bytes, epoch: int, until_us: int, interest: bytes, holder: bytes
) -> Claim:
    """A publisher's. `interest` is in the language of the profile (`language`); `holder` is a public key."""
    if keys.signing is None or keys.certificate is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can publish on it")
    reader = subscriber_key(keys).public
    claim = Claim(
        ClaimKind.ADVERTISEMENT,
        edge,
        epoch,
        until_us,
        interest,
        holder,
        keys.certificate,
        reader,
        bytes(SIGNATURE),
    )
    return _proven(claim, keys.signing)


def make_subscription(keys: TopicKeys, edge: bytes, epoch: int, until_us: int, interest: bytes, holder: bytes) -> Claim:
    """A reader's."""
    claim = Claim(ClaimKind.SUBSCRIPTION, edge, epoch, until_us, interest, holder, None, None, bytes(SIGNATURE))
    return _proven(claim, subscriber_key(keys))


def make_bring(claim: Claim, holder: SigningKey, replica: bytes) -> BringClaim:
    """The claim, to the replica of this key, by whoever drew its holder's key."""
    return BringClaim(claim, holder.sign(claim.id + replica, purpose=_BRING))


def make_withdraw(claim: bytes, holder: SigningKey) -> WithdrawClaim:
    """The end of the claim of this id, by whoever drew its holder's key."""
    return WithdrawClaim(claim, holder.sign(claim, purpose=_WITHDRAW))


def check_times(claim: Claim, hardened: bool, epoch_us: int, lease_us: int, now: int) -> None:
    """`StaleError` for a claim that is over, or reaches further than one may."""
    if claim.until_us <= now:
        raise StaleError("a claim that has ended")
    if hardened:
        if not abs(epoch_of(now, epoch_us) - claim.epoch) <= GRACE_EPOCHS or claim.until_us > latest_expiry_us(
            claim.epoch, epoch_us
        ):
            raise StaleError("a claim of another epoch, or for more than one")
    elif claim.until_us > now + lease_us:
        raise StaleError("a claim that reaches too far ahead")


def latest_expiry_us(epoch: int, epoch_us: int) -> int:
    """How far a claim of this epoch may reach: to its end, and one of grace."""
    return (epoch + 1 + GRACE_EPOCHS) * epoch_us


def check_advertisement(claim: Claim, root: bytes) -> None:
    """Raise unless the authority certified who signed it."""
    if claim.kind is not ClaimKind.ADVERTISEMENT or claim.chain is None or claim.reader is None:
        raise MalformedError("an advertisement shows a certificate and a reader key")
    check_publisher_chain(claim.chain, root, claim.epoch)
    verify(claim.chain.leaf.subject, claim.body, claim.proof, purpose=_CLAIM)


def check_subscription(claim: Claim, reader: bytes) -> None:
    """Raise unless somebody signed it who has the key that this advertisement's readers have."""
    if claim.kind is not ClaimKind.SUBSCRIPTION or claim.chain is not None or claim.reader is not None:
        raise MalformedError("a subscription shows nothing but its proof")
    verify(reader, claim.body, claim.proof, purpose=_CLAIM)


def check_bring(brought: BringClaim, replica: bytes) -> None:
    """Raise unless the holder of the claim gave it to this replica: others hear it on its way, and have none of it."""
    verify(brought.claim.holder, brought.claim.id + replica, brought.signature, purpose=_BRING)


def check_withdraw(withdrawn: WithdrawClaim, claim: Claim) -> None:
    if withdrawn.claim != claim.id:
        raise ForgedError("the end of another claim")
    verify(claim.holder, withdrawn.claim, withdrawn.signature, purpose=_WITHDRAW)


def _proven(claim: Claim, signing: SigningKey) -> Claim:
    return msgspec.structs.replace(claim, proof=signing.sign(claim.body, purpose=_CLAIM))


GRACE_EPOCHS: Final = 1
"""Epochs."""

_CLAIM: Final = b"veilcast/claim"
_BRING: Final = b"veilcast/bring"
_WITHDRAW: Final = b"veilcast/withdraw"
