"""Speed of the native kernels on one core, at every instruction-set level that runs here, beside their targets.

Each figure is the best and the median over repeats of a call on preallocated arrays; calls are batched until a repeat
takes about five milliseconds, so that the clock does not matter. The best is the figure to compare with a target: it is
the least disturbed by other work on the machine.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import ppca.native._kernels as k

Row = dict[str, Any]
Words = npt.NDArray[np.uint64]

REPEAT_SECONDS = 5e-3

# What the design asks of each kernel, per level ("*" = any other level); None = no target.
TARGETS: dict[str, dict[str, float]] = {
    "matmul 128": {"avx512ifma": 0.8, "*": 1.3},
    "matmul 64": {"*": 0.25},
    "dcf_gen": {"vaes": 1.2, "aesni": 1.2},
    "dcf_eval": {"vaes": 0.08, "aesni": 0.2},
    "classify_sums": {"vaes": 0.08, "aesni": 0.2},
    "sign_gen": {"vaes": 1.2, "aesni": 1.2},
    "sign_eval": {"vaes": 0.08, "aesni": 0.2},
}


def target(kernel: str, level: str) -> float | None:
    """The target of a kernel at a level, in the unit of its row."""
    levels = TARGETS.get(kernel, {})
    return levels.get(level, levels.get("*"))


def seconds_per_call(call: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of one call, once per repeat, each averaged over enough calls to fill REPEAT_SECONDS."""
    call()
    start = time.perf_counter()
    call()
    loops = max(1, int(REPEAT_SECONDS / max(time.perf_counter() - start, 1e-7)))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(loops):
            call()
        times.append((time.perf_counter() - start) / loops)
    return times


def row(kernel: str, size: str, level: str, unit: str, values: list[float]) -> Row:
    """One line of the table; `values` are one figure per repeat, in `unit`."""
    best = max(values) if unit == "GB/s" else min(values)
    return {
        "kernel": kernel,
        "size": size,
        "level": level,
        "unit": unit,
        "best": best,
        "median": statistics.median(values),
        "target": target(kernel, level),
    }


def random_words(*shape: int) -> Words:
    """Uniform uint64 words."""
    return np.random.default_rng(1).integers(0, 2**64, shape, dtype=np.uint64)


@contextmanager
def one_core() -> Iterator[None]:
    """One thread inside, the caller's thread limit and the best levels again outside."""
    before = k.threads()
    k.set_threads(1)
    try:
        yield
    finally:
        k.set_threads(before)
        k.force_ring("auto")
        k.force_fss("auto")


def ring_rows(level: str, repeats: int) -> Iterator[Row]:
    """Square matrix products in both rings, in nanoseconds per multiply-add."""
    for limbs in (2, 1):
        for d in (115, 200, 500):
            a, b = random_words(2, d, d, limbs)
            out = np.zeros_like(a)
            times = seconds_per_call(partial(k.matmul, out, a, b, 1, d, d, d, False, False), repeats)
            yield row(f"matmul {64 * limbs}", f"d = {d}", level, "ns/madd", [t / d**3 * 1e9 for t in times])


def stream_rows(level: str, repeats: int) -> Iterator[Row]:
    """Masked element-wise products and the raw stream, in the 128-bit ring."""
    key = k.Key(bytes(range(16)))
    for n in (1_000, 100_000):
        x, y = random_words(2, n, 2)
        a, b = np.zeros_like(x), np.zeros_like(x)
        times = seconds_per_call(partial(k.mul_mask2, a, b, x, y, key, 1, 1, key, -1), repeats)
        yield row("mul_mask2", f"n = {n}", level, "ns/element", [t / n * 1e9 for t in times])
        times = seconds_per_call(partial(k.prg, a, key, 1, 0), repeats)
        yield row("prg", f"n = {n}", level, "GB/s", [16 * n / t * 1e-9 for t in times])


TREE = k.TreeKey(bytes(range(32)))


def fss_rows(level: str, repeats: int) -> Iterator[Row]:
    """Keys over 64 bits, in microseconds per key or evaluation: of comparisons as bits (what x < y uses), then with
    payloads in the 128-bit ring (tables, normalisation)."""
    bits, limbs, nodes = 64, 2, 5
    powers = np.stack([np.uint64(1) << np.arange(64, dtype=np.uint64), np.zeros(64, np.uint64)], axis=1)
    for n in (1_000, 10_000):
        alpha, m = random_words(2, n, 2)
        alpha[:, 1] = m[:, 1] = 0
        seeds = random_words(n, 4)
        keys = np.zeros((2, n, k.dcf_key_size(bits, limbs)), np.uint8)
        size = f"n = {n}"
        roots, correction = np.zeros((2, 16 * n), np.uint8), np.zeros(k.sign_words(n, bits), np.uint8)
        times = seconds_per_call(partial(k.sign_gen, roots[0], roots[1], correction, TREE, alpha, bits, seeds), repeats)
        yield row("sign_gen", size, level, "us/key", [t / n * 1e6 for t in times])
        packed, nothing = np.zeros((n + 7) // 8, np.uint8), np.zeros(0, np.uint8)
        call = partial(k.sign_eval, packed, TREE, 0, roots[0], correction, nothing, nothing, m, bits)
        yield row("sign_eval", size, level, "us/eval", [t / n * 1e6 for t in seconds_per_call(call, repeats)])
        times = seconds_per_call(partial(k.dcf_gen, keys[0], keys[1], TREE, alpha, bits, limbs, seeds), repeats)
        yield row("dcf_gen", size, level, "us/key", [t / n * 1e6 for t in times])
        out = np.zeros((n, 1, limbs), np.uint64)
        times = seconds_per_call(partial(k.dcf_eval, out, TREE, 0, keys[0], m, bits), repeats)
        yield row("dcf_eval", size, level, "us/eval", [t / n * 1e6 for t in times])
        if n > 1_000:
            continue
        weights = random_words(bits, 1, limbs)
        call = partial(k.classify_sums, out, TREE, 0, keys[0], m, powers, bits, weights)
        times = seconds_per_call(call, repeats)
        yield row("classify_sums", f"{size}, 64 powers", level, "us/eval", [t / n / len(powers) * 1e6 for t in times])
        keys = np.zeros((2, n, k.prefix_key_size(bits, limbs, (1, 1), 8 * limbs)), np.uint8)
        times = seconds_per_call(
            partial(k.prefix_gen, keys[0], keys[1], TREE, alpha, bits, limbs, (1, 1), 8 * limbs, seeds), repeats
        )
        yield row("prefix_gen", size, level, "us/key", [t / n * 1e6 for t in times])
        shape = bits, (1, 1), 8 * limbs, nodes - 1, 1, False
        times = seconds_per_call(partial(k.prefix_sums, out, TREE, 0, keys[0], m, *shape, weights), repeats)
        yield row("prefix_sums", f"{size}, {nodes} nodes", level, "us/key", [t / n * 1e6 for t in times])


def run(repeats: int = 7) -> list[Row]:
    """Measure every kernel at every level and return one row per figure."""
    rows: list[Row] = []
    with one_core():
        for level in k.ring_levels():
            if level.startswith("emulated"):
                continue  # exists to test the arithmetic of a level that this machine lacks, not to be fast
            k.force_ring(level)
            rows.extend(ring_rows(level, repeats))
        for level in k.fss_levels():
            k.force_fss(level)
            rows.extend(stream_rows(level, repeats))
            rows.extend(fss_rows(level, repeats))
    return rows


def machine() -> dict[str, Any]:
    """Return what the figures depend on: processor type and the levels in use."""
    return {
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "ring_levels": list(k.ring_levels()),
        "fss_levels": list(k.fss_levels()),
        "threads": 1,
    }


def main(json_path: Path | None = None, repeats: int = 7) -> None:
    """Print the table and, if asked, write {machine, rows} as JSON."""
    rows = run(repeats)
    table = Table(title="Native kernels, one core")
    for heading in ("kernel", "size", "level", "unit"):
        table.add_column(heading)
    for heading in ("best", "median", "target"):
        table.add_column(heading, justify="right")
    for r in rows:
        goal = r["target"]
        met = goal is not None and r["best"] <= goal
        style = "" if goal is None else "green" if met else "yellow"
        table.add_row(
            r["kernel"],
            r["size"],
            r["level"],
            r["unit"],
            f"[{style}]{r['best']:.3g}[/]" if style else f"{r['best']:.3g}",
            f"{r['median']:.3g}",
            "" if goal is None else f"{goal:g}",
        )
    Console().print(table)
    if json_path is not None:
        json_path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")
