"""Time single operations of SecretFlow SPU (ABY3, 128-bit ring) with three local processes over TCP.

Executed by the Python of a separate virtual environment that has the PyPI package `spu` (see `benchmarks.peers`), so it
imports nothing of PPCA. What is timed is said in `benchmarks.spu_parties`.

What `Runtime.run` includes. SPU parses the compiled program text at each run. The row `nothing` (a program that returns
its input) is the cost of that alone, and the `kernel_` times of each row are what SPU's own profiler gives for the
operation without it, so a reader may compare either way. Results of `gt` and `eq` stay in SPU's boolean sharing.

Settings. The variant `default` sets the protocol and the field and nothing else; `tuned` turns on the documented
runtime options that can make a single operation faster (see `VARIANTS`). Threads are never restricted.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.spu_parties import PARTIES, Parties, runtime_config

WARM_UP_RUNS = 3
SEED = 20240607
INPUT_RANGE = (0.5, 100.0)

#: Runtime options beyond protocol and field, by variant. Left out of `tuned`: `trunc_allow_msb_error`, which ABY3 does
#: not read, and `enable_lower_accuracy_rsqrt`, which saves a twentieth of sqrt's bytes for a 200 times larger error.
VARIANTS: dict[str, dict[str, bool]] = {
    "default": {},
    "tuned": {
        "experimental_enable_intra_op_par": True,  # independent parts of one operation run at the same time
    },
}

#: Name, number of secret operands.
OPERATIONS: dict[str, int] = {
    "nothing": 1,
    "mul": 2,
    "gt": 2,
    "eq": 2,
    "sqrt": 1,
    "reciprocal": 1,
    "rsqrt": 1,
}

Row = dict[str, Any]


def jax_functions() -> dict[str, Callable[..., Any]]:
    """The operations as a user of SPU writes them."""
    import jax  # type: ignore[import-not-found]
    import jax.numpy as jnp  # type: ignore[import-not-found]

    return {
        "nothing": lambda x: x,
        "mul": jnp.multiply,
        "gt": jnp.greater,
        "eq": jnp.equal,
        "sqrt": jnp.sqrt,
        "reciprocal": lambda x: 1 / x,
        "rsqrt": jax.lax.rsqrt,
    }


def numpy_functions() -> dict[str, Callable[..., Any]]:
    """The same operations in float64, for the error."""
    import numpy as np

    return {
        "nothing": lambda x: x,
        "mul": np.multiply,
        "gt": np.greater,
        "eq": np.equal,
        "sqrt": np.sqrt,
        "reciprocal": np.reciprocal,
        "rsqrt": lambda x: 1 / np.sqrt(x),
    }


def operands(count: int, fraction_bits: int) -> tuple[Any, Any]:
    """Two vectors uniform in `INPUT_RANGE`, exact in SPU's fixed point; every second pair is equal, for `eq`."""
    import numpy as np

    scale = 2.0**fraction_bits
    x, y = np.round(np.random.default_rng(SEED).uniform(*INPUT_RANGE, size=(2, count)) * scale) / scale
    y[::2] = x[::2]
    return x, y


def fraction_bits_of(io: Any) -> int:
    """The fraction bits SPU chose, which it does not tell: the smallest power of two that survives sharing."""
    import numpy as np
    from spu import libspu  # type: ignore[import-not-found]

    powers = 2.0 ** -np.arange(1, 65)
    back = io.reconstruct(io.make_shares(powers, libspu.Visibility.VIS_SECRET))
    return int(np.flatnonzero(back == powers).max()) + 1


def measure(parties: Parties, variant: str, name: str, count: int, repeats: int) -> Row:
    """Time one operation on `count` elements and check its result against NumPy."""
    import numpy as np
    from spu import Io

    options = VARIANTS[variant]
    io = Io(PARTIES, runtime_config(options))
    arrays = list(operands(count, fraction_bits_of(io))[: OPERATIONS[name]])
    answers = parties.run(jax_functions()[name], arrays, io, options, repeats, WARM_UP_RUNS)

    slowest = [max(times) for times in zip(*(answer["times"] for answer in answers), strict=True)]
    result = io.reconstruct([answer["results"][0] for answer in answers]).astype(np.float64)
    expected = numpy_functions()[name](*arrays).astype(np.float64)
    error = np.abs(result - expected)
    row: Row = {
        "variant": variant,
        "op": name,
        "n": count,
        "median_s": statistics.median(slowest),
        "min_s": min(slowest),
        "times_s": slowest,
        "max_abs_error": float(error.max()),
    }
    if name not in ("gt", "eq"):
        row["max_rel_error"] = float((error / np.abs(expected)).max())
    runs = list(zip(*(answer["profile"] for answer in answers), strict=False))
    if runs:
        kernel = [max(figures["kernel_s"] for figures in run) for run in runs]
        row |= {
            "kernel_median_s": statistics.median(kernel),
            "kernel_min_s": min(kernel),
            # Means: parties take turns in ABY3's uneven roles.
            "bytes_sent_per_party": statistics.mean(figures["bytes"] for figures in runs[-1]),
            "messages_sent_per_party": statistics.mean(figures["messages"] for figures in runs[-1]),
        }
    return row


def benchmark(sizes: list[int], repeats: int, variants: list[str], operations: list[str]) -> dict[str, Any]:
    import jax
    from spu import Io

    # Without this JAX narrows the inputs to float32; SPU's fixed point and its cost are the same for both.
    jax.config.update("jax_enable_x64", True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="spu-peer-") as directory, Parties(Path(directory)) as parties:
        parties.answers()
        for variant in variants:
            for count in sizes:
                for name in operations:
                    rows.append(measure(parties, variant, name, count, repeats))
                    show(rows[-1])
    return {
        "version": version("spu"),
        "protocol": "ABY3",
        "field": "FM128",
        "rows": rows,
        "settings": {
            "fraction_bits": fraction_bits_of(Io(PARTIES, runtime_config({}))),
            "parties": PARTIES,
            "link": "brpc over TCP loopback, default options, no TLS",
            "variants": {variant: VARIANTS[variant] for variant in variants},
            "compiler_options": "default",
            "input_range": list(INPUT_RANGE),
            "warm_up_runs": WARM_UP_RUNS,
            "repeats": repeats,
            "time": "wall time around Runtime.run, slowest party; kernel times from SPU's profiler, slowest party",
            "versions": {name: version(name) for name in ("spu", "jax", "jaxlib", "numpy")}
            | {"python": platform.python_version()},
        },
    }


def show(row: Row) -> None:
    kernel = f"{row['kernel_median_s'] * 1e3:9.2f}" if "kernel_median_s" in row else " " * 9
    print(
        f"{row['variant']:8} {row['op']:10} n={row['n']:<8} median {row['median_s'] * 1e3:9.2f} ms  min "
        f"{row['min_s'] * 1e3:9.2f} ms  kernel {kernel} ms  sent {row.get('bytes_sent_per_party', 0):>9.0f} B  "
        f"error {row['max_abs_error']:.1e}",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time SPU (ABY3, FM128) with three local processes over TCP.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="numbers of elements")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each program")
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--operations", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--json", type=Path, help="file for the result; standard output without it")
    arguments = parser.parse_args()
    if min(arguments.sizes) < 1 or arguments.repeats < 1:
        parser.error("sizes and repeats must be at least 1")

    text = json.dumps(benchmark(arguments.sizes, arguments.repeats, arguments.variants, arguments.operations), indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
