"""Every size on the wire, in bytes unless the name says otherwise. Nothing else in the package writes one down.

An observer sees cells, all of one size. The payload of a cell carries whole small messages or fragments of long ones;
the rest of the datagram is header, counter and tag of the link. `docs/wire-format.md` draws it.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import derive, hash_chain, noise_patterns, seal, sealed_box, sign, topic_token, uniform_seal

TOKEN: Final = topic_token.TOKEN
CHAIN: Final = hash_chain.VALUE
SIGNATURE: Final = sign.SIGNATURE
PUBLIC_KEY: Final = sign.PUBLIC
FINGERPRINT: Final = derive.FINGERPRINT

LOT: Final = 32
"""A member's lot in a lottery: a point of the group."""

LOT_PROOF: Final = 64
"""The proof of a lot, which also signs a statement."""

NOTE_ID: Final = 16
CELL_NAME: Final = topic_token.CELL_NAME

CELL: Final = 1200
"""One datagram on the wire: below the IPv6 minimum MTU of 1,280 with every header."""

CELL_PAYLOAD: Final = 1024

LINK_HEADER: Final = 8
"""Generation and counter of a cell, masked; of a handshake message, its stamp."""

LINK_SAMPLE: Final = uniform_seal.SAMPLE
"""The beginning of the ciphertext, which the mask of the header is made from. No ciphertext is shorter."""

CELL_BODY: Final = CELL - LINK_HEADER - noise_patterns.TAG_SIZE
"""The sealed content of a cell: acknowledgement, chunks and padding."""

DATAGRAM_MIN: Final = LINK_HEADER + noise_patterns.TAG_SIZE
"""The shortest datagram of a session: an empty body, and only where datagrams are cut to size."""

HANDSHAKE_ID: Final = 8
"""The name of one handshake, drawn by its initiator."""

COOKIE: Final = 16

HANDSHAKE_HEADER: Final = 1 + HANDSHAKE_ID + COOKIE + 2
"""Kind, handshake id, cookie and length, before the payload of a handshake message."""

HANDSHAKE_PAYLOAD_MAX: Final = CELL - LINK_HEADER - uniform_seal.OVERHEAD - HANDSHAKE_HEADER
"""The longest message of a handshake; a test builds the largest."""

ADDRESS_MAX: Final = 128
"""An address as text: an onion name with its port has 68 characters, an IPv6 literal with zone fewer."""

NEIGHBOURS_MAX: Final = 64
"""Addresses that one message may hand over."""

SHARED_ADDRESSES_MAX: Final = 8
"""Addresses that a stranger that knocked may be given. A heartbeat that fits this many neighbours fits them too."""

NONCE: Final = 16
PROOF: Final = 32
"""A proof that a node holds the key of its certificate."""

HOPS_MAX: Final = 1024
"""Steps that a walk through the overlay may take."""

LEASE_MS_MAX: Final = (1 << 32) - 1
"""Milliseconds that fit the field of a lease: seven weeks."""

BODY_MAX: Final = 32 * 1024
"""A publication's content before sealing."""

SEALED_BODY_MAX: Final = BODY_MAX + seal.OVERHEAD

BODY_CLASSES: Final = (1024, 4096, 16 * 1024, 36 * 1024)
"""The sizes that a relay's clients pad a whole notification to. The last fits the largest notification, with its
certificates.
"""

PART_MAX: Final = 16 * 1024
"""One part of something too long for a message."""

PARTS_MAX: Final = 1024

HEARTBEAT_MAX: Final = 32
"""Messages that one heartbeat may carry."""

ADVERT_MAX: Final = 1152
"""An advert with anchor, certificate, candidacy and both delegations; a test builds the largest."""


def management_size(neighbours: int, address_bytes: int) -> int:
    """The largest management message: an advert, or a swap that hands over two full sets of neighbours."""
    return max(ADVERT_MAX, 2 * neighbours * (address_bytes + 2) + 128)


def heartbeat_size(neighbours: int, address_bytes: int) -> int:
    """The size that every heartbeat is padded to (P0 4.1): the largest management message, with its wrapping."""
    return management_size(neighbours, address_bytes) + 32


NEARBY_MAX: Final = 7 * NEIGHBOURS_MAX // 4
"""Names in `Surroundings`. Each has a byte more than in the largest message of a swap, which has two full sets."""

REACH_MAX: Final = 8
"""Hops of the overlay over which nodes tell one another who is near (`Surroundings`)."""

MANAGEMENT_MAX: Final = management_size(NEIGHBOURS_MAX, ADDRESS_MAX)

MESSAGE_MAX: Final = 48 * 1024
"""No message is longer, and nothing longer is parsed."""

CARGO_MAX: Final = MESSAGE_MAX - 64
"""The cargo of a stem: a whole message, less the wrapping."""

LENGTH_PREFIX: Final = 4
"""Bytes before the content of a padded block."""

BOX_OVERHEAD: Final = sealed_box.OVERHEAD

PARCEL_SIZES: Final = (2048, 8192, 40_960)
"""Sizes of what parcels contain, padding included. Covers have the first, and so has a publication of up to a thousand
bytes with its certificates."""

PARCEL_SEALED_MAX: Final = PARCEL_SIZES[-1] + BOX_OVERHEAD

LANES: Final = 3
"""Lanes of a link: control messages, short messages, long messages."""

ACKNOWLEDGEMENTS: Final = LANES * 12
"""At the head of a body, for each lane: the number expected next, and a bit for each of the 64 after it."""

CHUNK_HEAD: Final = 6
"""Before the content of a chunk: lane, flags and length in two bytes, the number in four."""

ZEROS_FIELD: Final = 2
"""The number of zeros that were cut off the end of a message; in its last chunk, if there are some."""

CHUNK_MAX: Final = CELL_PAYLOAD
"""The content of one chunk."""

CELL_BODY_MIN: Final = ACKNOWLEDGEMENTS + CHUNK_HEAD + ZEROS_FIELD + CHUNK_MAX
"""A body always fits the largest chunk beside the acknowledgements; the remainder is for small messages."""

SCALAR: Final = 32
POINT: Final = 32
CIPHERTEXT: Final = 64
"""A point under a key, as it travels (`crypto.group.CIPHERTEXT_SIZE`, which takes a tenth of a second to load)."""

BOXED_SCALAR_MAX: Final = 128

SUBJECT_MIN: Final = 32
"""A subject of the relay: one point."""

SUBJECT_MAX: Final = 64
"""A subject of the relay: two points."""

SUBJECTS_MAX: Final = 176
"""Elements of one subscription or publication, in all its groups."""

GROUPS_MAX: Final = 33
"""The declared attributes of a topic, and its name."""

LEASE_NAME: Final = 16
TICKET: Final = 16

MOMENT_MAX: Final = 1 << 62
"""Microseconds; later than anything that ends."""

RELAYED_MAX: Final = 36 * 1024 + 256
"""A publication as the relay carries it: the largest size class, with all its layers."""

ADDRESSEES_MAX: Final = 512
"""Pseudonyms that one delivery may name."""

NODE: Final = FINGERPRINT
"""The name of a node of the tree: the fingerprint of its certified key."""

ENTRY: Final = 16
"""The name of one entry in the routing table of a node of the tree."""

LISTED_MAX: Final = 100_000
"""Nodes that a directory lists."""

PAGE_NODES: Final = 128
"""Nodes on one page of a listing; with the longest addresses a page has 24 KiB."""

PAGES_MAX: Final = -(-LISTED_MAX // PAGE_NODES)

DIRECTORIES_MAX: Final = 8
"""Directories of one tree, and so signatures of one listing."""

DIGEST: Final = 32

CERTIFICATE_MAX: Final = 512
"""A certificate of a statement's author, in DER; a test makes the largest."""

INSTALL_BLOCK: Final = 4 * 1024
"""The layers of one bundle, padded: room for 35 nodes (`tree.bundles.GROUP_MAX`), and one size for all."""

BUNDLE_MAX: Final = 44 * 1024
"""A bundle that travels along the tree itself, as in the paper, and shrinks from hop to hop."""

TAG: Final = 16
"""A tag, which the hardened relay's server and an origin of the hardened tree match on."""

ELEMENT_MAX: Final = 256
"""A plain element in the paper's modes, with its topic's name."""

LABELS: Final = 16
"""The Bloom filter of the labels of the nodes that have forwarded a message: 128 bits."""

INTEREST_MAX: Final = 8 * 1024
"""The interest of a claim, or of a publication, for brokers: tags or predicates."""

SHARING_MAX: Final = 40 * 1024
"""A share in transit with all its statements; after many hops of `paper`, most of it is statements."""

ITEM_MAX: Final = MESSAGE_MAX - 16
"""The content of a session item: a whole message."""
