"""`ppca bench`: the measurements of a checkout, see benchmarks/; an installed package does not carry them."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from .errors import error_messages

CHECKOUT = Path(__file__).resolve().parents[3]


def bench(context: typer.Context) -> None:
    """Measure kernels, operations, solvers and whole jobs. Needs a checkout."""
    with error_messages():
        if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
            raise ValueError(
                "benchmarks are part of a checkout, not of the installed package: clone it, then `make bench`"
            )
        if str(CHECKOUT) not in sys.path:
            sys.path.insert(0, str(CHECKOUT))
        from benchmarks.__main__ import app
    app(context.args, prog_name="ppca bench")
