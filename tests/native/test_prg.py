"""AES-128, the counter-mode streams and masked products: FIPS-197, SP 800-38A, `cryptography`, Python integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import ppca.native._kernels as k

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")


@pytest.fixture(params=k.fss_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    k.force_fss(request.param)
    yield request.param
    k.force_fss("auto")


def encrypt(key: bytes, blocks: bytes) -> bytes:
    out = np.zeros(len(blocks), np.uint8)
    k.aes_blocks(out, k.Key(key), np.frombuffer(blocks, np.uint8))
    return out.tobytes()


def oracle(key: bytes, blocks: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks)


def stream(key: bytes, op: int, purpose: int, words: int) -> list[int]:
    """The stream as 64-bit words, from the definition."""
    blocks = (words + 1) // 2
    text = b"".join(op.to_bytes(8, "little") + (purpose << 48 | i).to_bytes(8, "little") for i in range(blocks))
    return np.frombuffer(oracle(key, text), "<u8")[:words].tolist()


def random_words(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 2**64, shape, dtype=np.uint64)


def to_ints(a: np.ndarray) -> list[int]:
    """Ring elements (last axis = limbs, low first) as Python integers."""
    return [sum(int(w) << (64 * i) for i, w in enumerate(row)) for row in a.reshape(-1, a.shape[-1]).tolist()]


# FIPS-197 appendix B and C.1; SP 800-38A F.1.1 (ECB-AES128).
VECTORS = [
    ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "6bc1bee22e409f96e93d7e117393172a", "3ad77bb40d7a3660a89ecaf32466ef97"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "ae2d8a571e03ac9c9eb76fac45af8e51", "f5d3d58503b9699de785895a96fdbaaf"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "30c81c46a35ce411e5fbc1191a0a52ef", "43b1cd7f598ece23881b00e3ed030688"),
    ("2b7e151628aed2a6abf7158809cf4f3c", "f69f2445df4f9b17ad2b417be66c3710", "7b0c785e27e8ad3f8223207104725dd4"),
]


@pytest.mark.parametrize(("key", "plain", "cipher"), VECTORS)
def test_published_vectors(level: str, key: str, plain: str, cipher: str) -> None:
    assert encrypt(bytes.fromhex(key), bytes.fromhex(plain)).hex() == cipher


def test_counter_mode_vector(level: str) -> None:
    """SP 800-38A F.5.1: the counter blocks are big endian there, so they go through the block function."""
    first = int("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 16)
    pad = encrypt(KEY, b"".join((first + i).to_bytes(16, "big") for i in range(4)))
    plain = bytes.fromhex("".join(v[1] for v in VECTORS[2:]))
    expected = (
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee"
    )
    assert bytes(a ^ b for a, b in zip(pad, plain, strict=True)).hex() == expected


def test_every_byte_in_every_position(level: str) -> None:
    """All 256 S-box inputs at all 16 positions, as text and as key."""
    text = b"".join(bytes([value if i == at else 0 for i in range(16)]) for at in range(16) for value in range(256))
    assert encrypt(KEY, text) == oracle(KEY, text)
    for value in range(256):
        key = bytes((value + 17 * i) % 256 for i in range(16))
        assert encrypt(key, bytes(16)) == oracle(key, bytes(16))


@pytest.mark.parametrize("blocks", [0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000])
def test_blocks_against_cryptography(level: str, blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    key, text = rng.bytes(16), rng.bytes(16 * blocks)
    assert encrypt(key, text) == (oracle(key, text) if blocks else b"")


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 15, 16, 17, 31, 33, 64, 127, 129, 1000])
def test_prg_is_the_documented_stream(level: str, n: int, limbs: int) -> None:
    out = np.zeros((n, limbs), np.uint64)
    k.prg(out, k.Key(KEY), 2**64 - 3, 65535)
    assert out.reshape(-1).tolist() == stream(KEY, 2**64 - 3, 65535, n * limbs)


def test_prg_does_not_write_past_the_end(level: str) -> None:
    out = np.full((40, 1), 7, np.uint64)
    k.prg(out[:21], k.Key(KEY), 1, 2)
    assert (out[21:] == 7).all()


def test_prg_on_threads_is_the_same_stream(level: str) -> None:
    whole, again = np.zeros((2, 300_001, 1), np.uint64)
    k.set_threads(1)
    k.prg(whole, k.Key(KEY), 9, 1)
    k.set_threads(3)
    k.prg(again, k.Key(KEY), 9, 1)
    k.set_threads(2)
    assert (whole == again).all()


def test_prg_streams_are_balanced() -> None:
    """Every bit position over 20,000 elements is within 6 sigma of one half; different addresses give new streams."""
    n = 20_000
    out = np.zeros((n, 2), np.uint64)
    k.prg(out, k.Key(KEY), 5, 0)
    ones = np.unpackbits(out.view(np.uint8).reshape(n, 16), axis=1).sum(axis=0)
    assert (np.abs(ones - n / 2) < 6 * np.sqrt(n) / 2).all()
    for op, purpose in [(5, 1), (6, 0)]:
        other = np.zeros((n, 2), np.uint64)
        k.prg(other, k.Key(KEY), op, purpose)
        assert not (other == out).all(axis=1).any()


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 5, 16, 17, 33, 64, 65, 200])
def test_masks(level: str, n: int, limbs: int) -> None:
    rng = np.random.default_rng(n)
    modulus = 1 << (64 * limbs)
    other = bytes(range(16))
    x, y = random_words(rng, n, limbs), random_words(rng, n, limbs)
    a = to_ints(np.array(stream(KEY, 77, 0, n * limbs), np.uint64).reshape(n, limbs))
    b = to_ints(np.array(stream(other, 77, 1, n * limbs), np.uint64).reshape(n, limbs))
    for sign_a, sign_b in [(1, 1), (1, -1), (-1, 1), (-1, -1)]:
        out_a, out_b = np.zeros((2, n, limbs), np.uint64)
        k.mask2(out_a, out_b, x, k.Key(KEY), 77, sign_a, k.Key(other), sign_b)
        assert to_ints(out_a) == [(t + sign_a * m) % modulus for t, m in zip(to_ints(x), a, strict=True)]
        assert to_ints(out_b) == [(t + sign_b * m) % modulus for t, m in zip(to_ints(x), b, strict=True)]
        products = [p * q for p, q in zip(to_ints(x), to_ints(y), strict=True)]
        k.mul_mask2(out_a, out_b, x, y, k.Key(KEY), 77, sign_a, k.Key(other), sign_b)
        assert to_ints(out_a) == [(t + sign_a * m) % modulus for t, m in zip(products, a, strict=True)]
        assert to_ints(out_b) == [(t + sign_b * m) % modulus for t, m in zip(products, b, strict=True)]


def test_masks_may_overwrite_their_input(level: str) -> None:
    rng = np.random.default_rng(3)
    x, y = random_words(rng, 100, 2), random_words(rng, 100, 2)
    key = k.Key(KEY)
    a, b = np.zeros((2, 100, 2), np.uint64)
    k.mul_mask2(a, b, x, y, key, 1, 1, key, -1)
    k.mul_mask2(x, y, x, y, key, 1, 1, key, -1)
    assert (x == a).all()
    assert (y == b).all()


def test_masks_on_threads(level: str) -> None:
    n = 30_011
    x = random_words(np.random.default_rng(4), n, 1)
    key = k.Key(KEY)
    results = []
    for threads in (1, 3):
        k.set_threads(threads)
        a, b = np.zeros((2, n, 1), np.uint64)
        k.mask2(a, b, x, key, 1, 1, key, -1)
        results.append((a, b))
    k.set_threads(2)
    assert (results[0][0] == results[1][0]).all()
    assert (results[0][1] == results[1][1]).all()


def test_bad_arguments_name_the_argument() -> None:
    key = k.Key(KEY)
    a = np.zeros((4, 2), np.uint64)
    with pytest.raises(ValueError, match="key has 15 bytes, expected 16"):
        k.Key(bytes(15))
    with pytest.raises(ValueError, match="purpose is 65536"):
        k.prg(a, key, 0, 65536)
    with pytest.raises(ValueError, match="out"):
        k.prg(np.zeros((4, 4), np.uint64)[:, ::2], key, 0, 0)
    with pytest.raises(ValueError, match="out_b has 6 uint64 items, expected 8"):
        k.mask2(a, a[:3], a, key, 0, 1, key, 1)
    with pytest.raises(ValueError, match="y has 6 uint64 items, expected 8"):
        k.mul_mask2(a, a, a, a[:3], key, 0, 1, key, 1)
    with pytest.raises(ValueError, match="sign_b is 2, expected 1 or -1"):
        k.mask2(a, a, a, key, 0, 1, key, 2)
    with pytest.raises(ValueError, match="1 or 2 limbs"):
        k.mask2(a.reshape(-1, 8), a, a, key, 0, 1, key, 1)
    with pytest.raises(ValueError, match="multiple of 16"):
        k.aes_blocks(np.zeros(15, np.uint8), key, np.zeros(15, np.uint8))
    with pytest.raises(ValueError, match="no FSS level"):
        k.force_fss("abacus")
