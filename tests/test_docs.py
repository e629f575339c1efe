"""The documentation is true: generated tables are current, examples print what is shown, links resolve."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from markdown_it import MarkdownIt

from benchmarks.tables import PAPER_ROWS, beside_the_paper
from docs import generate
from harness.waiting import PATIENCE
from ppca.cli.main import app
from ppca.protocol.public_numbers import fraction_bits

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts)])
EXAMPLES = {
    "first-steps": ("docs/reference/operations.md", "first_steps.py"),
    "joint-pca": ("README.md", "joint_pca.py"),
    "secret-svd": ("docs/concepts/eigensolvers.md", "secret_svd.py"),
}


def test_generated_parts_are_current() -> None:
    assert list(generate.stale(slow=False)) == [], "run `make docs` and commit the result"


@pytest.mark.release
def test_the_slow_generated_parts_are_current() -> None:
    """Probabilities are rounded up to powers of two. Masks are random, so one that is close to a power of two may move by one."""
    power = re.compile(r"2\^-(\d+)")
    for name in generate.SLOW:
        file, make = generate.WRITTEN[name]
        text = (ROOT / file).read_text()
        made = generate.replaced(text, name, make())
        assert power.sub("2^-#", made) == power.sub("2^-#", text), "run `make docs` and commit the result"
        exponents = ([int(found) for found in power.findall(page)] for page in (made, text))
        assert all(abs(new - old) <= 1 for new, old in zip(*exponents, strict=True)), "run `make docs`"


@pytest.mark.parametrize("source", generate.SECTIONS)
def test_protocol_sections_say_what_the_docstring_says(source: str) -> None:
    """Rendered, a section has the words of its docstring: no character of a formula is taken for Markdown."""
    tokens = MarkdownIt("commonmark").enable("table").parse(generate.section(source).split("\n", 4)[4])
    inline = [child for token in tokens for child in token.children or [token]]
    shown = " ".join(token.content or "\n" for token in inline if token.type != "link_close")
    title, _, body = generate.docstring(source).partition("\n\n")
    assert title.count(": ") > 0
    assert letters(shown) == letters(re.sub(r"^\d\. |^- |^\| ---.*|docs/", "", body, flags=re.MULTILINE))


def letters(text: str) -> str:
    """Without white space, back-quotes and the bars of tables."""
    return re.sub(r"[\s`|]", "", text)


@pytest.mark.parametrize("marker", EXAMPLES)
def test_the_page_shows_the_example(marker: str) -> None:
    page, file = EXAMPLES[marker]
    shown = re.search(rf"<!-- {marker} -->\n```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / "examples" / file).read_text()


@pytest.mark.processes
@pytest.mark.parametrize(("page", "file"), EXAMPLES.values())
def test_the_page_shows_what_the_example_prints(page: str, file: str) -> None:
    call = rf"^    \$ \.venv/bin/python examples/{re.escape(file)}\n((?:    .*\n)+)"
    shown = re.search(call, (ROOT / page).read_text(), re.MULTILINE)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / file], capture_output=True, text=True, timeout=2 * PATIENCE, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == re.sub(r"^    ", "", shown[1], flags=re.MULTILINE)


def stable(text: str) -> list[str]:
    """Masks are random, so errors near zero differ from run to run, and with them, by one, the iterations; times differ, too."""
    masked = re.sub(r"\d(\.\d)?e-(0[6-9]|1\d)|[\d.]+ (m?s|rounds|MB)\b", "#", text)
    return [re.sub(r"\s+", " ", line).strip() for line in masked.splitlines()]


ROUNDS_APART = 20
"""The demo takes one or two iterations more or fewer from run to run, ten rounds each."""


def assert_demo_shown(stdout: str, folder: Path) -> None:
    """Lines that README shows are printed, in this order, with about as many rounds; files that it names are there."""
    shown = re.search(r"<!-- demo -->\n\n    \$ make demo\n((?:    .*\n)+)", README)
    assert shown is not None
    said, took = (re.search(r"^\s*(\d+) rounds", text, re.MULTILINE) for text in (shown[1], stdout))
    assert said is not None
    assert took is not None
    assert abs(int(said[1]) - int(took[1])) <= ROUNDS_APART, f"README says {said[0]}, the demo {took[0]}"
    printed = iter(stable(stdout))
    for line in stable(shown[1]):
        assert line == "..." or line in printed, line
    for pattern in re.findall(r"demo-result/[\w/*.]+csv", README):
        assert list(folder.glob(pattern)), f"the demo leaves no {pattern}"


@pytest.mark.processes
def test_readme_shows_the_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ppca.cli.main", "demo"],
        capture_output=True, text=True, timeout=2 * PATIENCE, cwd=tmp_path, env=os.environ | {"COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert_demo_shown(done.stdout, tmp_path)


QUICK_START = (ROOT / "docs/get-started/quick-start.md").read_text()


def typed_lines(text: str) -> list[str]:
    """The lines of all indented blocks: what a page tells a reader to type. Outputs are in fences."""
    return re.findall(r"^    (.*)", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)


def first_screen() -> list[str]:
    """What README tells a reader to type under "Try it", and then the quick start in a shell that knows `ppca`."""
    section = README.partition("## Try it\n")[2].partition("\nThe same from Python")[0]
    return [line.strip() for line in [*typed_lines(section), "make shell", *typed_lines(QUICK_START)]]


def fresh_clone(place: Path) -> Path:
    """Only files that git knows, as they are in the work tree."""
    clone = place / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True, timeout=PATIENCE)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (clone / name).unlink(missing_ok=True)
        if (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    return clone


@pytest.mark.release
@pytest.mark.processes
@pytest.mark.timeout(1900)  # it builds and installs: a minute and a half on two idle cores
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tests do not lie in a git repository")
def test_the_first_screen_of_the_readme_in_a_fresh_clone(tmp_path: Path) -> None:
    """Typed line by line into one shell; `make shell` starts another one inside, which reads the lines that follow."""
    commands = first_screen()
    assert commands[0].split()[:2] == ["make", "demo"]
    assert commands[2] == "make shell"
    assert len(commands) > 12
    typed = "".join(f"{command}\n" if "make shell" in command else f"{command}\necho =$?=\n" for command in commands)
    own = Path(sys.prefix) / "bin"  # of these tests: a reader has none of it
    path = os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if Path(place) != own)
    variables = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    variables |= {"PATH": path, "SHELL": "/bin/bash", "COLUMNS": "100", "XDG_STATE_HOME": str(tmp_path / "state")}
    clone = fresh_clone(tmp_path)
    done = subprocess.run(
        ["/bin/bash"], input=typed, capture_output=True, text=True, timeout=1800, cwd=clone, env=variables
    )
    codes = re.findall(r"^=(\d+)=$", done.stdout, re.MULTILINE)
    assert codes == ["0"] * (len(commands) - 1), done.stderr[-3000:]
    demo, *_, scripted, _ = re.split(r"^=0=$", done.stdout, flags=re.MULTILINE)
    assert_demo_shown(demo, clone)
    for result in (clone / "result", clone / "first-steps/result"):
        assert all((result / file).is_file() for file in ("components.csv", "model.json", "report.html"))
    assert json.loads(scripted)["verified"]


@pytest.mark.processes
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the tests do not lie in a git repository")
def test_git_ignores_what_the_commands_of_the_readme_write() -> None:
    """Folders after -o, and what commands write without; private keys above all."""
    places = {place.strip("./") for place in re.findall(r"ppca (?:fit|demo)\b.*? -o ([\w./-]+)", README + QUICK_START)}
    assert {"result", "secret", "joint"} <= places
    defaults = {
        "demo-result",
        "first-steps",
        "trial",
        "identity.key",
        "anywhere/identity.key",
        "results",
        "projected.csv",
    }
    names = sorted(place if "." in place else f"{place}/" for place in places | defaults)
    done = subprocess.run(["git", "check-ignore", *names], cwd=ROOT, capture_output=True, text=True)
    assert sorted(done.stdout.split()) == names


def test_the_paper_is_named_and_linked_where_it_is_first_used() -> None:
    for page in (
        ROOT / name
        for name in (
            "README.md",
            "docs/evaluation/paper.md",
            "docs/concepts/eigensolvers.md",
            "docs/concepts/column-owners.md",
        )
    ):
        text = page.read_text()
        link = text.find("https://arxiv.org/abs/2105.07612")
        assert link > 0, f"{page.name} does not link to the paper"
        tables = re.sub(r"^\|.*$|<!--.*?-->", lambda found: " " * len(found[0]), text[:link], flags=re.MULTILINE)
        assert len(re.findall(r"[Tt]he paper", tables)) <= 1, f"{page.name} speaks of the paper before it names it"


def test_the_page_of_owners_of_columns_says_what_its_table_shows() -> None:
    """The covariance step beside the paper's, as `ppca bench tables` writes it from the same run."""
    text = (ROOT / "docs/concepts/column-owners.md").read_text().partition("<!-- vertical-times-table:begin -->")[2]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    steps = [{"covariance_step": float(line[10])} for line in lines[2:] if line[1] == f"{PAPER_ROWS:,}"][:4]
    said = beside_the_paper(steps)
    assert said in text, said


def test_figures_of_sentences_are_those_of_the_tables() -> None:
    """Bytes of comparisons, which two pages repeat: for 9 bits of range and for 72, the default."""
    protocols = (ROOT / "docs/reference/protocols.md").read_text()
    table = protocols.partition("<!-- widths-table:begin -->")[2].partition("<!-- widths-table:end -->")[0]
    sent = {
        int(bits): int(count.replace(",", ""))
        for bits, count in re.findall(r"\| (\d+) \| [\d,]+ \| ([\d,]+) \|", table)
    }
    assert (
        f"| comparisons | about {sent[72] / 1000:.1f} kB per element"
        in (ROOT / "docs/concepts/limits-and-pitfalls.md").read_text()
    )
    assert f"at 9 bits (ranks, small counts) a comparison has {sent[9]} bytes" in protocols


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if fragment:
            assert fragment in anchors(target), f"{page.name} links to {link}: no such heading"


COMMAND = re.compile(r"(?:^|\s)(?:\S*/bin/)?ppca (?=[a-z-])")


def shown_commands() -> list[tuple[str, int, str, bool]]:
    """Every `ppca ...` that a page shows: page, line, what follows `ppca`, and whether it is a whole command line.

    A code block has whole lines; a span of code in a sentence may name a command without its arguments.
    """
    found = []
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if name in ("CHANGELOG.md", "docs/reference/cli.md", "docs/development/modules.md"):
            continue
        for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
            line = token.map[0] + 1 if token.map else 0
            if token.type in ("code_block", "fence") and token.info.split(" ")[0] in ("", "sh", "bash", "console"):
                lines = token.content.replace("\\\n", " ").splitlines()
                found += [
                    (name, line + at, text[match.end() :], True)
                    for at, text in enumerate(lines)
                    if (match := re.match(r"(?:\w* ?\$ )?(?:\S*/bin/)?ppca (?=[a-z-])", text.strip()))
                    for text in [text.strip()]
                ]
            spans = [child.content for child in token.children or [] if child.type == "code_inline"]
            found += [(name, line, span[match.end() :], False) for span in spans if (match := COMMAND.match(span))]
    return found


def words_of(text: str) -> list[str]:
    """The words of a command line up to a pipe or a comment; what $(key alpha) puts in is the words of a key."""
    lexer = shlex.shlex(re.sub(r"\$\([^)]*\)", "NAME KEY", text), posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: word[0] not in "|;&<>", filter(None, lexer)))


def parse(words: list[str]) -> tuple[list[str], Any]:
    """The words after the names of (sub)commands, and the command that takes them."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    return words, command


@pytest.mark.parametrize(
    ("page", "line", "text", "whole"),
    [pytest.param(*each, id=f"{each[0]}:{each[1]}: {each[2][:40]}") for each in shown_commands()],
)
def test_commands_of_the_pages_have_their_options_and_arguments(page: str, line: int, text: str, whole: bool) -> None:
    if text.startswith(("-", "COMMAND")):
        return
    words, command = parse(words_of(text))
    if command.name == "bench" or "--help" in words:
        return
    options = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
    for word in words:
        assert not word.startswith("--") or word.partition("=")[0] in options, f"{page}:{line}: no option {word}"
    if whole or (words and not words[0].startswith("-")):  # a span with an argument is typed like a line
        try:
            command.make_context(command.name, words).close()
        except typer.BadParameter as fault:  # others, such as a file that is not here, say nothing about the page
            if type(fault).__name__ == "MissingParameter":
                pytest.fail(f"{page}:{line}: ppca {text}: {fault.format_message()}")


SEES = (
    "A server sees random numbers, the shapes of the tables, and a few opened bits that steer the computation. If column owners "
    "join their rows by id (`psi`), it also sees how many rows each has and which tags of ids match."
)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_say_what_a_server_sees(page: str) -> None:
    """Not random numbers alone: what docs/reference/openings.md lists for servers is named."""
    assert SEES in " ".join((ROOT / page).read_text().split())
    opened = (ROOT / "docs/reference/openings.md").read_text()
    assert "| convergence bit |" in opened
    assert "| match pattern of pseudonyms |" in opened


def test_the_readme_says_the_minimum_of_rows_and_the_rule_of_public_factors() -> None:
    text = " ".join(README.split())
    command: Any = typer.main.get_command(app)
    default = next(each.default for each in command.commands["fit"].params if "--min-rows" in each.opts)
    assert f"an owner with fewer than {default} rows (`--min-rows`)" in text
    assert "exact if it is a multiple of 2^-32; otherwise it keeps at least 40 significant bits" in text
    for factor in (1 / 3, 0.001, 3.3):
        first = 1 - math.frexp(factor)[1]  # the place of the first significant bit after the point
        assert fraction_bits(np.array([factor])) - first + 1 >= 40
    assert fraction_bits(np.array([2.0**-32])) == 32


def test_the_readme_is_short_and_begins_with_two_commands() -> None:
    assert len(README.splitlines()) <= 120
    commands = first_screen()
    assert commands.index("make shell") == 2
    before = README.partition("## Try it\n")[0]
    assert "A *share* is" in before, "shares are explained before the first command"
    assert "*rounds*" in before
    assert "*Angle 1*" in before
    assert README.index("*semi-honest*") < README.index("| one server may be |")


@pytest.mark.processes
def test_the_quick_start_shows_what_commands_print(tmp_path: Path) -> None:
    """The outputs of `ppca check` and `ppca fit`, and the numbers from Python, on the tables of the demo."""
    script = textwrap.dedent("""
        import sys
        from sklearn.datasets import load_breast_cancer
        import numpy as np
        from ppca.cli.main import app
        if __name__ == "__main__":
            cancer = load_breast_cancer()
            names = ",".join(cancer.feature_names)
            for name, part in zip(("north", "harbour", "hill"), np.split(cancer.data, [100, 269])):
                np.savetxt(f"{name}.csv", part, delimiter=",", header=names, comments="", fmt="%.17g")
            for words in (["check"], ["fit", "-k", "5", "--standardize", "-o", "result"]):
                app([*words, "harbour.csv", "hill.csv", "north.csv"], standalone_mode=False)
            import ppca
            print(ppca.load("result").explained_variance_ratio_.round(4))
    """)
    (tmp_path / "shown.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "shown.py"],
        capture_output=True, text=True, timeout=2 * PATIENCE, cwd=tmp_path, env=os.environ | {"COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed = iter(stable(done.stdout))
    for block in re.findall(r"```text\n(.*?)```", QUICK_START, re.DOTALL):
        for line in stable(block):
            assert line.startswith(("...", "│ component")) or any(
                line.removesuffix(" ...") in one for one in printed
            ), line
