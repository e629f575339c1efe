"""Shapes of results by NumPy's rules and with NumPy's errors, raised at the call instead of at the await."""

from __future__ import annotations

import numpy as np

from ..native import ring


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape of two shapes, with NumPy's error."""
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ValueError(
            f"operands could not be broadcast together with shapes {_shape_text(a)} {_shape_text(b)}"
        ) from None


def matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a @ b, with NumPy's errors."""
    for position, shape in enumerate((a, b)):
        if not shape:
            raise ValueError(
                f"matmul: Input operand {position} does not have enough dimensions (has 0, gufunc core with signature "
                "(n?,k),(k,m?)->(n?,m?) requires 1)"
            )
    core = b[-2] if len(b) > 1 else b[0]
    if a[-1] != core:
        raise ValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {core} is different from {a[-1]})"
        )
    return (*broadcast_shape(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def matmul_any(a: ring.Ring, b: ring.Ring) -> ring.Ring:
    """Multiply ring arrays of any dimension >= 1 (the limb axis is in both); the caller reshapes to `matmul_shape`."""
    a = a[None] if a.ndim == 2 else a
    b = b[:, None] if b.ndim == 2 else b
    return ring.matmul(a, b)


def _shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as NumPy prints it in errors."""
    return "(" + ",".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
