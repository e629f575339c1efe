"""The paper's Table 2, measured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.counting import CountingArray, counted, expensive_operations


@pytest.mark.parametrize("d", [4, 7])
def test_table_two(d: int) -> None:
    counts = expensive_operations(d)

    def row(solver: str) -> tuple[int, ...]:
        return tuple(counts[solver][name] for name in ("comparison", "equality", "sqrt", "reciprocal"))

    assert row("jacobi-classic") == (1, 1, 2, 3)  # the paper's "GR in Jacobi"
    assert row("jacobi-eo") == (2, 1, 2, 1)  # "Optimized Jacobi"
    assert row("qr") == (d - 1 + 1, 0, 2 * (d - 1), d - 1)  # "HR in QR Shift", and one comparison for the shift
    assert row("jacobi") == (1, 0, 0, 0)
    assert row("allpairs") == (0, 0, 0, 0)
    assert row("power") == (0, 0, 0, 0)
    tables = {solver: counts[solver]["table"] for solver in counts}
    assert tables == {"allpairs": 3, "jacobi": 1, "jacobi-classic": 0, "jacobi-eo": 0, "qr": 1, "power": 1}


def test_every_expensive_operation_counts() -> None:
    async def program(a: CountingArray, b: CountingArray) -> None:
        for operation in (a < b, a <= b, a > b, a >= b, a.negative(), a.sign(), a.abs()):
            await operation
        for operation in (a == b, a != b, a.sqrt(), b.rsqrt(), b.reciprocal(), 1 / b, a / b):
            await operation
        await b.coarse_power(-0.5, 0.5)
        await a.slope()
        await a.lookup([0.5], [0.0, 1.0])
        (a + b, a * 2, a / 2, await (a * b), await (a @ b))

    tally = counted(program, np.ones((2, 2)))
    assert dict(tally) == {"comparison": 7, "equality": 2, "sqrt": 1, "rsqrt": 1, "reciprocal": 3, "table": 3}
