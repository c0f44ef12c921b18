"""Mutators that know the structure of an input: MessagePack, text of tokens, and scripts of records.

A byte-wise mutator breaks a length before it changes anything of interest. The one for MessagePack finds the values of
an input by their spans, replaces, wraps, doubles, drops or exchanges one of them, and repairs the counts around it; or
it makes just one count or length wrong. In an input that is not whole MessagePack, only the part that parses is
mutated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from support.fuzz.fuzz_script import read_script, script
from support.fuzz.fuzz_seeds import INVALID_UTF8, JSON_TOKENS, SCALARS, TOML_TOKENS, TRUNCATED_HEADS
from support.fuzz.fuzz_target import Format, Prepared

Mutate = Callable[[bytes, int, Random], bytes]
AFRESH = 0.4
"""Share of mutations that begin with a valid example: most of a corpus is refused early, in one of many ways."""


def mutator(prepared: Prepared) -> Mutate:
    """A function of an input, the largest size and a generator of random numbers."""
    match prepared.format:
        case Format.MSGPACK:
            inner: Mutate = mutate_msgpack
        case Format.JSON:
            inner = _text_mutator([*JSON_TOKENS, *prepared.tokens])
        case Format.TOML:
            inner = _text_mutator([*TOML_TOKENS, *prepared.tokens])
        case Format.SCRIPT:
            inner = lambda data, size, rng: mutate_script(data, size, rng, prepared.skip)  # noqa: E731
        case Format.BYTES:
            inner = mutate_bytes
    skip = 0 if prepared.format is Format.SCRIPT else prepared.skip

    valid = [example for example in prepared.examples if len(example) <= prepared.max_len]

    def mutate(data: bytes, size: int, rng: Random) -> bytes:
        if valid and rng.random() < AFRESH:
            data = rng.choice(valid)
        head, body = data[:skip], data[skip:]
        if skip and rng.random() < 0.02:
            head = mutate_bytes(head, skip, rng)
        for _ in range(1 + (rng.random() < 0.3) + (rng.random() < 0.1)):
            body = inner(body, size - skip, rng)
        return (head + body)[:size]

    return mutate


class Node(NamedTuple):
    """One value of MessagePack: where it starts, where its content starts, where it ends."""

    start: int
    body: int
    end: int
    family: str
    many: int
    """Elements of an array, pairs of a map, bytes of a text."""
    parent: int


def parse_msgpack(data: bytes, most: int = 2000) -> list[Node]:
    """Parse at most this many values of an input, in the order of their starts, the outermost first."""
    nodes: list[Node] = []
    open_nodes: list[list[int]] = []  # index, values that are still to come
    at, size = 0, len(data)
    while at < size and len(nodes) < most:
        family, body, count, within = _head(data, at)
        parent = open_nodes[-1][0] if open_nodes else -1
        end = min(size, body + within)
        nodes.append(Node(at, body, end, family, count, parent))
        at = end
        if family in ("array", "map") and count:
            open_nodes.append([len(nodes) - 1, count * (2 if family == "map" else 1)])
            continue
        while open_nodes:
            open_nodes[-1][1] -= 1
            if open_nodes[-1][1]:
                break
            index, _ = open_nodes.pop()
            nodes[index] = nodes[index]._replace(end=at)
        if not open_nodes:
            break
    for index, _ in open_nodes:
        nodes[index] = nodes[index]._replace(end=at)
    return nodes


def mutate_msgpack(data: bytes, size: int, rng: Random) -> bytes:
    nodes = parse_msgpack(data)
    if not nodes:
        return rng.choice(SCALARS)
    index = rng.randrange(len(nodes))
    node = nodes[index]
    old = data[node.start : node.end]
    act = rng.randrange(14)
    if act == 0:
        new = rng.choice(SCALARS)
    elif act == 1:
        new = _nest(old, size, rng)
    elif act == 2:
        new = rng.choice((b"\x91", b"\x92\xc0", b"\x81\xa1a", b"\x81")) + old
    elif act in (3, 4):
        return _resize(data, nodes, node, rng, 1 if act == 3 else -1)
    elif act == 5:
        new = _miscount(node, data, rng)
    elif act == 6:
        other = rng.choice(nodes)
        new = data[other.start : other.end]
    elif act == 7:
        return data[: rng.choice((node.start, node.body, node.end))]
    elif act in (8, 9, 10):
        new = _content(node, data, size, rng)
    elif act == 11:
        other = rng.choice(nodes)
        if other.start < node.start:
            node, other = other, node
        if other.start < node.end:
            new = b"\xc0"
        else:
            between = data[node.end : other.start]
            return data[: node.start] + data[other.start : other.end] + between + old + data[other.end :]
    elif act == 12:
        new = _number(node, data, rng)
    else:
        new = rng.choice(TRUNCATED_HEADS)
    return data[: node.start] + new + data[node.end :]


def mutate_script(data: bytes, size: int, rng: Random, skip: int = 1) -> bytes:
    """Doubles, drops, exchanges or changes records; content is a type byte and MessagePack, or any bytes."""
    records = read_script(data) or [(0, b"")]
    at = rng.randrange(len(records))
    step, content = records[at]
    act = rng.randrange(8)
    if act == 0:
        records.insert(rng.randrange(len(records) + 1), records[at])
    elif act == 1 and len(records) > 1:
        del records[at]
    elif act == 2:
        other = rng.randrange(len(records))
        records[at], records[other] = records[other], records[at]
    elif act == 3:
        records[at] = (rng.randrange(256), content)
    elif act == 4:
        records[at] = (step, mutate_bytes(content, size, rng))
    else:
        records[at] = (step, content[:skip] + mutate_msgpack(content[skip:], size, rng))
    return script(records)


def mutate_bytes(data: bytes, size: int, rng: Random) -> bytes:
    """Flips, inserts, removes, copies and truncates; writes boundary numbers in both byte orders."""
    changed = bytearray(data)
    at = rng.randrange(len(changed) + 1)
    act = rng.randrange(7)
    if act == 0 and changed:
        changed[at % len(changed)] ^= 1 << rng.randrange(8)
    elif act == 1:
        changed[at:at] = rng.randbytes(rng.randrange(1, 9))
    elif act == 2:
        del changed[at : at + rng.randrange(1, 9)]
    elif act == 3:
        start = rng.randrange(len(changed) + 1)
        changed[at:at] = changed[start : start + rng.randrange(1, 65)]
    elif act == 4:
        del changed[at:]
    elif act == 5:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice((0, 1, (1 << 8 * width) - 1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1, len(changed)))
        written = (number % (1 << 8 * width)).to_bytes(width, rng.choice(("big", "little")))
        changed[at : at + width] = written
    else:
        changed[at : at + 4] = rng.choice(INVALID_UTF8)
    return bytes(changed[:size])


def _text_mutator(words: list[str]) -> Mutate:
    def mutate(data: bytes, size: int, rng: Random) -> bytes:
        if rng.random() < 0.1:
            return mutate_bytes(data, size, rng)
        tokens = _TOKEN.findall(data.decode("utf-8", "surrogateescape"))
        at = rng.randrange(len(tokens) + 1)
        act = rng.randrange(7)
        if act == 0:
            tokens[at : at + 1] = [rng.choice(words)]
        elif act == 1:
            tokens.insert(at, rng.choice(words))
        elif act == 2:
            del tokens[at : at + rng.choice((1, 1, 2, 5))]
        elif act == 3:
            start = rng.randrange(len(tokens) + 1)
            tokens[at:at] = tokens[start : start + rng.randrange(1, 12)]
        elif act == 4:
            opening, closing = rng.choice((("[", "]"), ("{", "}"), ('{"a":', "}"), ("{a = ", "}")))
            depth = rng.choice((1, 10, 100, 1000, 1500))
            inner = tokens[at] if at < len(tokens) else "1"
            tokens[at : at + 1] = [opening * depth, inner, closing * depth]
        elif act == 5 and len(tokens) > 1:
            other = rng.randrange(len(tokens))
            at = min(at, len(tokens) - 1)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        else:
            del tokens[at:]
        return "".join(tokens).encode("utf-8", "surrogateescape")[:size]

    return mutate


def _head(data: bytes, at: int) -> tuple[str, int, int, int]:
    """Family, start of the content, count, and bytes of content that are no values themselves."""
    byte = data[at]
    if byte <= 0x7F or byte >= 0xE0:
        return "int", at + 1, 0, 0
    if byte <= 0x8F:
        return "map", at + 1, byte & 0x0F, 0
    if byte <= 0x9F:
        return "array", at + 1, byte & 0x0F, 0
    if byte <= 0xBF:
        return "str", at + 1, byte & 0x1F, byte & 0x1F
    family, width, fixed = _HEADS[byte - 0xC0]
    body = at + 1 + width
    count = int.from_bytes(data[at + 1 : body], "big")
    if family in ("array", "map"):
        return family, body, min(count, len(data)), 0
    if family in ("str", "bin", "ext"):
        count = fixed if not width else count
        return family, body, count, count + (family == "ext")
    return family, body, 0, fixed


def _write_head(family: str, count: int) -> bytes:
    count %= 1 << 32
    if family in ("array", "map") and count < 16:
        return bytes(((0x90 if family == "array" else 0x80) | count,))
    if family in ("str", "bin") and count < 256:
        return bytes((0xD9 if family == "str" else 0xC4, count))
    short, long = {"array": (0xDC, 0xDD), "map": (0xDE, 0xDF), "str": (0xDA, 0xDB), "bin": (0xC5, 0xC6)}[family]
    return bytes((short,)) + count.to_bytes(2, "big") if count < 1 << 16 else bytes((long,)) + count.to_bytes(4, "big")


def _nest(old: bytes, size: int, rng: Random) -> bytes:
    depth = min(rng.choice((10, 100, 1000, 1500, 3000)), max(1, size - len(old)))
    return rng.choice((b"\x91", b"\x81\xa1a")) * depth + rng.choice((old, b"\xc0", b""))


def _resize(data: bytes, nodes: list[Node], node: Node, rng: Random, by: int) -> bytes:
    """Double a value or drop it, and correct the count of the array or map around it."""
    old = data[node.start : node.end]
    if node.parent < 0:
        return data + old if by > 0 else data[: node.start] + data[node.end :]
    parent = nodes[node.parent]
    if parent.family == "map" and rng.random() < 0.5:
        by *= 2  # Leaves keys and values in step, more or less.
        old += old
    head = _write_head(parent.family, max(0, parent.many + (by // 2 if abs(by) > 1 else by)))
    copies = old if by > 0 else b""
    kept = data[node.start : node.end] if by > 0 else b""
    return data[: parent.start] + head + data[parent.body : node.start] + kept + copies + data[node.end :]


def _miscount(node: Node, data: bytes, rng: Random) -> bytes:
    """Make a count or length wrong, and leave the content as it is."""
    content = data[node.body : node.end]
    if node.family not in ("array", "map", "str", "bin"):
        return rng.choice((b"\xdc\x00\x02", b"\x92", b"\xa5", b"\xc4\x05")) + content
    count = rng.choice((node.many - 1, node.many + 1, 0, (1 << 16) - 1, 1 << 16, (1 << 32) - 1))
    return _write_head(node.family, max(0, count)) + content


def _content(node: Node, data: bytes, size: int, rng: Random) -> bytes:
    """Replace a text or bytes by other content or another length, and any other value by a scalar."""
    if node.family not in ("str", "bin"):
        return rng.choice(SCALARS)
    content = data[node.body : node.end]
    act = rng.randrange(8)
    if act == 0:
        content = content[:-1]
    elif act == 1:
        content += b"\0"
    elif act == 2:
        content = b""
    elif act == 3:
        content = rng.choice(INVALID_UTF8)
    elif act == 4:
        content = content * rng.choice((2, 10, 100))
    elif act == 5 and content:
        content = mutate_msgpack(content, size, rng)  # Sealed or signed parts are often MessagePack themselves.
    elif act == 6 and len(content) > 1:
        content = content[:1] + mutate_msgpack(content[1:], size, rng)
    else:
        content = mutate_bytes(content, size, rng)
    content = content[: max(0, size)]
    family = node.family if rng.random() < 0.9 else ("bin" if node.family == "str" else "str")
    return _write_head(family, len(content)) + content


def _number(node: Node, data: bytes, rng: Random) -> bytes:
    """A number next to this one, or next to a power of two."""
    if node.family != "int":
        return rng.choice(SCALARS)
    value = data[node.start] if node.body == node.start + 1 else int.from_bytes(data[node.body : node.end], "big")
    value = rng.choice((value - 1, value + 1, value * 2, (1 << rng.randrange(64)) - 1, 1 << rng.randrange(64)))
    return b"\xcf" + (value % (1 << 64)).to_bytes(8, "big") if value >= 0 else b"\xd3" + b"\xff" * 8


_HEADS = (
    ("nil", 0, 0), ("never", 0, 0), ("bool", 0, 0), ("bool", 0, 0), ("bin", 1, 0), ("bin", 2, 0), ("bin", 4, 0),
    ("ext", 1, 0), ("ext", 2, 0), ("ext", 4, 0), ("float", 0, 4), ("float", 0, 8), ("int", 0, 1), ("int", 0, 2),
    ("int", 0, 4), ("int", 0, 8), ("int", 0, 1), ("int", 0, 2), ("int", 0, 4), ("int", 0, 8), ("ext", 0, 1),
    ("ext", 0, 2), ("ext", 0, 4), ("ext", 0, 8), ("ext", 0, 16), ("str", 1, 0), ("str", 2, 0), ("str", 4, 0),
    ("array", 2, 0), ("array", 4, 0), ("map", 2, 0), ("map", 4, 0),
)  # fmt: skip
"""For the bytes from 0xc0 to 0xdf: family, bytes of the count, bytes of content if that is fixed."""
_TOKEN = re.compile(r"\"(?:[^\"\\]|\\.)*\"|[\w.+-]+|\s+|.", re.DOTALL)
