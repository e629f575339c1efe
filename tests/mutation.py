"""Mutation check: change one place of the code at a time and see whether a test notices.

    python tests/mutation.py --mutants 300 --seed 1 --out mutants.json

Run it by hand; nothing here runs in CI. No file is changed: the process that runs the tests compiles the changed text.

1. Run the tests of `TARGETS` once and note which test runs which line, and how long it takes.
2. For each mutant, run the tests that run its line, fastest first, and stop at the first failure. A line that runs only at import
   gets all tests of its target.

A mutant that passes survives: a test is missing, or the change has no effect. If the program is started again with the same
output file, it keeps the results in it and goes on.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ppca"

PROTOCOL = "tests/protocol tests/algorithms"
SPECTRUM = "tests/algorithms tests/estimator/test_openings.py tests/estimator/test_rows.py"
SIGNING = "tests/federation tests/server tests/member"
TARGETS = {
    "protocol/*.py": PROTOCOL,
    "algorithms/decomposition.py": SPECTRUM,
    "algorithms/certificate.py": SPECTRUM,
    "federation/identity.py": SIGNING,
    "federation/objects.py": SIGNING,
    "federation/sealing.py": SIGNING,
    "federation/state.py": SIGNING,
    "federation/envelopes.py": SIGNING,
    "federation/membership.py": SIGNING,
    "server/admission.py": SIGNING,
    "server/object_rules.py": SIGNING,
}
"""Files to change, below src/ppca, and the tests that must notice. Tests that start processes are left out."""

LEAST = 15
"""Mutants of each target, if it has as many."""

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
"""Seconds that the tests of one mutant may take. A mutant that hangs counts as noticed."""

LONGEST = 20.0
"""Seconds of tests, as measured on the unchanged code, that one mutant gets. The fastest are taken."""

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
    """One change, which begins at `line` and `column` of a file and ends in the line `last`."""

    file: str
    line: int
    column: int
    last: int
    before: str
    after: str
    tests: int = 0
    state: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int, int, str]:
        return self.file, self.line, self.column, self.after


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
        place = (node.lineno, node.col_offset, node.end_lineno)  # type: ignore[attr-defined]
        yield Mutant(str(path.relative_to(SOURCE)), *place, before, after), changed.decode()


def _unchanged(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is not changed: annotations, options of dataclasses, and formatted strings.

    Parts of a formatted string have no exact place in Python 3.11.
    """
    if isinstance(node, ast.ClassDef):
        yield from node.decorator_list
    for name in ("annotation", "returns"):
        if getattr(node, name, None) is not None:
            yield getattr(node, name)
    if isinstance(node, ast.JoinedStr):
        yield node


def _offset(lines: list[str], line: int, column: int) -> int:
    return sum(len(each.encode()) for each in lines[: line - 1]) + column


class Recorder:
    """Pytest plugin: note which lines each test runs, and its duration."""

    def __init__(self, cover: coverage.Coverage) -> None:
        self.cover = cover
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.cover.switch_context(item.nodeid)
        start = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.monotonic() - start
            self.cover.switch_context("")


class Chooser:
    """Pytest plugin: run the named tests only, in their order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place), key=lambda item: self.place[item.nodeid]
        )


@dataclass
class Map:
    """Duration of each test, and the tests that run each line: lines["protocol/party.py"]["12"]."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]

    def tests_of(self, mutant: Mutant, folders: str) -> list[str]:
        lines = self.lines.get(mutant.file, {})
        found = {test for line in range(mutant.line, mutant.last + 1) for test in lines.get(str(line), [])}
        names = tuple(folders.split())
        candidates = [test for test in found if test.startswith(names)]
        candidates = candidates or [test for test in self.seconds if test.startswith(names)]
        candidates.sort(key=lambda test: self.seconds[test])
        total = itertools.accumulate(self.seconds[test] for test in candidates)
        return [test for test, so_far in zip(candidates, total, strict=True) if so_far <= LONGEST]


def measure(folders: set[str], out: Path) -> None:
    """Run the tests of the folders and write the map to a file. Runs in a process of its own."""
    cover = coverage.Coverage(data_file=None, source=[str(SOURCE)], config_file=False)
    recorder = Recorder(cover)
    cover.start()
    failed = run_tests(sorted(folders), recorder)
    cover.stop()
    if failed:
        raise SystemExit(f"tests fail on the unchanged code ({failed})")
    data = cover.get_data()
    lines = {
        str(Path(file).relative_to(SOURCE)): {
            str(line): [test for test in tests if test] for line, tests in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    out.write_text(json.dumps({"seconds": recorder.seconds, "lines": lines}))


def run_tests(paths: list[str], plugin: object) -> int:
    os.chdir(ROOT)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not release and not processes"]
    return int(pytest.main([*options, *paths], plugins=[plugin]))


def try_mutant(path: Path, text: str, tests: list[str]) -> None:
    """Run tests with a changed text of one file, silently. Runs in a process of its own."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    get_code = SourceFileLoader.get_code

    def changed(loader: SourceFileLoader, name: str) -> types.CodeType | None:
        return compile(text, path, "exec", dont_inherit=True) if loader.path == str(path) else get_code(loader, name)

    SourceFileLoader.get_code = changed  # type: ignore[method-assign]
    sys.exit(run_tests(list(dict.fromkeys(test.partition("::")[0] for test in tests)), Chooser(tests)))


def in_fork(function: Callable[..., None], *arguments: object, timeout: float | None = None) -> str:
    """Call a function in a fork of this process, which has imported what the tests need besides this project."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        return "timeout"
    return "noticed" if process.exitcode else "SURVIVED"


def sample(only: str, number: int, seed: int) -> list[tuple[Mutant, str, str]]:
    """Return mutants with their texts and tests: of each target its share of the number, at least `LEAST`."""
    unmatched = [pattern for pattern in TARGETS if not list(SOURCE.glob(pattern))]
    if unmatched:
        raise SystemExit(
            f"no file below src/ppca matches {', '.join(unmatched)}. Correct TARGETS in tests/mutation.py."
        )
    groups = [
        [
            (mutant, text, tests)
            for path in sorted(SOURCE.glob(pattern))
            if only in str(path)
            for mutant, text in mutants_of(path)
        ]
        for pattern, tests in TARGETS.items()
    ]
    every, draw = sum(map(len, groups)), random.Random(seed)
    sizes = [min(len(group), max(LEAST, round(number * len(group) / max(every, 1)))) for group in groups]
    print(f"{every} possible mutants, {sum(sizes)} chosen", flush=True)
    chosen = [each for group, size in zip(groups, sizes, strict=True) for each in draw.sample(group, size)]
    draw.shuffle(chosen)
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only files whose path contains this text")
    parser.add_argument("--out", type=Path, required=True, help="JSON file, written after every mutant")
    parser.add_argument(
        "--part", default="1/1", help="2/3: the second of three parts of the sample, to run them side by side"
    )
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    chosen = sample(asked.only, asked.mutants, asked.seed)[part - 1 :: parts]
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    mapped = asked.out.with_suffix(".map.json")
    if not mapped.exists():
        in_fork(measure, {folder for _, _, tests in chosen for folder in tests.split()}, mapped)
    known = Map(**json.loads(mapped.read_text()))
    done = [Mutant(**each) for each in json.loads(asked.out.read_text())] if asked.out.exists() else []
    before = {mutant.key for mutant in done}
    for mutant, text, folders in chosen:
        if mutant.key in before:
            continue
        tests, start = known.tests_of(mutant, folders), time.monotonic()
        mutant.state = in_fork(try_mutant, SOURCE / mutant.file, text, tests, timeout=TIMEOUT) if tests else "SURVIVED"
        mutant.tests, mutant.seconds = len(tests), time.monotonic() - start
        done.append(mutant)
        asked.out.write_text(json.dumps([asdict(each) for each in done], indent=1))
        if mutant.state == "SURVIVED":
            print(f"{mutant.file}:{mutant.line}:{mutant.column}: {mutant.before} -> {mutant.after}", flush=True)
    survivors = sum(each.state == "SURVIVED" for each in done)
    print(f"{len(done)} mutants, {len(done) - survivors} noticed, {survivors} survived")


if __name__ == "__main__":
    main()
