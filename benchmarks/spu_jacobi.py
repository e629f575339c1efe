"""An eigendecomposition in SecretFlow SPU (ABY3, 128-bit ring): a vectorised Jacobi on three local processes.

Executed by the Python of the peer's virtual environment (see `benchmarks.peers`); imports nothing of PPCA. The package
brings no eigensolver (SPU's separate library sml has a Jacobi solver), so this is what a user that knows it would
write: parallel cyclic Jacobi, d/2 disjoint pairs a step in a loop of public length, pairs always in the same places and
the rows moved on by slices (round-robin), rotations by two rsqrt and one comparison, rows and columns combined element
by element (no d^3 products). A Newton step makes each rotation orthogonal to the last bits: without it SPU's rsqrt
leaves 1e-3. The matrix is scaled to norm 64, where its 26 fractional bits are used best.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.spu_parties import PARTIES, Parties, runtime_config

NORM = 64.0
MIN_VALUE = 2.0**-20
"""Added to the squares, so that a pair of zeros does not divide by zero."""


def turned(rows: Any) -> Any:
    """Rows moved on by one place of the round-robin: the first stays, the others go round; all pairs meet in d - 1
    steps."""
    import jax.numpy as jnp  # type: ignore[import-not-found]

    m = len(rows) // 2
    return jnp.concatenate([rows[:1], rows[m : m + 1], rows[1 : m - 1], rows[m + 1 :], rows[m - 1 : m]], axis=0)


def step(A: Any, V: Any) -> tuple[Any, Any]:
    """Rotate the pairs (i, i + d/2) to zero; V holds vectors as rows."""
    import jax
    import jax.numpy as jnp

    m = len(A) // 2
    diagonal = jnp.diagonal(A)
    h, e = diagonal[m:] - diagonal[:m], 2 * jnp.diagonal(A[:m, m:])
    negative = h < 0
    h, e = jnp.where(negative, -h, h), jnp.where(negative, -e, e)
    r = jax.lax.rsqrt(h * h + e * e + MIN_VALUE)
    u = 0.5 + 0.5 * h * r  # the square of the cosine
    w = jax.lax.rsqrt(u)
    c, s = u * w, 0.5 * e * r * w
    length = 1.5 - 0.5 * (c * c + s * s)
    c, s = (c * length)[:, None], (s * length)[:, None]

    def rotated(rows: Any) -> Any:
        first, second = rows[:m], rows[m:]
        return turned(jnp.concatenate([c * first - s * second, s * first + c * second], axis=0))

    return rotated(rotated(A).T), rotated(V)


def decomposition(A: Any, V: Any, steps: int) -> tuple[Any, Any]:
    """Eigenvalues, and eigenvectors as rows, after a number of steps."""
    import jax
    import jax.numpy as jnp

    A, V = jax.lax.fori_loop(0, steps, lambda _, both: step(*both), (A, V))
    return jnp.diagonal(A), V


def measure(A: Any, steps: int, delay: float, rate: float) -> dict[str, Any]:
    """One decomposition of a matrix of even dimension: seconds, bytes and messages of a party, values and vectors."""
    import jax
    import numpy as np
    from spu import Io  # type: ignore[import-not-found]

    jax.config.update("jax_enable_x64", True)
    d, norm = len(A), NORM / np.linalg.norm(A)
    padded = np.pad(A * norm, (0, d % 2))
    io = Io(PARTIES, runtime_config({}))
    with (
        tempfile.TemporaryDirectory(prefix="spu-jacobi-") as directory,
        Parties(Path(directory), delay, rate) as parties,
    ):
        parties.answers()
        arrays = [padded, np.eye(len(padded))]
        answers = parties.run(lambda A, V: decomposition(A, V, steps), arrays, io, {}, 1, 0)
    values, rows = (io.reconstruct([answer["results"][i] for answer in answers]) for i in range(2))
    figures = [answer["profile"][-1] for answer in answers]
    return {
        "seconds": max(answer["times"][0] for answer in answers),
        "bytes_per_party": statistics.mean(one["bytes"] for one in figures),
        "messages_per_party": statistics.mean(one["messages"] for one in figures),
        "values": (np.asarray(values, np.float64) / norm).tolist(),
        "vectors": np.asarray(rows, np.float64).T.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time a Jacobi eigendecomposition in SPU (ABY3, FM128), three local processes."
    )
    parser.add_argument("--matrix", type=Path, required=True, help=".npy file of a symmetric matrix")
    parser.add_argument("--steps", type=int, nargs="+", required=True, help="Jacobi steps; a run for each number")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds one way between parties")
    parser.add_argument("--rate", type=float, default=0.0, help="bits per second of a link")
    parser.add_argument("--json", type=Path, required=True, help="file for the result")
    arguments = parser.parse_args()

    import numpy as np

    A = np.load(arguments.matrix)
    runs = [measure(A, steps, arguments.delay, arguments.rate) for steps in arguments.steps]
    arguments.json.write_text(json.dumps({"version": version("spu"), "runs": runs}) + "\n")
