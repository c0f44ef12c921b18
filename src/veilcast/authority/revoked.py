"""The void keys a node knows of: what a forwarder checks certificates against.

A name counts only against certificates of the authority that voided it: no sub-authority can shut out the members of
another. A name is forgotten when its certificate would have ended anyway. When there are more than `limit`, those that
end soonest go first.
"""

from __future__ import annotations

from veilcast.authority.bulletin import Bulletin
from veilcast.crypto.certificate import Chain
from veilcast.crypto.derive import fingerprint
from veilcast.errors import ForgedError, LocalError


class Revoked:
    """Fed with bulletins, asked about certificates."""

    def __init__(self, root: bytes, limit: int) -> None:
        if limit < 1:
            raise LocalError("a list of revoked keys has room for at least one")
        self._root, self._limit = root, limit
        self._void: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    def add(self, bulletin: Bulletin, epoch: int) -> None:
        """Take the names of a bulletin; raises unless the root or a delegate of it signed it."""
        signer = bulletin.verify(self._root, epoch)
        for void in bulletin.void:
            self._void.setdefault((signer, void.name), (bulletin.effective, void.last))
        self._void = {key: times for key, times in self._void.items() if times[1] >= epoch}
        if len(self._void) > self._limit:
            lasting = sorted(self._void.items(), key=lambda item: (-item[1][1], item[0]))
            self._void = dict(lasting[: self._limit])

    def check(self, chain: Chain, epoch: int) -> None:
        """Raise `ForgedError` if the certified key, or that of the delegate who certified it, is void in this epoch."""
        issuer = self._root if chain.delegation is None else chain.delegation.subject
        self.check_key(issuer, fingerprint(chain.leaf.subject), epoch)

    def check_key(self, issuer: bytes, name: bytes, epoch: int) -> None:
        """The same for a key of this fingerprint, certified by this issuer."""
        if issuer != self._root:
            self._refuse(self._root, fingerprint(issuer), epoch)
        self._refuse(issuer, name, epoch)

    def __len__(self) -> int:
        return len(self._void)

    def _refuse(self, issuer: bytes, name: bytes, epoch: int) -> None:
        effective, _ = self._void.get((issuer, name), (epoch + 1, 0))
        if epoch >= effective:
            raise ForgedError("the key has been revoked")
