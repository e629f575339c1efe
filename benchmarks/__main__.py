"""`python -m benchmarks`, or `ppca bench`: measurements anyone can repeat. Each prints a table and writes JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import programs, table_console

app = typer.Typer(
    help="Measure kernels, operations, solvers and whole jobs on this machine.",
    add_completion=False,
    no_args_is_help=True,
)

Output = Annotated[Path, typer.Option("--output", "-o", help="folder for JSON and plots")]
DEFAULT_OUTPUT = Path("bench-results")
Data = Annotated[
    Path | None,
    typer.Option("--data", envvar="PPCA_DATA", exists=True, file_okay=False, help="folder of the data sets' files"),
]


@app.command()
def kernels(output: Output = DEFAULT_OUTPUT, repeats: Annotated[int, typer.Option(min=1)] = 7) -> None:
    """Native kernels on one core: ring products, streams, function secret sharing."""
    from benchmarks import kernels as bench

    output.mkdir(parents=True, exist_ok=True)
    bench.main(output / "kernels.json", repeats)


@app.command()
def threads(
    output: Output = DEFAULT_OUTPUT,
    dimensions: Annotated[list[int] | None, typer.Option("--d", help="columns; repeat the option")] = None,
    counts: Annotated[list[int] | None, typer.Option("--threads", min=1, help="threads; repeat the option")] = None,
    repeats: Annotated[int, typer.Option(min=1)] = 15,
) -> None:
    """Return what one server's kernels gain by threads, kernel by kernel. Exit code 1 if an output depends on their
    number."""
    from benchmarks import threads as bench

    if not bench.main(dimensions or [115, 500], counts or [2], repeats, output):
        raise typer.Exit(1)


@app.command()
def ops(
    output: Output = DEFAULT_OUTPUT,
    sizes: Annotated[list[int] | None, typer.Option("--size", help="elements; repeat the option")] = None,
    operations: Annotated[list[str] | None, typer.Option("--op", help="operation; repeat the option")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="blocks measured; the median counts")] = 7,
    tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False,
) -> None:
    """Secure operations on four local server processes: time, rounds, bytes, error (the paper's Table 1)."""
    from benchmarks import ops as bench

    chosen = operations or list(programs.OPERATIONS)
    unknown = [op for op in chosen if op not in programs.OPERATIONS]
    if unknown:
        raise typer.BadParameter(f"unknown operation {unknown[0]!r}; choose from {', '.join(programs.OPERATIONS)}")
    bench.main(sizes or [1_000, 10_000, 100_000, 1_000_000], chosen, repeats, tls, output)


@app.command()
def spu(
    output: Output = DEFAULT_OUTPUT,
    venv: Annotated[Path, typer.Option(help="separate virtual environment for the peer (created if missing)")] = Path(
        ".venv-spu"
    ),
    repeats: Annotated[int, typer.Option(min=1)] = 9,
) -> None:
    """The same operations in the PyPI package `spu` (ABY3, 128-bit field, three local processes) and the ratios."""
    from benchmarks import compare

    compare.main(venv, repeats, output)


@app.command()
def eigen(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    dimensions: Annotated[list[int] | None, typer.Option("--d", help="dimension; repeat the option")] = None,
    solvers: Annotated[list[str] | None, typer.Option("--solver", help="solver; repeat the option")] = None,
    tol: Annotated[float, typer.Option(help="tolerance of the solvers")] = 1e-7,
    budget: Annotated[float, typer.Option(help="seconds a single run may take before it is projected")] = 60.0,
    profile: Annotated[bool, typer.Option("--profile", help="show where the bytes went, by kind of message")] = False,
) -> None:
    """Eigensolvers on shares: rounds, bytes, time here and predicted for LAN and WAN, accuracy."""
    from benchmarks import eigen as bench
    from ppca.algorithms.solvers import SOLVERS

    chosen = solvers or list(SOLVERS)
    unknown = [name for name in chosen if name not in SOLVERS]
    if unknown:
        raise typer.BadParameter(f"unknown solver {unknown[0]!r}; choose from {', '.join(SOLVERS)}")
    bench.main(dimensions or [11, 50, 85, 115, 166, 200], data, chosen, tol, budget, output, profile)


@app.command()
def topk(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    dimensions: Annotated[list[int] | None, typer.Option("--d", help="dimension; repeat the option")] = None,
    ks: Annotated[list[int] | None, typer.Option("--k", help="number of pairs; repeat the option")] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--spectrum",
            help="decaying, steep, very steep, flat, noisy, gene, halving, scales or real; repeat the option",
        ),
    ] = None,
    beside: Annotated[int, typer.Option(help="run all-pairs beside it up to this dimension")] = 0,
    tol: Annotated[float, typer.Option(help="tolerance of the solvers")] = 1e-7,
    cases: Annotated[
        int, typer.Option(help="Number of random matrices: test in plaintext whether a wrong result is accepted.")
    ] = 0,
    on_shares: Annotated[bool, typer.Option("--on-shares", help="with --cases: on four local servers")] = False,
    seed: Annotated[int, typer.Option(help="of the random matrices")] = 0,
) -> None:
    """The K largest eigenpairs of large matrices: rounds, bytes, time, memory, errors, certificate."""
    from benchmarks import topk as bench

    if cases:
        if not bench.cases(cases, (dimensions or [100])[0], tol, seed, on_shares, output):
            raise typer.Exit(1)
        return
    bench.main(
        dimensions or [500, 1000],
        ks or [2, 10, 50],
        kinds or ["decaying", "steep", "flat", "noisy"],
        beside,
        tol,
        data,
        output,
    )


@app.command()
def counts(
    output: Output = DEFAULT_OUTPUT,
    d: Annotated[int, typer.Option(min=3, help="dimension of the counted runs")] = 8,
    sizes: Annotated[list[int] | None, typer.Option("--size", help="numbers to sort; repeat the option")] = None,
) -> None:
    """Expensive operations per iteration of every solver (the paper's Table 2); its batch_sort beside our sort."""
    from benchmarks import counts as bench

    bench.main(d, sizes or [20, 50, 115], output)


@app.command()
def accuracy(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    names: Annotated[list[str] | None, typer.Option("--set", help="data set; repeat the option")] = None,
) -> None:
    """Joint PCA of real data sets beside scikit-learn: rounds, bytes, time, errors, and the limits they must keep."""
    from benchmarks import accuracy as bench
    from benchmarks.data_sets import DATA_SETS

    chosen = names or list(DATA_SETS)
    unknown = [name for name in chosen if name not in DATA_SETS]
    if unknown:
        raise typer.BadParameter(f"unknown data set {unknown[0]!r}; choose from {', '.join(DATA_SETS)}")
    bench.main(chosen, data, output)


@app.command()
def components(
    output: Output = DEFAULT_OUTPUT,
    names: Annotated[list[str] | None, typer.Option("--table", help="table; repeat the option")] = None,
) -> None:
    """Worst error of a component on textbook tables, beside its bound. Exit code 1 if a bound does not hold."""
    from benchmarks import textbook as bench

    unknown = [name for name in names or () if name not in bench.NAMES]
    if unknown:
        raise typer.BadParameter(f"unknown table {unknown[0]!r}; choose from {', '.join(bench.NAMES)}")
    if not bench.main(names or bench.NAMES, output):
        raise typer.Exit(1)


@app.command()
def federation(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    d: Annotated[int, typer.Option(min=2, help="columns of synthetic data")] = 115,
    rows: Annotated[int, typer.Option(min=100, help="rows of all owners")] = 3000,
    delay: Annotated[float, typer.Option(min=0, help="milliseconds one way between servers, in the slow run")] = 40.0,
    rate: Annotated[
        float, typer.Option(min=0, help="Mbit/s of every direction of a link, in the slow run; 0: any")
    ] = 100.0,
) -> None:
    """A job over a federation of processes beside local servers, and over slow links: measured and predicted."""
    from benchmarks import federation as bench

    bench.main(d, rows, delay / 1000, rate * 1e6, data, output)


@app.command()
def chaos(
    output: Output = DEFAULT_OUTPUT,
    kills: Annotated[int, typer.Option(min=1, help="kills of servers and clients until it ends")] = 200,
    seed: Annotated[int, typer.Option(help="of what happens when")] = 0,
    seconds: Annotated[float, typer.Option(min=1, help="end after this time, whatever the number of kills")] = math.inf,
    only: Annotated[str, typer.Option(help="only what has this text in its name, such as kill")] = "",
) -> None:
    """A federation under attack: kills, cut links, full disks, damaged stores, wrong clocks, lying members, strangers.

    Exit code 1 if a job hangs, goes wrong or is lost, if something wrong is accepted, or if a server takes too much
    memory.
    """
    from benchmarks import chaos as bench

    if bench.main(kills, seed, output, seconds, only).faults:
        raise typer.Exit(1)


@app.command()
def edges(
    output: Output = DEFAULT_OUTPUT, rows: Annotated[int, typer.Option(min=20, help="rows of every table")] = 600
) -> None:
    """Joint PCA where digits are lost easily, beside exact arithmetic: large means, timestamps, scales far apart."""
    from benchmarks import edges as bench

    bench.main(rows, output)


@app.command()
def owner(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    rows: Annotated[int, typer.Option(min=100, help="rows of all owners together")] = 7_062_606,
    folder: Annotated[
        Path | None, typer.Option(help="where the tables are written for the time of the measurement (3.2 GB)")
    ] = None,
) -> None:
    """Owners' passes over tables of the paper's size, beside reading them and one product; then the whole joint PCA."""
    from benchmarks import owner as bench

    bench.main(rows, data, folder, output)


@app.command()
def scale(
    output: Output = DEFAULT_OUTPUT,
    rows: Annotated[int, typer.Option(min=1000, help="rows of the owner's table")] = 100_000_000,
    columns: Annotated[int, typer.Option(min=2, help="columns of the table")] = 50,
    files: Annotated[int, typer.Option(min=1, help="Parquet files of the table")] = 20,
    distinct: Annotated[int, typer.Option(min=1, help="files that are written; the others are hard links to them")] = 5,
    workers: Annotated[int, typer.Option(min=1, help="worker processes of the Dask cluster")] = 2,
    here: Annotated[bool, typer.Option("--here/--no-here", help="also the pass of one process without Dask")] = True,
    folder: Annotated[
        Path | None, typer.Option(help="where the files are written for the time of the measurement (5 GB)")
    ] = None,
) -> None:
    """An owner's pass over many Parquet files on a local Dask cluster, beside plain reading by PyArrow: speed and
    memory."""
    from benchmarks import scale as bench

    bench.main(rows, columns, files, distinct, workers, folder, here, output)


@app.command()
def wide(
    output: Output = DEFAULT_OUTPUT,
    rows: Annotated[int, typer.Option(min=2, help="rows of the joint table")] = 1_000,
    columns: Annotated[int, typer.Option(min=3, help="columns of the joint table")] = 20_000,
    components: Annotated[int, typer.Option("-k", min=1)] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="150 x 2,000")] = False,
) -> None:
    """Tables with more columns than rows, of three row owners and of columns, beside scikit-learn."""
    from benchmarks import wide as bench

    if not bench.main(*((150, 2_000) if quick else (rows, columns)), components, output):
        raise typer.Exit(1)


@app.command()
def vertical(
    output: Output = DEFAULT_OUTPUT,
    data: Data = None,
    rows: Annotated[int, typer.Option(min=1000, help="rows of the synthetic table")] = 195_177,
    chunks: Annotated[list[int] | None, typer.Option("--chunks", help="row chunks; repeat the option")] = None,
    ids: Annotated[int, typer.Option(min=1000, help="ids per owner in the measurement of tags")] = 10_000_000,
) -> None:
    """Column owners: time by stage, memory, bytes and accuracy of ten owners; private set intersection of many
    ids."""
    from benchmarks import vertical as bench

    bench.main(rows, chunks or [24, 48, 96], ids, data, output)


@app.command()
def load(
    output: Output = DEFAULT_OUTPUT,
    jobs: Annotated[int, typer.Option(min=1, help="small jobs, submitted as fast as the owners can")] = 200,
    owners: Annotated[int, typer.Option(min=1, help="owners; each computes for itself")] = 20,
    at_once: Annotated[int, typer.Option(min=1, help="jobs_at_once of every server")] = 1,
    flood: Annotated[int, typer.Option(min=0, help="idle connections per second to each port meanwhile")] = 0,
) -> None:
    """Many small jobs at once: throughput, order and memory. Exit code 1 if a job is not done."""
    from benchmarks import load as bench

    if not bench.main(jobs, owners, at_once, flood, output):
        raise typer.Exit(1)


@app.command()
def floods(
    output: Output = DEFAULT_OUTPUT,
    jobs: Annotated[int, typer.Option(min=1, help="honest jobs during each flood, one after the other")] = 3,
) -> None:
    """The time of an honest job while servers are flooded, and their memory. Exit code 1 if a job is not done."""
    from benchmarks import floods as bench

    if not bench.main(jobs, output):
        raise typer.Exit(1)


@app.command()
def fuzz(
    output: Output = DEFAULT_OUTPUT,
    inputs: Annotated[int, typer.Option(min=100, help="malformed inputs in all")] = 240_000,
    first: Annotated[int, typer.Option(min=0, help="number of the first input: another one gives other inputs")] = 0,
) -> None:
    """Malformed packets, messages, files, objects and requests: each must be refused by name, without harm."""
    from benchmarks import fuzz as bench

    if not bench.main(inputs, first, output):
        raise typer.Exit(1)


@app.command()
def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(help="parts of the paper's evaluation, or all; collect: write docs/evaluation/paper.md"),
    ],
    output: Output = DEFAULT_OUTPUT / "reproduce",
    data: Data = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="smaller sizes: all parts within a quarter of an hour")
    ] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="the sizes of the tests: shows that it runs")] = False,
    solver: Annotated[str, typer.Option(help="of jobs that need the largest components only")] = "auto",
    spu: Annotated[Path | None, typer.Option(help="virtual environment of the peer SPU (created if missing)")] = None,
    mp_spdz: Annotated[
        Path | None, typer.Option("--mp-spdz", exists=True, file_okay=False, help="built tree of the peer MP-SPDZ")
    ] = None,
    mp_spdz_plain: Annotated[
        Path | None,
        typer.Option(
            "--mp-spdz-plain",
            exists=True,
            file_okay=False,
            help="a tree of MP-SPDZ built with -DINSECURE, for plain channels",
        ),
    ] = None,
) -> None:
    """The paper's tables and figures, the peers and slow networks: terminal, Markdown, JSON and figures."""
    from benchmarks.reproduce import collecting, command
    from benchmarks.reproduce.parts import PARTS
    from benchmarks.reproduce.result import Options

    if what == ["collect"]:
        taken = ", ".join(collecting.collect(output)) or "nothing"
        print(f"docs/evaluation/paper.md and the table of README.md are written; taken over: {taken}")
        return
    names = list(PARTS) if what == ["all"] else what
    if unknown := [name for name in names if name not in PARTS]:
        raise typer.BadParameter(f"unknown part {unknown[0]!r}; choose from {', '.join(PARTS)}, all, collect")
    options = Options(
        output, data, "tiny" if tiny else "quick" if quick else "full", solver, spu, mp_spdz, mp_spdz_plain
    )
    if command.reproduce(names, options, table_console()):
        raise typer.Exit(1)


@app.command()
def tables(results: Annotated[Path, typer.Argument(help="folder of the JSON")] = DEFAULT_OUTPUT) -> None:
    """Write the tables of docs/evaluation/benchmarks.md and docs/concepts/column-owners.md from JSON."""
    from benchmarks import tables as pages

    pages.main(results)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
