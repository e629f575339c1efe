"""Function secret sharing: DCF, DPF and prefix keys against brute force (small domains) or Python integers (large)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import ppca.native._kernels as k

PI = bytes.fromhex("243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89")
TREE = k.TreeKey(PI)
"""The digits of pi: any 32 bytes do."""

SMALL = range(1, 7)
LARGE = (7, 31, 32, 33, 63, 64, 65, 80, 127, 128)


@pytest.fixture(params=k.fss_levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    k.force_fss(request.param)
    yield request.param
    k.force_fss("auto")


def words(values: list[int]) -> np.ndarray:
    """Integers below 2^128 as pairs of 64-bit words, low first."""
    return np.array([[v & (2**64 - 1), v >> 64] for v in values], np.uint64).reshape(-1, 2)


def seeds(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (n, 4), dtype=np.uint64)


def integers(rng: np.random.Generator, n: int, bits: int) -> list[int]:
    return [int.from_bytes(rng.bytes(16), "little") >> (128 - bits) for _ in range(n)]


def opened(shares: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Sum of the two shares mod 2^k, limb axis removed; it must fit into the low word, as bits do."""
    total = shares[0] + shares[1]
    if total.shape[-1] == 2:
        carry = (total[..., 0] < shares[0][..., 0]).astype(np.uint64)
        assert not (total[..., 1] + carry).any()
    return total[..., 0]


Keys = tuple[np.ndarray, np.ndarray]

OUTPUTS = 3
"""Weighted sums in most tests: more than a kernel adds up at a time."""


@cache
def weights(count: int, limbs: int, outputs: int = OUTPUTS) -> np.ndarray:
    """Return random weights of so many bits: sums of two different sets of bits agree with negligible probability."""
    return np.random.default_rng(count).integers(0, 2**64, (count, outputs, limbs), dtype=np.uint64)


def weighted(bits: np.ndarray, limbs: int, outputs: int = OUTPUTS) -> np.ndarray:
    """Return the sums of weighted bits (n, ...), shape (n, outputs, limbs)."""
    n, count = len(bits), int(np.prod(bits.shape[1:]))
    wide = np.zeros((n, count, limbs), np.uint64)
    wide[..., 0] = bits.reshape(n, count)
    out = np.zeros((n, outputs, limbs), np.uint64)
    k.matmul(out, wide, weights(count, limbs, outputs), 1, n, count, outputs, False, True)
    return out


def summed(shares: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the sum of the two shares in the ring."""
    out = np.empty_like(shares[0])
    k.add(out, *shares)
    return out


def dcf_keys(alphas: list[int], bits: int, limbs: int, seed: int = 0) -> Keys:
    n = len(alphas)
    keys = np.zeros((2, n, k.dcf_key_size(bits, limbs)), np.uint8)
    k.dcf_gen(keys[0], keys[1], TREE, words(alphas), bits, limbs, seeds(n, seed))
    return keys[0], keys[1]


def dpf_keys(alphas: list[int], bits: int, limbs: int, seed: int = 0) -> Keys:
    n = len(alphas)
    keys = np.zeros((2, n, k.dpf_key_size(bits, limbs)), np.uint8)
    k.dpf_gen(keys[0], keys[1], TREE, words(alphas), bits, limbs, seeds(n, seed))
    return keys[0], keys[1]


def prefix_keys(
    alphas: list[int], bits: int, limbs: int, levels: tuple[int, int] = (1, 1), size: int = 0, seed: int = 0
) -> Keys:
    """Keys for the prefixes of levels = (shortest, stride), with payloads of `size` bytes (0: those of the limbs)."""
    n, size = len(alphas), size or 8 * limbs
    keys = np.zeros((2, n, k.prefix_key_size(bits, limbs, levels, size)), np.uint8)
    k.prefix_gen(keys[0], keys[1], TREE, words(alphas), bits, limbs, levels, size, seeds(n, seed))
    return keys[0], keys[1]


def evaluate(function: str, keys: Keys, points: np.ndarray, bits: int, limbs: int) -> tuple[np.ndarray, np.ndarray]:
    """Both parties' outputs of dcf_eval / dpf_eval at points of shape (n, P, 2)."""
    out = np.zeros((2, *points.shape[:2], limbs), np.uint64)
    for party in (0, 1):
        getattr(k, function)(out[party], TREE, party, keys[party], points, bits)
    return out[0], out[1]


def classify(keys: Keys, m: list[int], thresholds: list[int], bits: int, limbs: int) -> tuple[np.ndarray, np.ndarray]:
    """Both parties' weighted sums of [x < t]."""
    factors = weights(len(thresholds), limbs)
    out = np.full((2, len(m), OUTPUTS, limbs), 99, np.uint64)
    for party in (0, 1):
        k.classify_sums(out[party], TREE, party, keys[party], words(m), words(thresholds), bits, factors)
    return out[0], out[1]


def prefix(
    keys: Keys,
    m: list[int],
    bits: int,
    levels: tuple[int, int],
    window: tuple[int, int],
    limbs: int,
    size: int = 0,
    mirrored: bool = False,
    outputs: int = OUTPUTS,
) -> tuple[np.ndarray, np.ndarray]:
    """Both parties' weighted sums of the bits of a window."""
    first, stride = levels
    factors = weights(((bits - first) // stride + 1) * window[1], limbs, outputs)
    out = np.full((2, len(m), outputs, limbs), 99, np.uint64)
    common = bits, levels, size or 8 * limbs, *window, mirrored, factors
    for party in (0, 1):
        k.prefix_sums(out[party], TREE, party, keys[party], words(m), *common)
    return out[0], out[1]


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", SMALL)
def test_dcf_everywhere(level: str, bits: int, limbs: int) -> None:
    size = 1 << bits
    keys = dcf_keys(list(range(size)), bits, limbs)
    points = np.broadcast_to(words(list(range(size))), (size, size, 2)).copy()
    got = opened(evaluate("dcf_eval", keys, points, bits, limbs))
    assert (got == (np.arange(size)[None, :] < np.arange(size)[:, None])).all()


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", SMALL)
def test_dpf_everywhere(level: str, bits: int, limbs: int) -> None:
    size = 1 << bits
    keys = dpf_keys(list(range(size)), bits, limbs)
    points = np.broadcast_to(words(list(range(size))), (size, size, 2)).copy()
    got = opened(evaluate("dpf_eval", keys, points, bits, limbs))
    assert (got == np.eye(size, dtype=int)).all()


def near(rng: np.random.Generator, alpha: int, bits: int) -> list[int]:
    """Points that leave the path of alpha at every level, its neighbours, the ends and some random ones."""
    mask = (1 << bits) - 1
    points = [alpha, alpha + 1, alpha - 1, 0, 1, mask, mask >> 1, (mask >> 1) + 1]
    points += [alpha ^ (1 << i) for i in range(bits)] + integers(rng, 140 - bits, bits)
    return [p & mask for p in points]


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", LARGE)
def test_dcf_and_dpf_on_large_domains(level: str, bits: int, limbs: int) -> None:
    rng = np.random.default_rng(bits)
    mask = (1 << bits) - 1
    alphas = [0, 1, mask, mask >> 1, (mask >> 1) + 1, *integers(rng, 4, bits)]
    rows = [near(rng, a, bits) for a in alphas]
    points = np.stack([words(row) for row in rows])
    less = np.array([[y < a for y in row] for a, row in zip(alphas, rows, strict=True)])
    equal = np.array([[y == a for y in row] for a, row in zip(alphas, rows, strict=True)])
    dcf = dcf_keys(alphas, bits, limbs)
    dpf = dpf_keys(alphas, bits, limbs)
    assert (opened(evaluate("dcf_eval", dcf, points, bits, limbs)) == less).all()
    assert (opened(evaluate("dpf_eval", dpf, points, bits, limbs)) == equal).all()


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", [*SMALL[:-1], pytest.param(SMALL[-1], marks=pytest.mark.release)])
def test_classify_everywhere(level: str, bits: int, limbs: int) -> None:
    """All x, all masks alpha, all thresholds, in rising and in scrambled order."""
    size = 1 << bits
    alphas = [a for a in range(size) for _ in range(size)]
    xs = [x for _ in range(size) for x in range(size)]
    keys = dcf_keys(alphas, bits, limbs)
    m = [(x + a) % size for x, a in zip(xs, alphas, strict=True)]
    for thresholds in (list(range(size)), np.random.default_rng(0).permutation(size).tolist()):
        got = summed(classify(keys, m, thresholds, bits, limbs))
        assert (got == weighted(np.array(xs)[:, None] < np.array(thresholds)[None, :], limbs)).all()


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", LARGE)
@pytest.mark.parametrize("n", [1, 5, 70])
def test_classify_on_large_domains(level: str, bits: int, limbs: int, n: int) -> None:
    rng = np.random.default_rng(bits)
    mask = (1 << bits) - 1
    xs = [x >> int(s) for x, s in zip(integers(rng, n, bits), rng.integers(0, bits, n), strict=True)]
    alphas = integers(rng, n, bits)
    keys = dcf_keys(alphas, bits, limbs)
    m = [(x + a) & mask for x, a in zip(xs, alphas, strict=True)]
    thresholds = [0, *(1 << i for i in range(bits)), mask, xs[0], xs[0], (xs[0] + 1) & mask]
    expected = np.array([[x < t for t in thresholds] for x in xs])
    assert (summed(classify(keys, m, thresholds, bits, limbs)) == weighted(expected, limbs)).all()


def prefix_oracle(
    alphas: list[int], m: list[int], bits: int, levels: tuple[int, int], window: tuple[int, int], mirrored: bool = False
) -> np.ndarray:
    """The definition, on Python integers where 64 bits do not hold them."""
    kind = np.int64 if bits < 63 else object
    a, y = np.array(alphas, kind), np.array(m, kind)
    out = []
    for i in range(levels[0], bits + 1, levels[1]):
        distance = ((y >> (bits - i)) - (a >> (bits - i))) * (-1 if mirrored else 1) % (1 << i)
        near = distance[:, None] <= window[0] + np.arange(window[1])
        out.append(near & (distance[:, None] > 0) if mirrored and i == bits else near)
    return np.stack(out, axis=1)


@cache
def every_prefix(bits: int, few: bool) -> tuple[list[int], list[int]]:
    """Return all pairs of alpha and m, or a part of them for wide windows."""
    size = 1 << bits
    step = 1 + size // 8 if few else 1
    return [a for a in range(size) for _ in range(size)][::step], [y for _ in range(size) for y in range(size)][::step]


cached_oracle = cache(
    lambda bits, window, mirrored, limbs: weighted(
        prefix_oracle(*every_prefix(bits, window[1] > 9), bits, (1, 1), window, mirrored), limbs
    )
)


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", SMALL)
def test_prefix_everywhere(level: str, bits: int, limbs: int) -> None:
    """All alphas and all m at every level, including the levels that the window wraps around."""
    keys = {few: prefix_keys(every_prefix(bits, few)[0], bits, limbs) for few in (False, True)}
    for window in [(0, 1), (0, 3), (1, 1), (4, 1), (4, 4), (2, 9), (6, 58)]:
        few = window[1] > 9
        for mirrored in (False, True):
            got = summed(prefix(keys[few], every_prefix(bits, few)[1], bits, (1, 1), window, limbs, mirrored=mirrored))
            assert (got == cached_oracle(bits, window, mirrored, limbs)).all(), (window, mirrored)


@cache
def large_prefixes(
    bits: int,
) -> tuple[list[int], list[int], dict[tuple[int, int], dict[tuple[int, int, bool], np.ndarray]]]:
    """Return alphas, m and what the definition says, by levels, window and direction."""
    rng = np.random.default_rng(bits)
    n = 70
    xs = [x >> int(s) for x, s in zip(integers(rng, n, bits), rng.integers(0, bits, n), strict=True)]
    alphas = integers(rng, n, bits)
    m = [(x + a) & ((1 << bits) - 1) for x, a in zip(xs, alphas, strict=True)]
    expected = {
        levels: {
            (*window, mirrored): prefix_oracle(alphas, m, bits, levels, window, mirrored)
            for window in [(4, 1), (4, 4), (4, 12)]
            for mirrored in (False, True)
        }
        for levels in [(1, 1), (bits, 1), (4, 1), (4 + bits % 2, 2), (1, bits - 1)]
    }
    return alphas, m, expected


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("bits", LARGE)
def test_prefix_on_large_domains(level: str, bits: int, limbs: int) -> None:
    alphas, m, expected = large_prefixes(bits)
    for levels, cases in expected.items():
        keys = prefix_keys(alphas, bits, limbs, levels)
        for (*window, mirrored), bound in cases.items():
            got = summed(prefix(keys, m, bits, levels, (window[0], window[1]), limbs, mirrored=mirrored))
            assert (got == weighted(bound, limbs)).all(), (levels, window, mirrored)


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_prefixes_with_any_number_of_sums(level: str, outputs: int) -> None:
    """Every output has its own weights, in tiles of two."""
    alphas, m, expected = large_prefixes(64)
    for levels, cases in expected.items():
        got = summed(prefix(prefix_keys(alphas, 64, 2, levels), m, 64, levels, (4, 12), 2, outputs=outputs))
        assert (got == weighted(cases[4, 12, False], 2, outputs)).all(), levels


@pytest.mark.parametrize("size", [1, 5, 8, 9, 15])
def test_prefixes_with_short_payloads(level: str, size: int) -> None:
    """The shares are right in as many bytes as the payloads have; key after key, so that none reads beyond its own."""
    bits, n, levels, window = 40, 70, (4, 2), (4, 12)
    rng = np.random.default_rng(size)
    alphas = integers(rng, n, bits)
    m = [
        a + (x >> int(s)) & ((1 << bits) - 1)
        for a, x, s in zip(alphas, alphas[::-1], rng.integers(0, bits, n), strict=True)
    ]
    keys = prefix_keys(alphas, bits, 2, levels, size)
    assert keys[0].shape[1] == 16 + 40 * 16 + 19 * size
    got = summed(prefix(keys, m, bits, levels, window, 2, size))
    expected = weighted(prefix_oracle(alphas, m, bits, levels, window), 2)
    assert (got.view(np.uint8).reshape(-1, 16)[:, :size] == expected.view(np.uint8).reshape(-1, 16)[:, :size]).all()


@pytest.mark.parametrize("limbs", [1, 2])
@pytest.mark.parametrize("n", [1, 8, 9, 17, 64, 65, 300])
def test_all_levels_and_thread_counts_give_the_same_bytes(n: int, limbs: int) -> None:
    bits = 41
    rng = np.random.default_rng(n)
    alphas, m = integers(rng, n, bits), integers(rng, n, bits)
    points = np.stack([words(integers(rng, 3, bits)) for _ in range(n)])
    results = []
    for name in k.fss_levels():
        for threads in (1, 3):
            k.force_fss(name)
            k.set_threads(threads)
            dcf = dcf_keys(alphas, bits, limbs)
            dpf = dpf_keys(alphas, bits, limbs)
            tree = prefix_keys(alphas, bits, limbs)
            results.append(
                [
                    *dcf,
                    *dpf,
                    *tree,
                    *evaluate("dcf_eval", dcf, points, bits, limbs),
                    *evaluate("dpf_eval", dpf, points, bits, limbs),
                    *classify(dcf, m, [1 << i for i in range(bits)], bits, limbs),
                    *prefix(tree, m, bits, (1, 1), (4, 2), limbs),
                ]
            )
    k.force_fss("auto")
    k.set_threads(2)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert (a == b).all()


def made(tree: k.TreeKey) -> dict[str, bytes]:
    """Keys of every kind for three secrets and fixed seeds."""
    alpha = words([5, 9, 65535])
    random = np.arange(12, dtype=np.uint64).reshape(3, 4) * np.uint64(0x9E3779B97F4A7C15)
    found = {}
    keys = np.zeros((2, 3, k.dpf_key_size(16, 2)), np.uint8)
    k.dpf_gen(keys[0], keys[1], tree, alpha, 16, 2, random)
    found["dpf"] = keys.tobytes()
    keys = np.zeros((2, 3, k.prefix_key_size(16, 2, (1, 1), 16)), np.uint8)
    k.prefix_gen(keys[0], keys[1], tree, alpha, 16, 2, (1, 1), 16, random)
    root, values, levels = np.split(keys, [16, 16 + 16 * 16], axis=-1)
    found["incremental"] = np.concatenate([root, levels, values], axis=-1).tobytes()
    for name, bits in (("dcf", 16), ("dcf of one bit", 1)):
        keys = np.zeros((2, 3, k.dcf_key_size(bits, 2)), np.uint8)
        k.dcf_gen(keys[0], keys[1], tree, alpha, bits, 2, random)
        found[name] = keys.tobytes()
    roots, correction = np.zeros((2, 48), np.uint8), np.zeros(k.sign_words(3, 16), np.uint8)
    k.sign_gen(roots[0], roots[1], correction, tree, alpha, 16, random)
    found["sign"] = roots.tobytes() + correction.tobytes()
    return found


def test_known_keys(level: str) -> None:
    """Keys under the digits of pi, as the implementation with these keys built in made them."""
    found = made(TREE)
    digest = hashlib.sha256(b"".join(found[name] for name in ("dpf", "incremental", "dcf", "sign"))).hexdigest()
    assert digest == "40538eb72e36a1abf4c9bee38e2dd77755a870dffa9344f021702ddabbf7523d"


def test_both_permutations_are_those_of_the_key(level: str) -> None:
    """The first 16 bytes are for the nodes (a comparison of one bit has none below its root), the others for payloads (a sign
    has none)."""
    pi = made(TREE)
    tree, payload = made(k.TreeKey(bytes(16) + PI[16:])), made(k.TreeKey(PI[:16] + bytes(16)))
    assert {name for name in pi if tree[name] == pi[name]} == {"dcf of one bit"}
    assert {name for name in pi if payload[name] == pi[name]} == {"sign"}
    with pytest.raises(ValueError, match="keys has 16 bytes, expected 32"):
        k.TreeKey(bytes(16))


def test_values_are_taken_modulo_the_domain(level: str) -> None:
    """High words beyond `bits` are ignored in alpha, points and m."""
    bits, noise = 10, 0xDEADBEEF << 40
    clean = dcf_keys([5], bits, 2)
    noisy = dcf_keys([5 | noise], bits, 2)
    assert (clean[0] == noisy[0]).all()
    a = evaluate("dcf_eval", clean, words([3])[None], bits, 2)
    b = evaluate("dcf_eval", clean, words([3 | noise])[None], bits, 2)
    assert (a[0] == b[0]).all()
    assert (classify(clean, [9], [4], bits, 2)[0] == classify(clean, [9 | noise], [4], bits, 2)[0]).all()


@pytest.mark.parametrize("limbs", [1, 2])
def test_keys_of_one_party_look_uniform(limbs: int) -> None:
    """For two fixed secrets, every bit of either party's key is balanced over 4000 keys (6 sigma); so are the bits of a
    single party's output share."""
    bits, n = 20, 4000
    kinds = {
        "dcf": lambda a: dcf_keys([a] * n, bits, limbs, seed=a + 1),
        "dpf": lambda a: dpf_keys([a] * n, bits, limbs, seed=a + 1),
        "incremental": lambda a: prefix_keys([a] * n, bits, limbs, seed=a + 1),
    }
    for make in kinds.values():
        for alpha in (0, (1 << bits) - 1):
            for key in make(alpha):
                ones = np.unpackbits(key, axis=1, bitorder="little").sum(axis=0).astype(int)
                assert (np.abs(ones - n / 2) < 6 * np.sqrt(n) / 2).all()
    keys = dcf_keys([12345] * n, bits, limbs)
    points = np.broadcast_to(words([777]), (n, 1, 2)).copy()
    for share in evaluate("dcf_eval", keys, points, bits, limbs):
        ones = np.unpackbits(share.reshape(n, limbs).view(np.uint8), axis=1).sum(axis=0).astype(int)
        assert (np.abs(ones - n / 2) < 6 * np.sqrt(n) / 2).all()


def test_the_parties_differ_in_the_root_only() -> None:
    for keys in (dcf_keys([5, 9], 16, 2), dpf_keys([5, 9], 16, 2), prefix_keys([5, 9], 16, 2)):
        assert (keys[0][:, 16:] == keys[1][:, 16:]).all()
        assert not (keys[0][:, :16] == keys[1][:, :16]).all(axis=1).any()


def test_key_sizes() -> None:
    """Root, 16 bytes per level down, one payload word per level (DCF, incremental) or one in all."""
    assert k.dcf_key_size(64, 2) == 16 + 63 * 16 + 64 * 16
    assert k.dcf_key_size(64, 1) == 16 + 63 * 16 + 64 * 8
    assert k.dcf_key_size(1, 1) == 16 + 8
    assert k.prefix_key_size(64, 2, (1, 1), 16) == 16 + 64 * 32
    assert k.prefix_key_size(64, 2, (4, 2), 9) == 16 + 64 * 16 + 31 * 9
    assert k.dpf_key_size(64, 2) == 16 + 64 * 16 + 16


def test_nothing_to_do(level: str) -> None:
    keys = dcf_keys([], 64, 2)
    tree = prefix_keys([], 64, 2)
    assert evaluate("dcf_eval", keys, np.zeros((0, 5, 2), np.uint64), 64, 2)[0].size == 0
    assert classify(keys, [], [1, 2], 64, 2)[0].size == 0
    assert prefix(tree, [], 64, (1, 1), (4, 1), 2)[0].size == 0
    one = dcf_keys([3], 64, 2)
    assert evaluate("dcf_eval", one, np.zeros((1, 0, 2), np.uint64), 64, 2)[0].size == 0
    for nothing in (classify(one, [3], [], 64, 2), prefix(prefix_keys([3], 8, 1), [3], 8, (1, 1), (4, 0), 1)):
        assert not np.any(nothing)
    assert prefix(prefix_keys([3], 8, 1), [3], 8, (1, 1), (4, 1), 1, outputs=0)[0].size == 0


def test_bad_arguments_name_the_argument() -> None:
    size = k.dcf_key_size(16, 2)
    key, m, out = np.zeros((3, size), np.uint8), np.zeros((3, 2), np.uint64), np.zeros((3, 1, 2), np.uint64)
    t = words([1])
    with pytest.raises(ValueError, match="bits is 0, expected 1 to 128"):
        k.dcf_key_size(0, 2)
    with pytest.raises(ValueError, match="limbs is 3"):
        k.dcf_key_size(16, 3)
    with pytest.raises(ValueError, match=f"multiple of the key size {size}"):
        k.dcf_gen(key[:, :-1].copy(), key, TREE, m, 16, 2, seeds(3))
    with pytest.raises(ValueError, match="key1 has"):
        k.dcf_gen(key, key[:2], TREE, m, 16, 2, seeds(3))
    with pytest.raises(ValueError, match="alpha has 4 uint64 items, expected 6"):
        k.dcf_gen(key, key, TREE, m[:2], 16, 2, seeds(3))
    with pytest.raises(ValueError, match="seeds has 8 uint64 items, expected 12"):
        k.dcf_gen(key, key, TREE, m, 16, 2, seeds(2))
    with pytest.raises(ValueError, match="points has 8 uint64 items"):
        k.dcf_eval(out, TREE, 0, key, np.zeros((4, 2), np.uint64), 16)
    with pytest.raises(ValueError, match="out has 6 uint64 items, expected 12"):
        k.dcf_eval(out, TREE, 0, key, np.zeros((3, 2, 2), np.uint64), 16)
    with pytest.raises(ValueError, match="party is 2, expected 0 or 1"):
        k.dcf_eval(out, TREE, 2, key, m, 16)
    with pytest.raises(ValueError, match="m has 4 uint64 items, expected 6"):
        k.classify_sums(out, TREE, 0, key, m[:2], t, 16, t)
    with pytest.raises(ValueError, match="threshold 1 is not below 2\\^16"):
        k.classify_sums(out, TREE, 0, key, m, words([1, 1 << 16]), 16, m[:2])
    with pytest.raises(ValueError, match="weights has 2 uint64 items, expected 4"):
        k.classify_sums(out, TREE, 0, key, m, words([1, 2]), 16, t)
    with pytest.raises(ValueError, match="out has 8 uint64 items, expected 6"):
        k.classify_sums(np.zeros((4, 1, 2), np.uint64), TREE, 0, key, m, t, 16, t)
    tree = np.zeros((3, k.prefix_key_size(16, 2, (1, 1), 16)), np.uint8)
    with pytest.raises(ValueError, match="levels from 10 in steps of 4 do not end at 16"):
        k.prefix_sums(out, TREE, 0, tree, m, 16, (10, 4), 16, 4, 1, False, t)
    with pytest.raises(ValueError, match="value_bytes is 17"):
        k.prefix_key_size(16, 2, (1, 1), 17)
    with pytest.raises(ValueError, match="at most 64 together"):
        k.prefix_sums(out, TREE, 0, tree, m, 16, (1, 1), 16, 60, 5, False, t)
    with pytest.raises(ValueError, match="weights has 2 uint64 items, expected 32"):
        k.prefix_sums(out, TREE, 0, tree, m, 16, (1, 1), 16, 4, 1, False, t)
    with pytest.raises(ValueError, match="out has 8 uint64 items, expected 6"):
        k.prefix_sums(np.zeros((4, 1, 2), np.uint64), TREE, 0, tree, m, 16, (1, 1), 16, 4, 1, False, t)
    with pytest.raises(ValueError, match="out must be a writable C-contiguous uint64 array"):
        k.dcf_eval(np.zeros((3, 1, 2)), TREE, 0, key, m, 16)
