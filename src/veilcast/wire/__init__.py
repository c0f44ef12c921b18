"""Messages on the wire: frozen values, one codec, and every size in one place."""

from veilcast.wire.codec import decode, encode
from veilcast.wire.padding import pad, unpad

__all__ = ["decode", "encode", "pad", "unpad"]
