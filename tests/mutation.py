"""Mutation check: change one place of the code at a time and see whether a test notices.

    python tests/mutation.py --mutants 300 --seed 1 --out mutants.json

Run it by hand, in a work tree without other changes; it edits files of src/ and restores them. For each mutant it runs the tests
of `TARGETS` that belong to the file, in order, and stops at the first failure. A mutant that passes all of them survives: a test
is missing, or the change has no effect. Nothing here runs in CI.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ppca"

PROTOCOL = [
    "tests/protocol/test_arithmetic.py tests/protocol/test_compare.py tests/protocol/test_truncation.py "
    "tests/protocol/test_functions.py tests/protocol/test_narrow.py tests/protocol/test_secret_array.py",
    "tests/protocol tests/algorithms/test_decomposition.py tests/algorithms/test_allpairs.py",
]
SPECTRUM = [
    "tests/algorithms/test_decomposition.py tests/algorithms/test_solvers.py",
    "tests/algorithms/test_topk.py tests/estimator/test_openings.py tests/estimator/test_rows.py",
]
SIGNING = [
    "tests/federation",
    "tests/seat/test_admission.py tests/seat/test_admission_of_jobs.py tests/seat/test_mailbox.py",
]
TARGETS = {
    "protocol/*.py": PROTOCOL,
    "algorithms/decomposition.py": SPECTRUM,
    "algorithms/certificate.py": SPECTRUM,
    "federation/identity.py": SIGNING,
    "federation/objects.py": SIGNING,
    "federation/sealing.py": SIGNING,
    "federation/course.py": SIGNING,
    "federation/parcels.py": SIGNING,
    "federation/roster.py": SIGNING,
    "seat/admission.py": SIGNING,
}
"""Files to change, below src/ppca, and the tests that must notice, cheapest first."""

IMPORTED_ONCE = (
    "numpy",
    "scipy.linalg",
    "sklearn.decomposition",
    "pyarrow",
    "pandas",
    "hypothesis",
    "cryptography",
    "pydantic",
)
TIMEOUT = 240.0
"""Seconds that one run of tests may take. A mutant that hangs counts as noticed."""

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}


@dataclass
class Mutant:
    """One change. column and end delimit the replaced text of the line range."""

    file: str
    line: int
    before: str
    after: str
    state: str = ""
    seconds: float = 0.0


def changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield every node that can be changed, with the text that replaces it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
            yield node, ast.unparse(ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators))
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_text(node):
            yield node, f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})"
        elif isinstance(node, ast.BoolOp):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, ast.unparse(node.operand)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            yield node, repr(not node.value if isinstance(node.value, bool) else node.value + 1)
        elif isinstance(node, ast.Raise):
            yield node, "pass"
        elif isinstance(node, ast.If):
            yield node.test, f"(False and ({ast.unparse(node.test)}))"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.Constant | ast.JoinedStr) and not _is_number(side) for side in (node.left, node.right)
    )


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def mutants_of(path: Path) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant of a file, with the whole changed text. Annotations and docstrings stay."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    notes = {id(inner) for outer in ast.walk(tree) for note in _unchanged(outer) for inner in ast.walk(note)}
    for node, after in changes(tree):
        if id(node) in notes:
            continue
        start, stop = _offset(lines, node.lineno, node.col_offset), _offset(lines, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        changed = text.encode()[:start] + after.encode() + text.encode()[stop:]
        before = " ".join(text.encode()[start:stop].decode().split())
        yield Mutant(str(path.relative_to(SOURCE)), node.lineno, before, after), changed.decode()  # type: ignore[attr-defined]


def _unchanged(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is not changed: annotations, and formatted strings, whose parts have no exact place in Python 3.11."""
    for name in ("annotation", "returns"):
        if getattr(node, name, None) is not None:
            yield getattr(node, name)
    if isinstance(node, ast.JoinedStr):
        yield node


def _offset(lines: list[str], line: int, column: int) -> int:
    return sum(len(each.encode()) for each in lines[: line - 1]) + column


def notice(commands: list[str]) -> str:
    """Run the tests; return the first command that fails, or an empty text if all pass.

    Each run is a fork of this process, which has imported what the tests need besides this project.
    """
    for files in commands:
        process = multiprocessing.get_context("fork").Process(target=_run_tests, args=(files,))
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            process.join()
            return "timeout"
        if process.exitcode:
            return files
    return ""


def _run_tests(files: str) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os.chdir(ROOT)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not release"]
    sys.exit(pytest.main([*options, *files.split()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only files whose path contains this text")
    parser.add_argument("--out", type=Path, required=True, help="JSON file, written after every mutant")
    asked = parser.parse_args()
    every: list[tuple[Mutant, str, list[str]]] = []
    for pattern, tests in TARGETS.items():
        for path in sorted(SOURCE.glob(pattern)):
            if asked.only in str(path):
                every += [(mutant, text, tests) for mutant, text in mutants_of(path)]
    chosen = random.Random(asked.seed).sample(every, min(asked.mutants, len(every)))
    print(f"{len(every)} possible mutants, {len(chosen)} chosen", flush=True)
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    for tests in {tuple(tests) for _, _, tests in chosen}:
        if failed := notice(list(tests)):
            raise SystemExit(f"these tests fail on the unchanged code: {failed}")
    done: list[Mutant] = []
    for mutant, text, tests in chosen:
        path = SOURCE / mutant.file
        original, start = path.read_text(), time.monotonic()
        try:
            path.write_text(text)
            found = notice(tests)
        finally:
            path.write_text(original)
        mutant.state, mutant.seconds = found or "SURVIVED", time.monotonic() - start
        done.append(mutant)
        asked.out.write_text(json.dumps([asdict(each) for each in done], indent=1))
        if not found:
            print(f"{mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}", flush=True)
    survivors = sum(each.state == "SURVIVED" for each in done)
    print(f"{len(done)} mutants, {len(done) - survivors} noticed, {survivors} survived")


if __name__ == "__main__":
    main()
