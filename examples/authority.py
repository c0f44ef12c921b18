"""An authority, a publisher and a subscriber exchange a sealed note; then the authority revokes one of them.

The program hands in time (an epoch) and entropy itself, as the command line does for you.
"""

import os

from veilcast import ForgedError
from veilcast.authority import bulletin, issuer
from veilcast.authority.topic_keys import TopicRole
from veilcast.crypto.seal import seal, unseal

EPOCH, DAY = 500_000, 24

authority = issuer.create(epoch_us=3_600_000_000, entropy=os.urandom)
authority = issuer.declare_label(authority, "news/eu", "hardened", os.urandom)
rings = {}
roles: dict[str, TopicRole] = {"paula": "publisher", "sam": "subscriber", "mallory": "subscriber"}
for name, role in roles.items():
    authority, rings[name] = issuer.grant_ready(authority, name, [("news/eu", role)], EPOCH, DAY, os.urandom)

paula, sam = (rings[name].keys_at(EPOCH).topic("news/eu") for name in ("paula", "sam"))
sealed = seal(paula.content, b"hello", context=paula.token, entropy=os.urandom)
print("sam reads:", unseal(sam.content, sealed, context=sam.token).decode())

authority = issuer.revoke(authority, "mallory", None, EPOCH, os.urandom)
notice = authority.bulletin
assert notice is not None
paula, sam = (
    bulletin.apply_bulletin(rings[name], notice, EPOCH).keys_at(EPOCH + 1).topic("news/eu") for name in ("paula", "sam")
)
sealed = seal(paula.content, b"without mallory", context=paula.token, entropy=os.urandom)
print("sam reads:", unseal(sam.content, sealed, context=sam.token).decode())
try:
    unseal(rings["mallory"].keys_at(EPOCH + 1).topic("news/eu").content, sealed, context=sam.token)
except ForgedError as error:
    print("mallory:", error)
