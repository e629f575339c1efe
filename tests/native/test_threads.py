"""Kernels on several threads: the same bits as on one, for sizes that are cut into pieces, whole ones and a rest."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.kernels import one_core
from benchmarks.threads import Case, gates, products, resharing
from ppca.protocol.gates import PASS_ELEMENTS


def check(cases: Iterable[Case]) -> None:
    with one_core():
        for case in cases:
            wanted = case.result(1)
            assert any(any(output) for output in wanted), case.kernel
            for threads in (2, 3, 8):
                assert case.result(threads) == wanted, f"{case.kernel}, {threads} threads"


def test_products() -> None:
    check(products(270))  # 72,900 elements: a piece and a rest


def test_resharing() -> None:
    check(resharing(270))


def test_gates() -> None:
    check(gates(2 * PASS_ELEMENTS + 38))  # every step is cut: the largest pieces are half a pass
