"""Power iteration with deflation, by repeated squaring of the matrix: the eigenpairs in descending order. A baseline.

Textbook method: power iteration (Golub and Van Loan, Matrix Computations, section 8.2). A0 must be positive
semi-definite (a covariance). With B = A0 + s I, s = 2^-10, for each eigenpair:

    M = B / trace, then k times:  M := M M / trace, the trace by a table to 22%: four rounds
    w = M x, x a public random vector;  w := w - V (V'w);  v = w / |w|      (one rsqrt)
    B := B - (v'B v) v v'                                                   (deflation)

Plain power iteration v := A v / |v| needs a number of iterations that depends on the gap, hundreds to millions, eleven
rounds each; k squarings do 2^k of them at once in 4 k rounds. For an eigenvector with relative gap g to the wanted one
the factor (1 - g)^(2^k) remains, which adds g (1 - g)^(2^k) <= 1 / (e 2^k) to the residual. So 20 squarings guarantee
3.5e-7 of the largest eigenvalue for every spectrum, also with equal eigenvalues. The number of squarings is public and
fixed by tol; nothing is opened.

The shift s makes null directions ordinary: |w| never vanishes, and the vectors are a basis of the whole space. x is
Gaussian (a fixed seed per pair), so no structure of the data makes it orthogonal to v. The noise of the truncation in v
is 2^-40 |x| / |x'v|, and |x'v| < 1e-4 |x| occurs once in 1e4 / sqrt(d) pairs.

Accuracy with 40 fractional bits: residual 1e-8, or as tol requires; V is made orthonormal at the end. Rounds: 4 per
squaring and 23 per pair.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...protocol import stack, together
from ..eigen import Eigen, orthonormal
from ..iteration import Progress, silent
from .qr import split_evenly

SHIFT = 2.0**-10
"""Shift s of the eigenvalues."""


def squarings_for(tol: float) -> int:
    """Return the number of squarings that leaves a residual below tol / 2 in the worst case."""
    return max(1, math.ceil(math.log2(2 / (math.e * tol))))


async def _trace_one(B: Any, smallest: float) -> Any:
    """Return B divided by its trace, to 22%, for smallest <= trace: three rounds."""
    factor = await B.diagonal().sum().within(4).coarse_power(-1.0, smallest, 40)
    return await B.mul(factor, within=1.5)


async def _unit(w: Any) -> Any:
    """Return w / |w| for 2^-15 < |w| < 2: 14 rounds. Newton steps correct the length: a small |w|^2 has few digits."""
    square = await w.inner(w, within=4)
    v = await w.mul(await square.rsqrt(), within=1.5)
    for _ in range(2):
        excess = (await v.inner(v, within=3)) - 1.0
        v = v - await v.mul(excess * 0.5, within=1.5)
    return v


async def eigh_power(
    A0: Any,
    identity: Any,
    *,
    tol: float = 1e-6,
    max_iterations: int | None = None,
    fixed_iterations: int | None = None,
    components: int | None = None,
    progress: Progress = silent,
) -> Eigen:
    """Compute eigenpairs, the largest first, of a shared positive semi-definite A0 with |A0|_F <= 1 and 40 fractional
    bits.

    fixed_iterations: number of squarings in all, spread over the eigenpairs (None: as tol requires, 20 per pair at
    1e-6, and at most max_iterations). components: number of eigenpairs (None: all). `iterations` of the result counts
    squarings; `converged` is None, as nothing is opened to find out.
    """
    d = A0.shape[0]
    count = d if components is None else components
    if not 1 <= count <= d:
        raise ValueError(f"invalid number of components: {components}. It must be between 1 and {d}.")
    total = fixed_iterations
    if total is None:
        asked = count * squarings_for(tol)
        total = asked if max_iterations is None else min(asked, max_iterations)
    B = A0 + identity * SHIFT
    vectors: list[Any] = []
    for k, squarings in enumerate(split_evenly(total, count)):
        M = await _trace_one(B, SHIFT / 2)
        for _ in range(squarings):
            M = await M.matmul(M, within=1.5)
            M = await _trace_one(M, 0.4 / d)
        x = np.random.default_rng([d, k]).standard_normal(d)
        w = M @ (x / np.linalg.norm(x))
        if vectors:
            V = stack(vectors, 1)
            w = w - await V.matmul(await V.T.matmul(w, within=3), within=3)
        v = await _unit(w)
        vectors.append(v)
        if k + 1 < count:
            Bv, outer = await together(B.matmul(v, within=3), v.reshape(-1, 1).mul(v.reshape(1, -1), within=1.5))
            B = B - await (await v.inner(Bv, within=3)).mul(outer, within=3)
        progress(f"eigendecomposition, {k + 1} of {count} eigenpairs", min(0.95, (k + 1) / count))
    V = await orthonormal(stack(vectors, 1))
    values = await V.inner(await A0.matmul(V, within=1.5), axis=0, within=1.5)
    return Eigen(values, V, total, None)
