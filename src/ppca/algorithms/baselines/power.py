"""Power iteration with deflation, by repeated squaring: one eigenpair after the other, the largest first. A baseline.

For a positive semi-definite A0 (a covariance). With B = A0 + s I, s = 2^-10, for each eigenpair:

    M = B / trace, then so many times:  M := M M / trace, the trace by a table to 22%: four rounds
    w = M x, x a public random vector;  w := w - V (V'w);  v = w / |w|      (one rsqrt)
    B := B - (v'B v) v v'                                                   (deflation)

Plain power iteration v := A v / |v| needs as many iterations as the gap asks for, hundreds to millions, eleven rounds
each; k squarings are 2^k of them at once in 4 k rounds. What is left of an eigenvector with relative gap g to the
wanted one is (1 - g)^(2^k), which adds g (1 - g)^(2^k) <= 1 / (e 2^k) to the residual: 20 squarings promise 3.5e-7 of
the largest eigenvalue whatever the spectrum, and equal eigenvalues are no trouble. So the number of squarings is public
and fixed by tol; nothing is opened.

The shift s makes null directions ordinary ones: |w| never vanishes, and the vectors are a basis of everything. x is
Gaussian (a fixed seed per pair), so that no structure of the data makes it orthogonal to v, and chance hardly: the
truncation's noise in v is 2^-40 |x| / |x'v|, and |x'v| < 1e-4 |x| happens once in 1e4 / sqrt(d) pairs.

Accuracy in 40 fractional bits: residual 1e-8, or what tol asks for; V is made orthonormal at the end. Rounds: 4 per
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


def squarings_for(tol: float) -> int:
    """So many squarings leave a residual below tol / 2 in the worst case."""
    return max(1, math.ceil(math.log2(2 / (math.e * tol))))


async def _trace_one(B: Any, smallest: float) -> Any:
    """B over its trace, to 22%, where smallest <= trace: three rounds."""
    factor = await B.diagonal().sum().within(4).coarse_power(-1.0, smallest, 40)
    return await B.mul(factor, within=1.5)


async def _unit(w: Any) -> Any:
    """w / |w| for 2^-15 < |w| < 2: 14 rounds. One Newton step: a small |w|^2 has few digits."""
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
    """Eigenvalues and eigenvectors, the largest first, of a shared positive semi-definite A0, |A0|_F <= 1, 40 fractional bits.

    fixed_iterations: so many squarings in all, spread over the eigenpairs (None: as tol asks for, 20 per pair at 1e-6, and
    max_iterations at most). components: how many eigenpairs (None: all).
    `iterations` of the result counts squarings; `converged` is None, as nothing is opened to know it.
    """
    d = A0.shape[0]
    count = d if components is None else components
    if not 1 <= count <= d:
        raise ValueError(f"components must lie in 1..{d}, got {components}")
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
