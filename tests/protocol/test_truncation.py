"""The error of truncations, and numbers of the 64-bit ring: extended, multiplied, refused if they have too many bits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from harness.lockstep import run
from harness.numbers import grid
from ppca.native import ring
from ppca.protocol import INTEGER, RingType, SecretArray, make_type

ULP = 2.0**-40
FIXED64 = make_type(64, 20)


def truncation_errors(values: np.ndarray, frac: int, bits: int, kind: RingType, exact: bool, split: int) -> np.ndarray:
    """Errors in ulp of the result, exactly, of dropping `bits` of integers X = values of type `kind`."""
    data: dict[int, Any] = {}

    async def program(x: SecretArray) -> None:
        y = await x.truncate(bits) if exact else x.astype(frac - bits)
        data[x.party.seat] = y.data[split].copy()

    run(program, np.ldexp(values.astype(np.float64), -frac), dtypes=(kind,))
    line = {0: (0, 2), 1: (0, 1)}[split]  # one seat of each row, one of each column
    total = ring.add(data[line[0]], data[line[1]])
    low, high = total[..., 0].astype(object), total[..., -1].view(np.int64).astype(object)
    whole = (
        [int(h) * 2**64 + int(v) for v, h in zip(low, high, strict=True)]
        if kind.bits == 128
        else [int(h) for h in high]
    )
    return np.array([float(Fraction(got) - Fraction(int(x), 2**bits)) for got, x in zip(whole, values, strict=True)])


@pytest.mark.parametrize("split", [0, 1], ids=["rows", "columns"])
@pytest.mark.parametrize("exact", [False, True], ids=["local", "exact"])
@pytest.mark.parametrize("kind", [RingType(128, 40, 30), RingType(64, 20, 22)], ids=str)
def test_truncation_is_unbiased_and_below_one_ulp(kind: RingType, exact: bool, split: int) -> None:
    # 40,000 samples. A local truncation of |X| < 2^21 in the 64-bit ring fails with 2^-42 per element: 4e-8 in all.
    bits = 12
    values = np.random.default_rng(8).integers(-(2**21), 2**21, 40_000)
    errors = truncation_errors(values, kind.frac, bits, kind, exact, split)
    assert np.max(np.abs(errors)) < 1
    # Stochastic rounding of a fraction p errs by 1 - p with probability p, else by -p: variance p (1 - p), 1/6 on average.
    sigma = np.sqrt(1 / 6 / errors.size)
    assert abs(errors.mean()) < 5 * sigma  # false alarm 6e-7
    fraction = np.mod(values, 2**bits) / 2**bits
    residual = np.where(errors > 0, 1.0, 0.0) - fraction  # rounded up with probability p, whatever p is
    for low in (0.0, 0.25, 0.5, 0.75):
        here = residual[(fraction >= low) & (fraction < low + 0.25)]
        assert abs(here.mean()) < 5 * 0.5 / np.sqrt(here.size)


@pytest.mark.parametrize("split", [0, 1], ids=["rows", "columns"])
def test_product_truncation_is_unbiased(split: int) -> None:
    a, b = np.random.default_rng(9).uniform(-1, 1, (2, 20_000))
    a, b = grid(a, 20), grid(b, 20)  # so that float64 holds the product exactly
    data: dict[int, Any] = {}

    async def program(x: SecretArray, y: SecretArray) -> None:
        data[x.party.seat] = (await x.mul(y, frac=30)).data[split].copy()

    run(program, a, b)
    errors = np.ldexp(ring.decode(ring.add(data[0], data[2 - split]), 30) - a * b, 30)
    assert np.max(np.abs(errors)) < 1
    assert abs(errors.mean()) < 5 * np.sqrt(0.25 / errors.size)  # variance p (1 - p) <= 1/4


def test_exact_truncation_at_the_ends_of_its_range() -> None:
    # |X| < 2^(k-2): up to 2^126 in the 128-bit ring, 2^62 in the 64-bit ring, where a local truncation would often wrap.
    wide = np.array([2.0**45, -(2.0**45), 2.0**46 - 1, 1 - 2.0**46, 0.0])
    kind, kind64 = RingType(128, 80, 46), RingType(64, 20, 42)
    narrow = np.array([2.0**42 - 2.0**-10, 2.0**-10 - 2.0**42, 2.0**41, -1.0, 0.0])
    for _ in range(50):  # a wrap not noticed would show in half of the runs

        async def program(x: Any, y: Any) -> Any:
            return [await x.truncate(40), await y.truncate(20), await y.truncate(0)]

        got = run(program, wide, narrow, dtypes=(kind, kind64)).value
        assert np.max(np.abs(got[0] - wide)) < ULP
        assert np.max(np.abs(got[1] - narrow)) < 1
        assert np.array_equal(got[2], narrow)
    with pytest.raises(ValueError, match="cannot truncate 41 bits"):
        run(lambda x: x.truncate(41), np.array([1.0]))


def test_truncation_by_more_than_a_word() -> None:
    a = np.array([1.5, -2.5, 0.0])

    async def program(x: Any) -> Any:
        return await x.truncate(70)

    got = run(program, a, dtypes=(RingType(128, 72, 4),)).value
    assert np.max(np.abs(got - a)) < 0.25


@pytest.mark.parametrize("frac", [0, 20])
def test_extension_is_exact(frac: int) -> None:
    ends = [2**62 - 1, -(2**62 - 1), 2**61, -(2**61), 1, -1, 0]
    values = np.array(ends + np.random.default_rng(10).integers(-(2**62) + 1, 2**62, 500).tolist())
    kind = RingType(64, frac, 62 - frac)
    opened: dict[int, Any] = {}

    async def program(x: SecretArray) -> None:
        x = x.like(x.data, kind)
        y = await x.extend()
        assert y.dtype.bits == 128
        assert y.dtype.frac == frac
        opened[x.party.seat] = y.data.copy()

    for _ in range(5):
        run(program, values, dtypes=(RingType(64, 0, 62),))
        for split, seats in ((0, (0, 2)), (1, (0, 1))):
            total = ring.add(*(opened[seat][split] for seat in seats))
            assert np.array_equal(ring.to_int64(total), values)


def test_extension_refuses_the_wide_ring() -> None:
    with pytest.raises(TypeError, match="64-bit ring"):
        run(lambda x: x.extend(), np.array([1.0]))
    with pytest.raises(TypeError, match="different rings"):
        run(lambda x, y: x + y, np.array([1.0]), np.array([1.0]), dtypes=(FIXED64, None))
    with pytest.raises(TypeError, match="different rings"):
        run(lambda x, y: x * y, np.array([1]), np.array([1]), dtypes=(make_type(64, 0), INTEGER))


def test_the_64_bit_ring_refuses_fractional_factors() -> None:
    # A factor has 40 bits, too many: a local truncation would fail for about every tenth element.
    for operation in (lambda x: x * 0.1, lambda x: x @ np.array([0.1, 0.2, 0.3]), lambda x: x.mean()):
        with pytest.raises(TypeError, match="needs the 128-bit ring"):
            run(operation, np.array([1.0, 2.0, 3.0]), dtypes=(FIXED64,))

    async def short(x: Any) -> Any:
        return [x * 0.5, x * 3, x.sum()]

    halves, triple, total = run(short, np.array([1.0, 2.0, 3.0]), dtypes=(FIXED64,)).value
    assert halves.tolist() == [0.5, 1.0, 1.5]
    assert triple.tolist() == [3.0, 6.0, 9.0]
    assert total == 6.0


def test_products_in_the_64_bit_ring() -> None:
    # A local truncation would fail with probability |xy| 2^-23 there: products are truncated exactly, or keep all bits.
    a, b = grid(np.random.default_rng(11).uniform(-1, 1, (2, 64)), 20)

    async def program(x: Any, y: Any) -> Any:
        return [await (x * y), await (await x.mul(y, frac=40)).extend(), await x.matmul(y, frac=40)]

    got = run(program, a, b, dtypes=(FIXED64, FIXED64)).value
    assert np.max(np.abs(got[0] - a * b)) < 2.0**-20
    assert np.array_equal(got[1], a * b)
    assert got[2] == pytest.approx(a @ b, abs=1e-15)

    async def without_room(x: Any, y: Any) -> Any:
        return await (x * y)

    wide = make_type(64, 31)
    with pytest.raises(TypeError, match="too many fractional bits"):
        run(without_room, a, b, dtypes=(wide, wide))


@pytest.mark.parametrize("bits", [-1, 41])
def test_more_bits_than_there_are_cannot_be_removed(bits: int) -> None:
    with pytest.raises(ValueError, match=f"cannot truncate {bits} bits of fixed128.40"):
        run(lambda x: x.truncate(bits), np.array([1.0]))
