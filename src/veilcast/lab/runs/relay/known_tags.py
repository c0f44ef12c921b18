"""The dictionary of a relay's server: every tag of a topic that it can compute with its own keys and one ally's.

1. A hardened tag is k_r xs H(element), where the element is keyed with the topic's key of the epoch
   (`relay.subject_tags`). The server has k_r. It lacks the mask xs, which proxies have, and the keys of topics, which
   members have.
2. The server may be a member of every topic, in every epoch; or a proxy may have given it the mask. Not both: then it
   can compute everything, and the hardened relay claims nothing.
3. So it tries each recipe that leaves one of the two secrets out: elements with the keys of any epoch, without the
   mask; and plain elements, with the mask or without. The last is the recipe of the paper's relay.

The tags of a relay that leaves out the mask, or the keys of elements, are in this dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from veilcast.core.match_elements import key_element, qualify_element
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.relay.subject_tags import blind_element, tag_of
from veilcast.topics import TOPIC
from veilcast.topics.elements import string_element


def compute_known_tags(topic: str, k_r: Scalar, mask: Scalar, keys_of_member: Iterable[Secret]) -> Iterator[bytes]:
    """Tags of the topic's label; `keys_of_member` are the keys of its elements, by epoch."""
    plain = string_element(TOPIC, topic)
    public = (plain, qualify_element(topic, plain))
    for element in (*public, *(key_element(key, plain) for key in keys_of_member)):
        yield tag_of(blind_element(element, k_r))
    for element in public:
        yield tag_of(blind_element(element, k_r * mask))
