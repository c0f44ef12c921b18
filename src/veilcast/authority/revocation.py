"""The void keys that a node checks certificates against.

A name counts only against certificates of the authority that voided it, so no sub-authority can revoke the members of
another. A name is forgotten when its certificate would have ended anyway, or when the delegation of its signer ends.

Claim: no sub-authority can evict the names that the root or another sub-authority has voided.
Reason: the root has `limit` places of its own. All sub-authorities together have as many, in equal shares: a
sub-authority gets more than an equal share only while others leave theirs empty. A signer with too many names loses its
own, those that end soonest first.
"""

from __future__ import annotations

from typing import Final

from veilcast.authority.bulletin import Bulletin
from veilcast.crypto.certificate import EPOCH_MAX, CertificateChain
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ForgedError, LocalError


class RevokedKeys:
    """Takes bulletins, and checks certificates against them."""

    def __init__(self, root: bytes, limit: int) -> None:
        if limit < 1:
            raise LocalError("a list of revoked keys has room for at least one")
        self._root: Final = root
        self._limit: Final = limit
        self._void: dict[bytes, dict[bytes, tuple[int, int]]] = {}
        """Void names by the key that signed the bulletin, with the first and the last epoch in which each is void."""

    def add(self, bulletin: Bulletin, epoch: int) -> None:
        """Take the names of a bulletin. Raises unless the root or a delegate of it signed it."""
        signer = bulletin.verify(self._root, epoch)
        end = EPOCH_MAX if bulletin.delegation is None else bulletin.delegation.last
        names = self._void.setdefault(signer, {})
        for void in bulletin.void:
            names.setdefault(void.name, (bulletin.effective, min(void.last, end)))
        for signer, names in list(self._void.items()):
            self._void[signer] = {name: times for name, times in names.items() if times[1] >= epoch}
        self._trim([self._root])
        self._trim([signer for signer in self._void if signer != self._root])
        self._void = {signer: names for signer, names in self._void.items() if names}

    def check(self, chain: CertificateChain, epoch: int) -> None:
        """Raise `ForgedError` if the certified key, or that of the delegate that certified it, is void in this
        epoch.
        """
        issuer = self._root if chain.delegation is None else chain.delegation.subject
        self.check_key(issuer, fingerprint(chain.leaf.subject), epoch)

    def check_key(self, issuer: bytes, name: bytes, epoch: int) -> None:
        """The same for a key of this fingerprint, certified by this issuer."""
        if issuer != self._root:
            self._refuse(self._root, fingerprint(issuer), epoch)
        self._refuse(issuer, name, epoch)

    def __len__(self) -> int:
        return sum(map(len, self._void.values()))

    def _trim(self, signers: list[bytes]) -> None:
        """Leave these signers `limit` names in all. A signer with few names leaves the rest of its share to others."""
        left = self._limit
        for index, signer in enumerate(sorted(signers, key=lambda each: (len(self._void.get(each, ())), each))):
            names = self._void.get(signer, {})
            share = left // (len(signers) - index)
            if len(names) > share:
                lasting = sorted(names.items(), key=lambda item: (-item[1][1], item[0]))
                names = self._void[signer] = dict(lasting[:share])
            left -= len(names)

    def _refuse(self, issuer: bytes, name: bytes, epoch: int) -> None:
        effective, _ = self._void.get(issuer, {}).get(name, (epoch + 1, 0))
        if epoch >= effective:
            raise ForgedError("the key has been revoked")
