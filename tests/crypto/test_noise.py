"""Noise between two honest sides, with an adversary on the path, and with a careless caller."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.crypto import _primitives as primitives
from veilcast.crypto import noise_session
from veilcast.crypto.noise import (
    IK,
    IK_PSK2,
    MAX_MESSAGE,
    XX,
    XX_PSK3,
    Handshake,
    HandshakeRole,
    Keypair,
    NoiseProtocol,
    Receiver,
    Sender,
)
from veilcast.crypto.noise_patterns import CIPHERS, HASHES, PATTERNS
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError, MalformedError, RemoteError
from veilcast.machine import Entropy

OURS = [XX, XX_PSK3, IK, IK_PSK2]
EVERY_NAME = [f"Noise_{p}_25519_{c}_{h}" for p in PATTERNS for c in CIPHERS for h in HASHES]
PSK = Secret(b"p" * 32)


def entropy(seed: int) -> Entropy:
    return random.Random(seed).randbytes


ALICE, BOB, EVE = (Keypair.draw(entropy(seed)) for seed in (1, 2, 3))


def pair(protocol: NoiseProtocol, seed: int = 0, **of_responder: Any) -> tuple[Handshake, Handshake]:
    """Alice and Bob before their handshake; `of_responder` changes what Bob believes."""
    both: dict[str, Any] = {"psk": PSK if protocol.pattern.psk else None, "prologue": b"test"}
    known = BOB.public if protocol.pattern.responder_known else None
    initiator = Handshake(
        protocol,
        HandshakeRole.INITIATOR,
        static=ALICE,
        remote_static=known,
        entropy=entropy(seed + 10),
        **both,
    )
    mine = {"static": BOB, "entropy": entropy(seed + 20), **both, **of_responder}
    return initiator, Handshake(protocol, HandshakeRole.RESPONDER, **mine)


def run(
    initiator: Handshake,
    responder: Handshake,
    on_path: Callable[[int, bytes], bytes] = lambda _, message: message,
) -> list[bytes]:
    """Carry the messages of a whole handshake, through someone on the path; return what was written."""
    writer, reader, written = initiator, responder, []
    for number in range(len(initiator.protocol.pattern.messages)):
        written.append(writer.write())
        reader.read(on_path(number, written[-1]))
        writer, reader = reader, writer
    return written


def channel(protocol: NoiseProtocol = XX) -> tuple[Sender, Receiver]:
    initiator, responder = pair(protocol)
    run(initiator, responder)
    return initiator.split()[0], responder.split()[1]


# --- a handshake that goes well -----------------------------------------------------------------------------


@given(
    name=st.sampled_from(EVERY_NAME),
    seed=st.integers(0, 2**32),
    payloads=st.lists(st.binary(max_size=100), min_size=3, max_size=3),
    prologue=st.binary(max_size=40),
    notes=st.lists(st.tuples(st.booleans(), st.binary(max_size=100), st.binary(max_size=20)), max_size=6),
)
def test_each_side_reads_the_messages_of_the_other(
    name: str, seed: int, payloads: list[bytes], prologue: bytes, notes: list[tuple[bool, bytes, bytes]]
) -> None:
    protocol = NoiseProtocol(name)
    known = BOB.public if protocol.pattern.responder_known else None
    psk = PSK if protocol.pattern.psk else None
    initiator = Handshake(
        protocol,
        HandshakeRole.INITIATOR,
        static=ALICE,
        entropy=entropy(seed),
        remote_static=known,
        psk=psk,
        prologue=prologue,
    )
    responder = Handshake(
        protocol, HandshakeRole.RESPONDER, static=BOB, entropy=entropy(seed + 1), psk=psk, prologue=prologue
    )
    sides = [initiator, responder]
    for number, message in enumerate(protocol.pattern.messages):
        written = sides[number % 2].write(payloads[number], to_anyone=True)
        assert len(written) == message.overhead + len(payloads[number])
        assert sides[1 - number % 2].read(written) == payloads[number]
    assert (initiator.remote_static, responder.remote_static) == (BOB.public, ALICE.public)
    assert initiator.handshake_hash == responder.handshake_hash

    (to_bob, from_bob), (to_alice, from_alice) = initiator.split(), responder.split()
    for to_the_responder, note, context in notes:
        sender, receiver = (to_bob, from_alice) if to_the_responder else (to_alice, from_bob)
        assert receiver.decrypt(sender.encrypt(note, context), context) == note


def test_the_same_entropy_gives_the_same_bytes_and_another_gives_others() -> None:
    assert run(*pair(XX, seed=5)) == run(*pair(XX, seed=5))
    assert not set(run(*pair(XX, seed=5))) & set(run(*pair(XX, seed=6)))


def test_the_handshake_hash_names_one_channel_only() -> None:
    hashes = []
    for seed in range(4):
        initiator, responder = pair(IK, seed=seed * 100)
        run(initiator, responder)
        hashes.append(initiator.handshake_hash)
    assert len(set(hashes)) == len(hashes)


def test_the_initiator_of_xx_can_judge_the_peer_before_it_shows_itself() -> None:
    initiator, responder = pair(XX)
    responder.read(initiator.write())
    initiator.read(responder.write())
    assert initiator.remote_static == BOB.public
    with pytest.raises(LocalError):
        _ = responder.remote_static


def test_sizes_are_as_the_patterns_promise() -> None:
    assert [m.overhead for m in XX.pattern.messages] == [32, 96, 64]
    assert [m.overhead for m in IK.pattern.messages] == [96, 48]
    assert [m.overhead for m in XX_PSK3.pattern.messages] == [48, 96, 64]
    for protocol in OURS:
        assert [len(m) for m in run(*pair(protocol))] == [m.overhead for m in protocol.pattern.messages]


# --- an attacker on the path --------------------------------------------------------------------------------


def tampered(message: bytes) -> Iterator[bytes]:
    """Every message that differs in one bit, every shorter one, and some longer ones."""
    for bit in range(len(message) * 8):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)
    for size in range(len(message)):
        yield message[:size]
    for more in (b"\0", b"\xff", bytes(16), message):
        yield message + more


def swapping(target: int, forgery: bytes) -> Callable[[int, bytes], bytes]:
    return lambda number, message: forgery if number == target else message


def survivors(protocol: NoiseProtocol) -> int:
    """How many tampered handshakes run through to the end; anything but a RemoteError flies."""
    count = 0
    for number, message in enumerate(run(*pair(protocol))):
        for forgery in tampered(message):
            initiator, responder = pair(protocol)
            try:
                run(initiator, responder, swapping(number, forgery))
                count += 1
            except RemoteError:
                assert not (initiator.is_finished and responder.is_finished)
    return count


@pytest.mark.parametrize("protocol", OURS, ids=lambda p: p.name)
def test_no_tampered_handshake_ends_well(protocol: NoiseProtocol) -> None:
    assert survivors(protocol) == 0


def test_the_tampering_test_notices_a_cipher_that_does_not_authenticate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def careless(aead: primitives.Aead, nonce: bytes, ciphertext: bytes, context: bytes) -> bytes:
        keystream = aead.encrypt(nonce, bytes(len(ciphertext) - 16), b"")
        return bytes(a ^ b for a, b in zip(ciphertext[:-16], keystream, strict=False))

    monkeypatch.setattr(primitives, "decrypt", careless)
    assert survivors(IK) > 0


@pytest.mark.parametrize("protocol", OURS, ids=lambda p: p.name)
def test_a_handshake_that_was_sent_garbage_stays_dead(protocol: NoiseProtocol) -> None:
    initiator, responder = pair(protocol)
    genuine = initiator.write()
    with pytest.raises(MalformedError):
        responder.read(genuine[:31])
    for call in (responder.write, responder.split, lambda: responder.read(genuine)):
        with pytest.raises(LocalError):
            call()
    with pytest.raises(LocalError):
        _ = responder.remote_static
    assert not responder.is_finished
    assert "failed" in repr(responder)


@pytest.mark.parametrize("protocol", OURS, ids=lambda p: p.name)
def test_another_prologue_is_refused(protocol: NoiseProtocol) -> None:
    with pytest.raises(ForgedError):
        run(*pair(protocol, prologue=b"other"))


@pytest.mark.parametrize("protocol", [XX_PSK3, IK_PSK2], ids=lambda p: p.name)
def test_another_pre_shared_key_is_refused(protocol: NoiseProtocol) -> None:
    with pytest.raises(ForgedError):
        run(*pair(protocol, psk=Secret(b"q" * 32)))


@pytest.mark.parametrize("protocol", [IK, IK_PSK2], ids=lambda p: p.name)
def test_a_responder_without_the_expected_static_key_learns_nothing(protocol: NoiseProtocol) -> None:
    initiator, impostor = pair(protocol, static=EVE)
    with pytest.raises(ForgedError):
        impostor.read(initiator.write(b"for Bob"))


def test_the_other_protocol_is_refused() -> None:
    initiator, _ = pair(NoiseProtocol("Noise_XX_25519_AESGCM_BLAKE2s"))
    _, responder = pair(XX)
    with pytest.raises(ForgedError):
        run(initiator, responder)


def test_a_reflected_message_is_refused() -> None:
    """Eve answers Alice with Alice's own first message."""
    initiator, _ = pair(IK)
    message = initiator.write()
    with pytest.raises(RemoteError):
        initiator.read(message)


PRIME = 2**255 - 19
OF_ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
SMALL_ORDER = [
    (point | top).to_bytes(32, "little")
    for point in (0, 1, PRIME - 1, PRIME, PRIME + 1, *OF_ORDER_8)
    for top in (0, 2**255)
]


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_a_key_of_small_order_is_refused_when_it_is_read(point: bytes) -> None:
    with pytest.raises(MalformedError):  # It is one: the library refuses it too.
        BOB.agree(point)
    _, responder = pair(XX)
    with pytest.raises(MalformedError):
        responder.read(point)
    with pytest.raises(LocalError):
        Handshake(IK, HandshakeRole.INITIATOR, static=ALICE, entropy=entropy(0), remote_static=point)


def test_a_static_key_of_small_order_is_refused_when_it_is_read() -> None:
    initiator, responder = pair(IK)
    initiator._mine["s"] = cheat = Keypair.draw(entropy(9))
    object.__setattr__(cheat, "public", bytes(32))
    with pytest.raises(MalformedError):
        responder.read(initiator.write())


@given(protocol=st.sampled_from(OURS), step=st.integers(0, 2), data=st.binary(max_size=300))
def test_random_bytes_raise_only_remote_errors(protocol: NoiseProtocol, step: int, data: bytes) -> None:
    initiator, responder = pair(protocol)
    messages = run(*pair(protocol))
    step = min(step, len(messages) - 1)
    writer, reader = initiator, responder
    for _ in range(step):
        reader.read(writer.write())
        writer, reader = reader, writer
    try:
        reader.read(data)
    except RemoteError:
        with pytest.raises(LocalError):
            reader.read(data)
    else:  # The first message of XX is a public key and a payload in clear: there is nothing to check yet.
        assert step == 0
        assert protocol is XX


@given(nonce=st.integers(-2, 2**65), data=st.binary(max_size=100), context=st.binary(max_size=10))
def test_random_bytes_on_a_channel_raise_only_remote_errors(nonce: int, data: bytes, context: bytes) -> None:
    _, receiver = channel()
    with pytest.raises(RemoteError):
        receiver.decrypt(data, context)
    with pytest.raises(RemoteError):
        receiver.decrypt_at(nonce, data, context)


# --- misuse -------------------------------------------------------------------------------------------------


def test_a_call_out_of_turn_is_refused_and_changes_nothing() -> None:
    initiator, responder = pair(XX)
    expected = run(*pair(XX))
    for number, message in enumerate(expected):
        writer, reader = (initiator, responder) if number % 2 == 0 else (responder, initiator)
        with pytest.raises(LocalError):
            writer.read(message)
        with pytest.raises(LocalError):
            reader.write()
        for side in (writer, reader):
            with pytest.raises(LocalError):
                side.split()
            with pytest.raises(LocalError):
                _ = side.handshake_hash
        assert writer.write() == message
        reader.read(message)
    for side in (initiator, responder):
        with pytest.raises(LocalError):
            side.write()
        with pytest.raises(LocalError):
            side.read(expected[0])


def test_the_sessions_are_handed_over_once() -> None:
    initiator, responder = pair(IK)
    run(initiator, responder)
    initiator.split()
    with pytest.raises(LocalError):
        initiator.split()
    assert initiator.handshake_hash == responder.handshake_hash


@pytest.mark.parametrize("protocol", [XX, XX_PSK3], ids=lambda p: p.name)
def test_a_payload_goes_to_an_unproven_peer_only_on_demand(protocol: NoiseProtocol) -> None:
    """In XXpsk3 too, whose first message is encrypted, but under a key that anyone can compute."""
    initiator, responder = pair(protocol)
    with pytest.raises(LocalError, match="unproven"):
        initiator.write(b"who goes there")
    assert responder.read(initiator.write(b"hello", to_anyone=True)) == b"hello"
    with pytest.raises(LocalError, match="unproven"):
        responder.write(b"for whoever asks")
    assert initiator.read(responder.write(b"hello", to_anyone=True)) == b"hello"
    assert responder.read(initiator.write(b"hidden")) == b"hidden"


def test_any_stranger_that_begins_a_handshake_can_read_message_two_of_xx() -> None:
    """Why it needs the demand: Eve has no key that Bob knows, and reads what he answers."""
    eve = Handshake(XX, HandshakeRole.INITIATOR, static=EVE, entropy=entropy(9), prologue=b"test")
    _, responder = pair(XX)
    responder.read(eve.write())
    assert eve.read(responder.write(b"to anyone", to_anyone=True)) == b"to anyone"


@pytest.mark.parametrize("protocol", [IK, IK_PSK2], ids=lambda p: p.name)
def test_every_payload_of_ik_is_for_the_peer_alone(protocol: NoiseProtocol) -> None:
    initiator, responder = pair(protocol)
    assert responder.read(initiator.write(b"hidden")) == b"hidden"
    assert initiator.read(responder.write(b"hidden too")) == b"hidden too"


@pytest.mark.parametrize("protocol", OURS, ids=lambda p: p.name)
def test_keys_are_given_exactly_where_the_pattern_takes_them(protocol: NoiseProtocol) -> None:
    right: dict[str, Any] = {
        "remote_static": BOB.public if protocol.pattern.responder_known else None,
        "psk": PSK if protocol.pattern.psk else None,
    }
    wrong: dict[str, list[Any]] = {
        "remote_static": [b"short", None if protocol.pattern.responder_known else BOB.public],
        "psk": [Secret(b"short"), None if protocol.pattern.psk else PSK],
    }
    Handshake(protocol, HandshakeRole.INITIATOR, static=ALICE, entropy=entropy(0), **right)
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(LocalError):
                Handshake(protocol, HandshakeRole.INITIATOR, static=ALICE, entropy=entropy(0), **{**right, name: value})
    with pytest.raises(LocalError):
        Handshake(
            protocol,
            HandshakeRole.RESPONDER,
            static=BOB,
            entropy=entropy(0),
            psk=right["psk"],
            remote_static=ALICE.public,
        )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "XX",
        "Noise_XX_25519_ChaChaPoly",
        "Noise_NN_25519_ChaChaPoly_BLAKE2s",
        "Noise_XX_448_ChaChaPoly_BLAKE2s",
        "Noise_XX_25519_ChaChaPoly_MD5",
        "Noise_XX_25519_XChaChaPoly_BLAKE2s",
        "noise_XX_25519_ChaChaPoly_BLAKE2s",
        "Noise_XX_25519_ChaChaPoly_BLAKE2s_",
    ],
)
def test_a_protocol_that_we_do_not_speak_is_refused(name: str) -> None:
    with pytest.raises(LocalError):
        NoiseProtocol(name)


def test_a_key_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(LocalError):
        Keypair(Secret(b"short"))
    with pytest.raises(LocalError):
        Keypair.draw(lambda size: bytes(size - 1))


@pytest.mark.parametrize("protocol", OURS, ids=lambda p: p.name)
def test_the_largest_message_passes_and_one_byte_more_does_not(protocol: NoiseProtocol) -> None:
    initiator, responder = pair(protocol)
    room = MAX_MESSAGE - protocol.pattern.messages[0].overhead
    with pytest.raises(LocalError):
        initiator.write(bytes(room + 1), to_anyone=True)
    message = initiator.write(bytes(room), to_anyone=True)  # The refusal has changed nothing.
    assert len(message) == MAX_MESSAGE
    assert responder.read(message) == bytes(room)
    _, another = pair(protocol)
    with pytest.raises(MalformedError):
        another.read(message + b"\0")


def test_no_repr_and_no_error_shows_a_key() -> None:
    initiator, responder = pair(IK_PSK2)
    keys = [entropy(seed)(32) for seed in (1, 2, 10, 20)] + [PSK.reveal()]
    shown = [repr(x) for x in (ALICE, initiator, responder)]
    run(initiator, responder)
    sender, receiver = initiator.split()
    keys += [session._cipher._key.reveal() for session in (sender, receiver)]
    shown += [repr(x) for x in (initiator, sender, receiver)]
    with pytest.raises(ForgedError) as refused:
        receiver.decrypt(bytes(16))
    shown.append(str(refused.value))
    for text in shown:
        assert not any(key.hex() in text or str(key) in text for key in keys)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda c: c.__name__)
def test_nothing_that_counts_nonces_can_be_copied(clone: Callable[[object], object]) -> None:
    for thing in (*pair(XX), *channel()):
        with pytest.raises(LocalError):
            clone(thing)


# --- the channel --------------------------------------------------------------------------------------------


def test_a_refused_message_changes_nothing() -> None:
    sender, receiver = channel()
    message = sender.encrypt(b"one", b"header")
    for forgery in tampered(message):
        with pytest.raises(RemoteError):
            receiver.decrypt(forgery, b"header")
    with pytest.raises(ForgedError):
        receiver.decrypt(message, b"another header")
    assert receiver.decrypt(message, b"header") == b"one"


def test_in_order_means_neither_replays_nor_gaps() -> None:
    sender, receiver = channel()
    one, two = sender.encrypt(b"same"), sender.encrypt(b"same")
    assert one != two
    with pytest.raises(ForgedError):
        receiver.decrypt(two)
    receiver.decrypt(one)
    with pytest.raises(ForgedError):
        receiver.decrypt(one)
    assert receiver.decrypt(two) == b"same"


@given(order=st.permutations(range(6)))
def test_numbered_messages_open_in_any_order(order: list[int]) -> None:
    sender, receiver = channel(NoiseProtocol("Noise_IK_25519_AESGCM_SHA256"))
    messages = []
    for number in range(6):
        assert sender.next_nonce == number
        messages.append(sender.encrypt(bytes([number])))
    for number in order:
        assert receiver.decrypt_at(number, messages[number]) == bytes([number])
        with pytest.raises(ForgedError):
            receiver.decrypt_at(number + 1, messages[number])
    assert receiver.decrypt(messages[0]) == b"\0"  # The count of the stream has not moved.


def test_one_direction_does_not_open_the_other() -> None:
    initiator, responder = pair(XX)
    run(initiator, responder)
    (sender, receiver), _ = initiator.split(), responder.split()
    with pytest.raises(ForgedError):
        receiver.decrypt(sender.encrypt(b"back to me"))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_the_last_nonce_is_never_used_for_a_message(cipher: str) -> None:
    sender, receiver = channel(NoiseProtocol(f"Noise_XX_25519_{cipher}_BLAKE2s"))
    sender._nonce = receiver._nonce = 2**64 - 2
    assert receiver.decrypt(sender.encrypt(b"last")) == b"last"
    for _ in range(2):
        with pytest.raises(LocalError):
            sender.encrypt(b"one too many")
    with pytest.raises(LocalError):
        receiver.decrypt(bytes(16))
    for nonce in (-1, 2**64 - 1, 2**64):
        with pytest.raises(MalformedError):
            receiver.decrypt_at(nonce, bytes(16))


def test_a_message_has_at_most_65535_bytes() -> None:
    sender, receiver = channel()
    with pytest.raises(LocalError):
        sender.encrypt(bytes(MAX_MESSAGE - 15))
    assert sender.next_nonce == 0
    message = sender.encrypt(bytes(MAX_MESSAGE - 16))
    with pytest.raises(MalformedError):
        receiver.decrypt(message + b"\0")
    assert receiver.decrypt(message) == bytes(MAX_MESSAGE - 16)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_rekey_follows_the_definition(cipher: str) -> None:
    """No set of vectors found has a rekey, so this spells out the definition over the plain cipher."""
    sender, receiver = channel(NoiseProtocol(f"Noise_IK_25519_{cipher}_SHA512"))
    makers: dict[str, Callable[[bytes], primitives.Aead]]
    makers = {"AESGCM": primitives.aes_gcm, "ChaChaPoly": primitives.chacha20_poly1305}
    make = makers[cipher]
    key = sender._cipher._key.reveal()
    receiver.decrypt(sender.encrypt(b"before"))
    for count in (1, 2, 3):
        key = make(key).encrypt(bytes(4) + b"\xff" * 8, bytes(32), b"")[:32]
        sender.rekey()
        stale = sender.encrypt(b"after")
        with pytest.raises(ForgedError):
            receiver.decrypt(stale)
        receiver.rekey()
        assert receiver.decrypt(stale) == b"after"
        nonce = bytes(4) + count.to_bytes(8, "big" if cipher == "AESGCM" else "little")
        assert primitives.decrypt(make(key), nonce, stale, b"") == b"after"


def test_no_nonce_comes_twice_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a whole handshake and a channel in use, with encryptions that fail in between."""
    used: list[tuple[bytes, int]] = []
    seal = noise_session.Cipher.seal

    def watched(self: noise_session.Cipher, nonce: int, plaintext: bytes, context: bytes) -> bytes:
        used.append((self._key.reveal(), nonce))
        if plaintext == b"fail":
            raise MemoryError
        return seal(self, nonce, plaintext, context)

    monkeypatch.setattr(noise_session.Cipher, "seal", watched)
    for protocol in OURS:
        used.clear()
        sender, _ = channel(protocol)
        for plaintext in (b"one", b"fail", b"two"):
            try:
                sender.encrypt(plaintext)
            except MemoryError:
                sender.encrypt(b"again")
        sender.rekey()
        sender.encrypt(b"three")
        assert len(used) > 6
        assert len(set(used)) == len(used)
