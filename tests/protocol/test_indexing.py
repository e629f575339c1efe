"""NumPy's feel: indices, shapes and error texts of secret arrays are NumPy's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.numbers import secret
from ppca.protocol import RingType, SecretArray, concatenate, stack
from ppca.protocol.public_numbers import public_factor, scalar_factor
from ppca.protocol.triangles import upper, upper_pairs


def opened(x: SecretArray) -> np.ndarray:
    """The row shares seen as integers: local operations act on them as on values (shares are linear)."""
    return x.data[0][..., 0]


def outcome(action: Callable[[], Any]) -> Any:
    """(shape, elements) of a result, or (error class, text)."""
    try:
        result = action()
    except (ValueError, IndexError, TypeError, np.exceptions.AxisError) as error:
        return type(error), str(error)
    if isinstance(result, SecretArray):
        return result.shape, opened(result).tolist()
    return np.shape(result), np.asarray(result).tolist()


# -- indexing --------------------------------------------------------------------------------------------------------


def numbered(shape: tuple[int, ...]) -> tuple[SecretArray, np.ndarray]:
    """A secret array, and the plain array of its share elements in the same shape."""
    x = secret(np.zeros(shape))
    return x, x.data[0][..., 0].copy()


def same_selection(shape: tuple[int, ...], index: Any) -> None:
    x, values = numbered(shape)
    wanted = outcome(lambda: values[index])
    if wanted[0] is IndexError:
        assert outcome(lambda: x[index]) == wanted
        return
    got, want = x[index], values[index]
    assert got.shape == np.shape(want)
    assert np.array_equal(opened(got), want)
    assert np.array_equal(got.data[1][..., 0], x.data[1][..., 0][index])
    assert got.dtype == x.dtype


@given(st.data())
def test_basic_indices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, max_side=4, min_side=0))
    same_selection(shape, data.draw(hnp.basic_indices(shape, allow_newaxis=True)))


@given(st.data())
def test_integer_arrays_mixed_with_slices(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    selection = hnp.broadcastable_shapes((2,), max_dims=2, max_side=3)
    parts: list[Any] = []
    common = data.draw(selection)
    for side in shape[: data.draw(st.integers(1, len(shape)))]:
        kind = data.draw(st.sampled_from(["array", "slice", "integer", "list"]))
        if kind == "array":
            parts.append(data.draw(hnp.arrays(np.int64, common, elements=st.integers(-side, side - 1))))
        elif kind == "list":
            parts.append(data.draw(hnp.arrays(np.int64, common, elements=st.integers(-side, side - 1))).tolist())
        elif kind == "slice":
            parts.append(data.draw(st.slices(side)))
        else:
            parts.append(data.draw(st.integers(-side, side - 1)))
    if data.draw(st.booleans()):
        parts.insert(data.draw(st.integers(0, len(parts))), data.draw(st.sampled_from([None, Ellipsis])))
    same_selection(shape, tuple(parts))


@given(st.data())
def test_boolean_masks(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    covered = data.draw(st.integers(1, len(shape)))
    mask = data.draw(hnp.arrays(np.bool_, shape[:covered]))
    same_selection(shape, mask)
    same_selection(shape, (mask, ...))
    same_selection(shape, (None, mask))


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((3,), 3),
        ((3,), -4),
        ((3, 2), (0, 2)),
        ((3, 2), (0, 0, 0)),
        ((), 0),
        ((3,), (..., 5)),
        ((3, 2), (..., 0, 0, 0)),
        ((3,), (..., ...)),
        ((3, 2), ([0, 1, 2], [0, 1])),
        ((3, 2), ([0, 5],)),
        ((3,), 1.5),
        ((3,), "a"),
        ((3,), np.array([True, False])),
        ((3, 2), (slice(None), np.array([True, False, True]))),
        ((3,), np.array([0.5])),
    ],
)
def test_wrong_indices_in_numpys_words(shape: tuple[int, ...], index: Any) -> None:
    same_selection(shape, index)


def test_secret_indices_are_refused() -> None:
    x = secret(np.zeros(3))
    with pytest.raises(TypeError, match="indices must be public"):
        x[secret(np.array([1]))]


# -- shapes ----------------------------------------------------------------------------------------------------------


SHAPE_CALLS: list[tuple[tuple[int, ...], Callable[[Any], Any]]] = [
    ((2, 6), lambda a: a.reshape(3, 4)),
    ((2, 6), lambda a: a.reshape((3, -1))),
    ((2, 6), lambda a: a.reshape(-1)),
    ((2, 6), lambda a: a.reshape(4, 1, 3)),
    ((2, 6), lambda a: a.reshape(5, -1)),
    ((2, 6), lambda a: a.reshape(-1, -1)),
    ((2, 6), lambda a: a.reshape(13)),
    ((1,), lambda a: a.reshape(())),
    ((0, 3), lambda a: a.reshape(3, 0)),
    ((2, 3, 4), lambda a: a.ravel()),
    ((2, 3, 4), lambda a: a.T),
    ((3,), lambda a: a.T),
    ((), lambda a: a.T),
    ((2, 3, 4), lambda a: a.transpose()),
    ((2, 3, 4), lambda a: a.transpose(1, 2, 0)),
    ((2, 3, 4), lambda a: a.transpose(-1, 0, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1, 1)),
    ((2, 3, 4), lambda a: a.transpose(0, 1, 3)),
    ((2, 3, 4), lambda a: a.swapaxes(0, -1)),
    ((2, 3, 4), lambda a: a.swapaxes(0, 3)),
    ((3, 3), lambda a: a.diagonal()),
    ((2, 4), lambda a: a.diagonal()),
    ((2, 3), lambda a: a.sum()),
    ((2, 3), lambda a: a.sum(axis=0)),
    ((2, 3), lambda a: a.sum(axis=-1)),
    ((2, 3, 4), lambda a: a.sum(axis=(0, 2))),
    ((2, 3, 4), lambda a: a.sum(axis=1, keepdims=True)),
    ((2, 3), lambda a: a.sum(axis=2)),
    ((2, 0), lambda a: a.sum(axis=1)),
    ((2, 3), len),
    ((), len),
]


@pytest.mark.parametrize("case", range(len(SHAPE_CALLS)))
def test_shape_calls_as_numpy(case: int) -> None:
    shape, call = SHAPE_CALLS[case]
    x, values = numbered(shape)
    assert outcome(lambda: call(x)) == outcome(lambda: call(values))


@pytest.mark.parametrize("target", [(2, 3), (4, 2, 3), (2, 2), (3,), (6,)])
def test_broadcast_to(target: tuple[int, ...]) -> None:
    x, values = numbered((1, 3))
    assert outcome(lambda: x.broadcast_to(target)) == outcome(lambda: np.broadcast_to(values, target))


@given(st.data())
def test_concatenate_and_stack(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    pairs = []
    for _ in range(data.draw(st.integers(1, 3))):
        side = data.draw(st.integers(0, 3))
        pairs.append(numbered((*shape[: axis % len(shape)], side, *shape[axis % len(shape) + 1 :])))
    arrays, values = zip(*pairs, strict=True)
    assert np.array_equal(opened(concatenate(arrays, axis)), np.concatenate(values, axis))
    arrays, values = zip(*[numbered(shape) for _ in range(3)], strict=True)
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    assert np.array_equal(opened(stack(arrays, axis)), np.stack(values, axis))


@pytest.mark.parametrize(
    ("secret_call", "numpy_call"),
    [
        (lambda a, b: concatenate([a, b]), lambda a, b: np.concatenate([a, b])),
        (lambda a, b: concatenate([a, b], axis=5), lambda a, b: np.concatenate([a, b], axis=5)),
        (lambda a, b: concatenate([a, b], axis=-5), lambda a, b: np.concatenate([a, b], axis=-5)),
        (lambda a, b: stack([a, b]), lambda a, b: np.stack([a, b])),
        (lambda a, b: stack([a, a], axis=3), lambda a, b: np.stack([a, a], axis=3)),
        (lambda a, b: stack([a, a], axis=-4), lambda a, b: np.stack([a, a], axis=-4)),
        (lambda a, b: a + b, lambda a, b: a + b),
        (lambda a, b: a - b, lambda a, b: a - b),
        (lambda a, b: a * b, lambda a, b: a * b),
        (lambda a, b: a / b, lambda a, b: a / b),
        (lambda a, b: a < b, lambda a, b: a < b),
        (lambda a, b: a @ b, lambda a, b: a @ b),
        (lambda a, b: a.matmul(b), np.matmul),
        (lambda a, b: a[0] @ b, lambda a, b: a[0] @ b),
        (lambda a, b: a[0, 0] @ b, lambda a, b: a[0, 0] @ b),
        (lambda a, b: a + np.ones((2, 2)), lambda a, b: a + np.ones((2, 2))),
        (lambda a, b: a * np.ones((2, 2)), lambda a, b: a * np.ones((2, 2))),
        (lambda a, b: a @ np.ones((2, 2)), lambda a, b: a @ np.ones((2, 2))),
    ],
)
def test_shape_errors_are_numpys_and_come_at_once(secret_call: Any, numpy_call: Any) -> None:
    a, b = numbered((2, 3))[0], numbered((4, 2))[0]
    x, y = np.ones((2, 3)), np.ones((4, 2))
    with pytest.raises((ValueError, np.exceptions.AxisError)) as wanted:
        numpy_call(x, y)
    with pytest.raises(type(wanted.value)) as caught:
        secret_call(a, b)
    # NumPy ends broadcasting errors with a space.
    assert str(caught.value).strip() == str(wanted.value).strip()


def test_iteration() -> None:
    x, values = numbered((3, 2))
    assert [opened(row).tolist() for row in x] == [row.tolist() for row in values]
    with pytest.raises(TypeError):
        iter(numbered(())[0])


@pytest.mark.parametrize("axis", [2, -3, 5])
def test_axes_that_there_are_not(axis: int) -> None:
    x = secret(np.ones((2, 3)))
    with pytest.raises(np.exceptions.AxisError):
        concatenate([x, x], axis)


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_positions_along_one_axis(axis: int, bits: int) -> None:
    """The path of `take`, in both rings, also for shares that are not contiguous."""
    data = np.random.default_rng(axis).integers(0, 2**64, (2, 4, 4, 4, bits // 64), dtype=np.uint64)
    x = secret(np.zeros(1))
    whole = x.like(data, RingType(bits, 0, 8))
    for array in (whole, whole.T):
        for places in (np.array([3, -1, 0]), np.array([[1, 2], [0, 0]]), np.array([], np.intp), np.array(2)):
            index = (*[slice(None)] * axis, places)
            assert np.array_equal(array[index].data, array.data[(slice(None), *index)])
        with pytest.raises(IndexError, match=f"index 4 is out of bounds for axis {axis} with size 4"):
            array[(*[slice(None)] * axis, np.array([0, 4]))]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("d", [1, 2, 7])
def test_packed_triangles(d: int, strict: bool) -> None:
    """`upper` is NumPy's triangle of a matrix, also without cached positions; pairs cannot be written to."""
    x, values = numbered((d, d))
    i, j = np.triu_indices(d, int(strict))
    assert np.array_equal(opened(upper(x, strict)), values[i, j])
    assert all(np.array_equal(a, b) for a, b in zip(upper_pairs(d, strict), (i, j), strict=True))
    assert not any(pair.flags.writeable for pair in upper_pairs(d, strict))
    large = 1100  # beyond what is cached
    assert np.array_equal(
        upper(np.arange(large**2).reshape(large, large), strict)[:3], [strict, strict + 1, strict + 2]
    )


@pytest.mark.parametrize("value", [3, -1, 2.5, 1 / 3, -1e-9, 0.0, True, 2**70])
def test_numbers_as_arrays_of_one(value: float) -> None:
    """A number has the factor of an array that holds it; the type counts, since 1 == 1.0 == True."""
    kind = RingType(128, 40, 3)
    shift, element, span = public_factor(np.array([value]), kind)
    assert scalar_factor(value, kind) == (shift, int(element[0, 0]) | int(element[0, 1]) << 64, span)
