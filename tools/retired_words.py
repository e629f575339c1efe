"""Report retired words and phrases in comments, docstrings, strings and pages, with the place and the replacement.

    python tools/retired_words.py            check the paths of CLEAN; exit code 1 if something is found
    python tools/retired_words.py PATH ...   check these files and folders instead
    python tools/retired_words.py --count    count all matches for each package and pattern

A package is added to CLEAN once its text has been rewritten. Words in backticks, in code blocks of pages and in code are
not checked; names of constants are checked against RETIRED_NAMES.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

CLEAN = (
    *("native", "src", "benchmarks", "examples", "deploy"),
    *("docs/concepts", "docs/development", "docs/evaluation", "docs/reference", "docs/security"),
    *("docs/fields.py", "docs/failures.py", "docs/generate.py", "docs/site_pages.py", "docs/how-to/operate.md"),
    *("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "README.md"),
)
"""Folders and files without retired words. `make lint` checks them."""

COORDINATES = ("src/ppca/protocol", "src/ppca/transport", "src/ppca/native", "native", "tools/retired_words.py")
"""Folders in which `seat` is allowed: there it names the coordinates (row, column) of a server."""

MAX_PROSE = 120
"""Maximum length of a line of a docstring or comment, in characters."""


class Retired(NamedTuple):
    """A pattern, the text to write instead, and whether it is searched only at the start of a docstring."""

    pattern: str
    instead: str
    docstring_start: bool = False


RETIRED = (
    Retired(
        r"(What|Where|Who|Whether|How|Why|Which|Whose|When)\b",
        "a verb in the imperative, or a noun phrase that stands alone",
        docstring_start=True,
    ),
    Retired(r"Of\b", "the quantity, complete and with its unit", docstring_start=True),
    Retired(r"\b[Ww]ho(ever)?\b", "the subject itself: the owner, the receiver, anyone with ..."),
    Retired(
        r"\bwhere (nothing|no|all|this|that|it|they|there|one|some|possible|needed|known|wanted|asked|given)\b", "if"
    ),
    Retired(r"(?<!here )(?<!hy )\b(is|are|has|have) no\b(?! attribute\b)", "is not / does not have"),
    Retired(r"\bso (many|much|few)\b", "exactly N, this number of, such"),
    Retired(r"\bin place of\b", "instead of"),
    Retired(r"\bowners? of (the )?(rows|columns)\b", "row owner, column owner"),
    Retired(r"\b[Ss]eats?\b", "server (0 to 3)"),
    Retired(r"\b[Rr]osters?\b", "membership file"),
    Retired(r"\b[Pp]arcels?\b", "chunk"),
    Retired(r"\b[Ee]rrands?\b", "task"),
    Retired(r"\b(room|rooms|house)\b", "package, layer; span, headroom"),
    Retired(r"\b[Cc]onductors?\b", "job runner"),
    Retired(r"\b(doors?|desks?)\b", "API, authorisation; member client, page"),
    Retired(r"\b[Pp]ortions?\b", "part, chunk"),
    Retired(r"\bsay the same again\b", "run the same command again"),
    Retired(r"\bwhat became of\b", "the outcome of"),
    Retired(r"\bno matter of\b|\bfor ever\b|\bhere and now\b", "the plain statement"),
    Retired(r"\b[Cc]omplaints?\b", "error"),
    Retired(r"\b(lest|whence|thereof|amidst|nought)\b", "plain English"),
    Retired(r"\bnobody\b|\bnobody's\b|\beverybody\b", "no server, all servers; no member, all members"),
)

RETIRED_NAMES = re.compile(r"(^|_)(MOST|LEAST|LONGEST|LARGEST|SMALLEST|SELDOM)(_|$)")
"""Names of constants that say MAX_ or MIN_ instead."""


class Text(NamedTuple):
    """A piece of text of a file with the number of its first line."""

    line: int
    text: str
    is_docstring: bool = False


class Found(NamedTuple):
    """One match: where it is, what was found, what to write instead, and the pattern."""

    path: Path
    line: int
    word: str
    instead: str
    pattern: str


def python_texts(source: str) -> Iterator[Text]:
    """Yield comments, docstrings (of constants too) and other strings of a Python file."""
    documented = {}
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                documented[statement.value.lineno, statement.value.col_offset] = statement.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(token.start[0], token.string.lstrip("# "))
        elif token.type == tokenize.STRING:
            if token.start in documented:
                yield Text(token.start[0], token.string.lstrip("rf").strip('"'), is_docstring=True)
            else:
                yield Text(token.start[0], re.sub(r"(?<!\{)\{[^{}]*\}", "{}", token.string))


def cpp_texts(source: str) -> Iterator[Text]:
    """Yield comments and strings of a C++ file."""
    for number, line in enumerate(source.splitlines(), 1):
        for string in re.findall(r'"((?:[^"\\]|\\.)*)"', line.split("//")[0]):
            yield Text(number, string)
        if "//" in line:
            yield Text(number, line.split("//", 1)[1].strip())


def page_texts(source: str) -> Iterator[Text]:
    """Yield the lines of a page outside code blocks."""
    code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield Text(number, line)


def template_texts(source: str) -> Iterator[Text]:
    """Yield the lines of an HTML template without its tags and expressions."""
    for number, line in enumerate(source.splitlines(), 1):
        yield Text(number, re.sub(r"\{[%{#].*?[%}#]\}|<[^>]*>|<[^>]*$", " ", line))


def setting_texts(source: str) -> Iterator[Text]:
    """Yield the comments of a file of settings (TOML, YAML, units of systemd)."""
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("#"):
            yield Text(number, line.lstrip("# "))


READERS = {
    **dict.fromkeys((".py", ".pyi"), python_texts),
    **dict.fromkeys((".hpp", ".cpp"), cpp_texts),
    ".md": page_texts,
    ".html": template_texts,
    **dict.fromkeys((".toml", ".yml", ".yaml", ".service", ".socket"), setting_texts),
}


def found_in(path: Path) -> Iterator[Found]:
    """Yield all matches in a file."""
    source = path.read_text()
    relative = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for text in READERS[path.suffix](source):
        plain = re.sub(r"``?[^`]*``?", lambda match: " " * len(match.group()), text.text)
        for entry in RETIRED:
            if entry.pattern.startswith(r"\b[Ss]eat") and str(relative).startswith(COORDINATES):
                continue
            if entry.docstring_start:
                match = re.match(entry.pattern, plain) if text.is_docstring else None
                matches = [match] if match else []
            else:
                matches = list(re.finditer(entry.pattern, plain))
            for match in matches:
                line = text.line + plain[: match.start()].count("\n")
                yield Found(relative, line, match.group(), entry.instead, entry.pattern)
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and RETIRED_NAMES.search(node.id):
                yield Found(relative, node.lineno, node.id, "MAX_..., MIN_...", "names")
    if path.suffix not in (".md", ".html"):
        lines = source.splitlines()
        for text in READERS[path.suffix](source):
            for number in range(text.line, text.line + text.text.count("\n") + 1):
                row = lines[number - 1]
                prose = text.is_docstring or row.lstrip().startswith(("#", "//"))
                if prose and len(row) > MAX_PROSE:
                    yield Found(relative, number, f"{len(row)} characters", f"at most {MAX_PROSE}", "long")


def files(folder: str) -> list[Path]:
    """Return the files below a folder that can be read, or the file itself. What `make site` writes is left out."""
    path = ROOT / folder
    inside = [path] if path.is_file() else sorted(path.rglob("*"))
    return [one for one in inside if one.suffix in READERS and not {"__pycache__", "generated"} & set(one.parts)]


def count() -> None:
    """Print the number of matches for each package and pattern."""
    packages = sorted({str(p.parent.relative_to(ROOT)) for p in (ROOT / "src/ppca").glob("*/__init__.py")})
    for package in [*packages, "native", "tests", "benchmarks", "docs"]:
        counts = Counter(found.pattern for path in files(package) for found in found_in(path))
        parts = ", ".join(f"{number} x {pattern}" for pattern, number in counts.most_common())
        print(f"{package}: {counts.total()}  {parts}")


def main() -> int:
    """Check the paths of CLEAN, or count."""
    if "--count" in sys.argv:
        count()
        return 0
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")] or list(CLEAN)
    found = [one for folder in chosen for path in files(folder) for one in found_in(path)]
    for one in found:
        print(f"{one.path}:{one.line}: {one.word!r}: write {one.instead}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
