"""The parts of the evaluation by name: each is a module of this folder with a function `run(options)` that gives a
result."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from .result import Options, Result

PARTS = {
    "table1": "operation costs, relative to 10^4 multiplications",
    "table2": "expensive operations per iteration, counted",
    "table3": "the nine data sets of the paper",
    "table4": "eigensolvers on shares",
    "table5": "the benefit of joining",
    "convergence": "iterations against the dimension",
    "anomaly": "attacks on devices found on shares",
    "attack": "rows from an opened covariance, and from what PPCA opens",
    "peers": "the same decomposition by other frameworks",
    "wan": "whole jobs over slow networks",
}
"""Name of the module, and what it measures; in the order of the page."""

NOT_TIMED = ("table5", "convergence", "anomaly", "attack")
"""Parts that show counts and qualities but no times: how busy the machine was does not matter."""

WITHOUT_DATA = ("table1", "table2", "convergence")
"""Parts whose numbers are made, whatever data are given."""


def part(name: str) -> Callable[[Options], Result]:
    """The function that measures the part of that name."""
    if name not in PARTS:
        raise ValueError(f"unknown part {name!r}; choose from {', '.join(PARTS)}, all")
    run: Callable[[Options], Result] = import_module(f"{__package__}.{name}").run
    return run
