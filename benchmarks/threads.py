"""`ppca bench threads`: what a server's kernels gain by threads, kernel by kernel, in one process with nothing else in
it.

Sizes are those of a server's calls for d columns: d x d products and shares, one comparison for every pair of columns,
in passes of 65,536 as the gates make them. Every call is timed at 1 thread and at the others in turn, repeat by repeat,
so that a busy moment hits all; the best of the repeats counts. A machine that does other work as well shows the time
until a second thread gets a core, not what the thread brings. Outputs must be the same, bit by bit, for every number of
threads.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import ppca.native._kernels as k
from benchmarks.kernels import one_core, random_words
from ppca.protocol.gates import PASS_ELEMENTS
from ppca.web.report import duration

BITS = 64
MIN_SECONDS = 2e-3
"""Minimum seconds of one timing: calls are repeated to fill it."""


@dataclass
class Case:
    """A call of a kernel: what it works on, and what it writes."""

    kernel: str
    size: str
    call: Callable[[], Any]
    outputs: list[NDArray[Any]]

    def result(self, threads: int) -> list[bytes]:
        """The outputs of one call that starts from zeros."""
        k.set_threads(threads)
        for output in self.outputs:
            output[...] = 0
        self.call()
        return [output.tobytes() for output in self.outputs]


def cases(d: int, keys: int | None = None) -> Iterator[Case]:
    """The kernels of a server that works on d columns. keys: of FSS, if not one for every pair."""
    yield from products(d)
    yield from resharing(d)
    yield from gates(min(PASS_ELEMENTS, keys or d * (d - 1) // 2))


def products(d: int) -> Iterator[Case]:
    """Local products, and what is sent of them."""
    for limbs in (2, 1):
        a, b = random_words(2, d, d, limbs)
        out = np.zeros_like(a)
        yield Case(
            f"matmul {64 * limbs}", f"{d} x {d} x {d}", _call(k.matmul, out, a, b, 1, d, d, d, False, False), [out]
        )
        if limbs == 2:
            upper = np.zeros((d * (d + 1) // 2, 2), np.uint64)
            yield Case("matmul_upper 128", f"{d} x {d} x {d}", _call(k.matmul_upper, upper, a, b, d, d, False), [upper])
            narrow, few = np.ascontiguousarray(b[:, :16]), np.zeros((d, 16, 2), np.uint64)
            call = _call(k.matmul, few, a, narrow, 1, d, d, 16, False, False)
            yield Case("matmul 128, narrow", f"{d} x {d} x 16", call, [few])
    n = d * d
    x, y = random_words(2, n, 2)
    first, second = np.zeros((2, n, 2), np.uint64)
    yield Case("prg", f"{n:,}", _call(k.prg, first, KEY, 1, 0), [first])
    yield Case("mul_mask2", f"{n:,}", _call(k.mul_mask2, first, second, x, y, KEY, 1, 1, KEY, -1), [first, second])
    yield Case("add", f"{n:,}", _call(k.add, first, x, y), [first])
    yield Case("mul", f"{n:,}", _call(k.mul, first, x, y), [first])
    yield Case("sum", f"{d} x {d}", _call(k.sum, out := np.zeros((d, 2), np.uint64), x, d, d, 1), [out])


def resharing(d: int) -> Iterator[Case]:
    """Return what happens to d x d shares between two messages."""
    n = d * d
    data, message = np.zeros((2, n, 2), np.uint64), np.zeros((2, n, 2), np.uint64)
    pieces, arrived = random_words(n, 2), random_words(3, n, 2)
    yield Case("combine2", f"{n:,}", _call(k.combine2, data, arrived[0], arrived[1], 40, 0, 1), [data])
    size = (n * 72 + 7) // 8
    narrow = random_words(2, (size + 7) // 8).view(np.uint8)[:, :size].copy()
    call = _call(k.combine_narrow2, data, narrow[0], narrow[1], 40, 72, 0, 1)
    yield Case("combine_narrow2", f"{n:,}, 72 bits", call, [data])
    given, sent = random_words(2, n, 2), np.zeros((2, size), np.uint8)
    # in place on what it narrows: a second call sees the first one's result, the same for any number of threads
    call = _call(k.narrow2, sent[0], sent[1], given, 0, 72, 0, 1)
    yield Case("narrow2", f"{n:,}, 72 bits", call, [sent])
    call = _call(k.reshare_out, data, 0, message, pieces, KEY, 1, 0)
    yield Case("reshare_out", f"{n:,}", call, [data, message])
    yield Case("reshare_in", f"{n:,}", _call(k.reshare_in, data, 0, n, arrived[:2], arrived[2]), [data])
    packed, wide = np.zeros((n * 40 + 7) // 8, np.uint8), np.zeros((n, 2), np.uint64)
    yield Case("pack_bits", f"{n:,}, 40 bits", _call(k.pack_bits, packed, pieces, 40), [packed])
    full = random_words((len(packed) + 7) // 8).view(np.uint8)[: len(packed)].copy()
    yield Case("unpack_bits", f"{n:,}, 40 bits", _call(k.unpack_bits, wide, full, 40), [wide])


def gates(n: int) -> Iterator[Case]:
    """Comparisons: masks, keys, evaluations, random bits; a dealer makes keys for half of the elements."""
    half = n // 2
    shares, points, m = random_words(n, 2), random_words(n, 2), random_words(half, 2)
    alpha, seeds = np.zeros((half, 2), np.uint64), np.zeros((half, 4), np.uint64)
    opened = np.zeros((half * BITS + 7) // 8, np.uint8)
    yield Case("deal_masks", f"{half:,}", _call(k.deal_masks, alpha, seeds, opened, shares[:half], KEY, 1, BITS),
               [alpha, seeds, opened])  # fmt: skip
    sums = random_words(n).view(np.uint8)
    out = np.zeros((n, 2), np.uint64)
    call = _call(k.masked_points, out, sums[: 8 * half], sums[8 * half :], half, shares, 1, 0, BITS)
    yield Case("masked_points", f"{n:,}", call, [out])
    points[:, 1] = m[:, 1] = 0
    dealt, drawn = m.copy(), random_words(half, 4)
    roots, correction = np.zeros((2, 16 * half), np.uint8), np.zeros(k.sign_words(half, BITS), np.uint8)
    call = _call(k.sign_gen, roots[0], roots[1], correction, TREE, dealt, BITS, drawn)
    yield Case("sign_gen", f"{half:,} keys", call, [roots, correction])
    call()
    signs = np.zeros((n + 7) // 8, np.uint8)
    own, words = roots[0].copy(), correction.copy()
    both = points[: 2 * half]
    call = _call(k.sign_eval, signs[: (2 * half + 7) // 8], TREE, 0, own, words, own, words, both, BITS)
    yield Case("sign_eval", f"{2 * half:,} keys", call, [signs])
    few = min(half, 8192)  # keys with payloads are large
    key0, key1 = np.zeros((2, few, k.dcf_key_size(BITS, 2)), np.uint8)
    call = _call(k.dcf_gen, key0, key1, TREE, dealt[:few], BITS, 2, drawn[:few])
    yield Case("dcf_gen", f"{few:,} keys", call, [key0, key1])
    call()
    found, kept = np.zeros((few, 2), np.uint64), key0.copy()
    yield Case("dcf_eval", f"{few:,} keys", _call(k.dcf_eval, found, TREE, 0, kept, points[:few], BITS), [found])
    levels, value_bytes = (1, 1), 16
    key0, key1 = np.zeros((2, few, k.prefix_key_size(BITS, 2, levels, value_bytes)), np.uint8)
    call = _call(k.prefix_gen, key0, key1, TREE, dealt[:few], BITS, 2, levels, value_bytes, drawn[:few])
    yield Case("prefix_gen", f"{few:,} keys", call, [key0, key1])
    call()
    sums, kept, weights = np.zeros((few, 1, 2), np.uint64), key0.copy(), random_words(BITS, 1, 2)
    call = _call(k.prefix_sums, sums, TREE, 0, kept, points[:few], BITS, levels, value_bytes, 4, 1, False, weights)
    yield Case("prefix_sums", f"{few:,} keys", call, [sums])
    yield from random_bits(n)


def random_bits(n: int) -> Iterator[Case]:
    """Shared random bits, and bits opened under them."""
    to_diagonal, to_mate, from_diagonal, from_mate = k.bit_messages(n, 0)
    data, bits = np.zeros((2, n, 2), np.uint64), np.zeros((n + 7) // 8, np.uint8)
    diagonal, mate = np.zeros((to_diagonal, 2), np.uint64), np.zeros((to_mate, 2), np.uint64)
    call = _call(k.bits_out, data, bits, diagonal, mate, 0, KEY, KEY, 1)
    yield Case("bits_out", f"{n:,}", call, [data, bits, diagonal, mate])
    drawn = random_words(n // 64 + 1).view(np.uint8)[: len(bits)].copy()
    call = _call(k.bits_in, data, drawn, random_words(from_diagonal, 2), random_words(from_mate, 2), 0)
    yield Case("bits_in", f"{n:,}", call, [data])
    head = n // 16 * 8
    first, second = drawn[: head // 8], drawn[: (n - head + 7) // 8]
    call = _call(k.unmask_bits, data, head, first, first, second, drawn[-len(second) :], 0)
    yield Case("unmask_bits", f"{n:,}", call, [data])


KEY = k.Key(bytes(range(16)))
TREE = k.TreeKey(bytes(range(32)))


def _call(kernel: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    return lambda: kernel(*arguments)


# -- the measurement -------------------------------------------------------------------------------------------------


def timed(case: Case, threads: Sequence[int], repeats: int) -> dict[int, float]:
    """Seconds of one call by number of threads: the best of the repeats, which take turns."""
    k.set_threads(1)
    case.call()
    start = time.perf_counter()
    case.call()
    loops = max(1, int(MIN_SECONDS / max(time.perf_counter() - start, 1e-7)))
    best = dict.fromkeys(threads, float("inf"))
    for _ in range(repeats):
        for count in threads:
            k.set_threads(count)
            start = time.perf_counter()
            for _ in range(loops):
                case.call()
            best[count] = min(best[count], (time.perf_counter() - start) / loops)
    return best


def main(dimensions: Sequence[int], threads: Sequence[int], repeats: int, directory: Path) -> bool:
    """Return whether all outputs were the same."""
    threads = sorted({1, *threads})
    rows = []
    with one_core():
        for d in dimensions:
            for case in cases(d):
                seconds = timed(case, threads, repeats)
                same = all(case.result(count) == case.result(1) for count in threads[1:])
                rows.append({"d": d, "kernel": case.kernel, "size": case.size, "seconds": seconds, "identical": same})
    console = Console()
    for d in dimensions:
        table = Table(title=f"Threads of one server's kernels, d = {d}", title_justify="left")
        for heading in (
            "kernel",
            "size",
            "1 thread",
            *(f"{count} threads" for count in threads[1:]),
            "speed-up",
            "same bits",
        ):
            table.add_column(heading, justify="left" if heading in ("kernel", "size") else "right")
        for row in rows:
            if row["d"] == d:
                table.add_row(*_cells(row, threads))
        console.print(table)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; best of {repeats} repeats.", highlight=False)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "threads.json"
    machine = {
        "processor": platform.processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "repeats": repeats,
    }
    path.write_text(json.dumps(machine | {"rows": rows}, indent=1) + "\n")
    console.print(f"written: {path}")
    return all(row["identical"] for row in rows)


def _cells(row: dict[str, Any], threads: Sequence[int]) -> list[str]:
    seconds: dict[int, float] = row["seconds"]
    faster = f"{seconds[1] / seconds[threads[-1]]:.2f}"
    times = [duration(seconds[count]) for count in threads]
    return [row["kernel"], row["size"], *times, faster, "yes" if row["identical"] else "NO"]
