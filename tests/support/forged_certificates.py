"""An adversary with one membership that signs certificates with its own TLS key, as if it were an issuer.

The authority gave the adversary a certificate for a TLS key, and the adversary has that key. It writes certificates for
any name and any role, signed with that key, and shows its own certificate as the issuer's.
"""

from __future__ import annotations

import msgspec
from cryptography import x509

from support.any_certificate import DIRECTORY as DIRECTORY
from support.any_certificate import MEMBER as MEMBER
from support.any_certificate import SERVER as SERVER
from support.any_certificate import certificate
from veilcast.authority.keyring import Keyring
from veilcast.authority.role import Certificates, derive_tls_key
from veilcast.machine import Address
from veilcast.tree import descriptor
from veilcast.tree.membership_proof import MembershipProver
from veilcast.wire.tree import EnrolNode


def forge_certificates(adversary: Keyring, name: bytes, *uses: x509.ObjectIdentifier) -> Certificates:
    """A certificate for this name and role on the adversary's own key, and the adversary's certificate behind it."""
    own, key = adversary.membership.tls[0], derive_tls_key(adversary.membership.link)
    subject = x509.load_der_x509_certificate(own).subject
    return certificate(key, subject, name, key.public, uses[0], uses=uses[1:]), own


def forge_descriptor(adversary: Keyring, victim: bytes, box: bytes, address: Address, now: int) -> EnrolNode:
    """A descriptor under the victim's name, for the victim's box (both are listed), at another address."""
    true = descriptor.build_descriptor(adversary, address, 1, now)
    body = msgspec.msgpack.encode((address, box, true.since_us, now))
    signature = derive_tls_key(adversary.membership.link).sign(body, purpose=b"veilcast/tree-node")
    certificates = forge_certificates(adversary, victim, MEMBER)
    forged = msgspec.structs.replace(true, box=box, certificates=certificates, signature=signature)
    return MembershipProver(adversary).prove(forged)
