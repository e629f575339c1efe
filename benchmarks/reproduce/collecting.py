"""docs/evaluation.md from what was measured: JSON and figures of the parts go to docs/evaluation/, the page is written of them.

The page is made of what lies in docs/evaluation/ and of nothing else, so that a part may be measured again alone; and a test
can tell whether a figure of the page was typed by hand.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from docs.generate import ROOT, replaced

from .front import front
from .parts import PARTS
from .writing import section

PAGE = ROOT / "docs" / "evaluation.md"
KEPT = ROOT / "docs" / "evaluation"
README = ROOT / "README.md"

OPENING = """# Evaluation

Every table and figure of the paper's evaluation, measured with this software, the paper's figures beside ours; then what the
paper does not have: other frameworks on the same matrices, and slow networks. All of it is written by
`ppca bench reproduce collect` from what the commands measured: no number on this page was typed by hand. Where PPCA falls
short of the paper or of a peer, the cell says so.

    make shell
    ppca bench reproduce all --quick                  # everything at smaller sizes, within a quarter of an hour on two cores
    ppca bench reproduce all --data DATA              # everything at the paper's sizes
    ppca bench reproduce collect                      # writes this page from bench-results/reproduce

Data that scikit-learn does not bundle are Parquet files in the folder given by `--data` or `PPCA_DATA`; where they are absent,
synthetic data of the same shape take their place, and the output says so. Times are of one machine with all four servers on it,
and comparable within one table; the paper used four servers of 40 cores each. Rounds, bytes and errors do not depend on the
machine.
"""


def collected(results: Path) -> list[str]:
    """Copies what was measured into docs/evaluation/; the names of the parts."""
    names = [name for name in PARTS if (results / f"{name}.json").exists()]
    KEPT.mkdir(exist_ok=True)
    for name in names:
        data = json.loads((results / f"{name}.json").read_text())
        if data["scale"] == "tiny":
            raise ValueError(f"{results / name}.json is of a tiny run, which measures nothing: run {name} again")
        for file in KEPT.glob(f"{name}-*.png"):
            file.unlink()
        for file in (f"{name}.json", *(plot["file"] for plot in data["plots"])):
            shutil.copyfile(results / file, KEPT / file)
    return names


def kept() -> dict[str, dict[str, Any]]:
    """The parts that docs/evaluation/ holds, in the order of the page."""
    files = {name: KEPT / f"{name}.json" for name in PARTS}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def page() -> str:
    """docs/evaluation.md, from docs/evaluation/."""
    return "\n".join([OPENING, *(section(data, "evaluation/") + "\n" for data in kept().values())])


def readme() -> str:
    """README.md with its table and picture, from docs/evaluation/."""
    return replaced(README.read_text(), "evaluation", front(kept()))


def collect(results: Path) -> list[str]:
    """Takes over what was measured, writes the page and the README's table; the names of the parts taken over."""
    names = collected(results)
    PAGE.write_text(page())
    README.write_text(readme())
    return names
