"""Claims: what a client publishes or subscribes to, and how a broker that knows no member checks its permission.

An advertisement contains the publisher's certificate for its epoch and is signed with the certified key. It names the
topic's subscriber key. The private half of that key is derived from the topic's content key, which exactly the topic's
subscribers have. A subscription is signed with it.

Property: a broker that knows a matching advertisement can check a subscription (P4, Theorem 3: no key goes where no
member was granted the topic). It learns only that the sender is one of the topic's subscribers.
Assumption: no subscriber of the topic passes on its content key.
Reason: only subscribers of the topic have its content key, and all of them derive the same signing key from it.

A claim expires with its epoch, after one epoch of grace. In `paper` a topic has one key for ever, and claims have
leases instead. Until it expires, its client can withdraw the claim with a key drawn for this one claim, so two claims
have nothing in common.
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
    """The signing key that all subscribers of the topic share in this epoch."""
    return SigningKey(derive(keys.content, b"vc/brokers-reads"))


def make_advertisement(
    keys: TopicKeys, edge: bytes, epoch: int, until_us: int, interest: bytes, holder: bytes
) -> Claim:
    """A publisher's claim. `interest` is encoded by the profile's codec (`claim_semantics`); `holder` is a public
    key."""
    if keys.signing is None or keys.certificate is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can publish on it")
    subscriber = subscriber_key(keys).public
    claim = Claim(
        ClaimKind.ADVERTISEMENT,
        edge,
        epoch,
        until_us,
        interest,
        holder,
        keys.certificate,
        subscriber,
        bytes(SIGNATURE),
    )
    return _with_proof(claim, keys.signing)


def make_subscription(keys: TopicKeys, edge: bytes, epoch: int, until_us: int, interest: bytes, holder: bytes) -> Claim:
    """A subscriber's claim."""
    claim = Claim(ClaimKind.SUBSCRIPTION, edge, epoch, until_us, interest, holder, None, None, bytes(SIGNATURE))
    return _with_proof(claim, subscriber_key(keys))


def make_bring(claim: Claim, holder: SigningKey, replica: bytes) -> BringClaim:
    """The claim, addressed to the replica with this key, signed with the claim's holder key."""
    return BringClaim(claim, holder.sign(claim.id + replica, purpose=_BRING))


def make_withdraw(claim: bytes, holder: SigningKey) -> WithdrawClaim:
    """The withdrawal of the claim with this id, signed with the claim's holder key."""
    return WithdrawClaim(claim, holder.sign(claim, purpose=_WITHDRAW))


def check_times(claim: Claim, hardened: bool, epoch_us: int, lease_us: int, now: int) -> None:
    """`StaleError` for a claim that has expired, or that expires too far in the future."""
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
    """Latest expiry of a claim of this epoch: the end of the epoch, plus the grace."""
    return (epoch + 1 + GRACE_EPOCHS) * epoch_us


def check_advertisement(claim: Claim, root: bytes) -> None:
    """Raise unless the authority certified the signer."""
    if claim.kind is not ClaimKind.ADVERTISEMENT or claim.chain is None or claim.reader is None:
        raise MalformedError("an advertisement contains a certificate and a subscriber key")
    check_publisher_chain(claim.chain, root, claim.epoch)
    verify(claim.chain.leaf.subject, claim.body, claim.proof, purpose=_CLAIM)


def check_subscription(claim: Claim, key: bytes) -> None:
    """Raise unless the signer has the subscriber key of this advertisement."""
    if claim.kind is not ClaimKind.SUBSCRIPTION or claim.chain is not None or claim.reader is not None:
        raise MalformedError("a subscription shows nothing but its proof")
    verify(key, claim.body, claim.proof, purpose=_CLAIM)


def check_bring(brought: BringClaim, replica: bytes) -> None:
    """Raise unless the claim's holder addressed it to this replica. Other replicas see the claim in transit, and cannot
    use it."""
    verify(brought.claim.holder, brought.claim.id + replica, brought.signature, purpose=_BRING)


def check_withdraw(withdrawn: WithdrawClaim, claim: Claim) -> None:
    if withdrawn.claim != claim.id:
        raise ForgedError("the end of another claim")
    verify(claim.holder, withdrawn.claim, withdrawn.signature, purpose=_WITHDRAW)


def _with_proof(claim: Claim, signing: SigningKey) -> Claim:
    return msgspec.structs.replace(claim, proof=signing.sign(claim.body, purpose=_CLAIM))


GRACE_EPOCHS: Final = 1

_CLAIM: Final = b"veilcast/claim"
_BRING: Final = b"veilcast/bring"
_WITHDRAW: Final = b"veilcast/withdraw"
