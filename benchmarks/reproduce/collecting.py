"""Write docs/evaluation/paper.md from what was measured: JSON and figures of the parts go to docs/evaluation/.

The page is made of the files in docs/evaluation/ and of nothing else. So a part can be measured again alone, and a test
can tell whether a figure of the page was typed by hand.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from docs.generate import ROOT, replaced

from .front import comparison, front
from .parts import PARTS
from .writing import section

PAGE = ROOT / "docs" / "evaluation" / "paper.md"
KEPT = ROOT / "docs" / "evaluation"
README = ROOT / "README.md"

OPENING = """# Evaluation

This page repeats every table and figure of the evaluation of [Fan et al., 2021](https://arxiv.org/abs/2105.07612), "the paper",
with this software, and shows both figures. It then compares with other frameworks and measures slow networks.
`ppca bench reproduce collect` writes it from what the commands measured: no number on this page was typed by hand. If PPCA is
slower or less accurate than the paper or a peer, the cell says so.

    make shell
    ppca bench reproduce all --quick                  # everything at smaller sizes, within a quarter of an hour on two cores
    ppca bench reproduce all --data DATA              # everything at the paper's sizes
    ppca bench reproduce collect                      # writes this page from bench-results/reproduce

Data that scikit-learn does not bundle are Parquet files in the folder given by `--data` or `PPCA_DATA`. If they are absent,
synthetic data of the same shape are used, and the output says so. If a public sample has fewer rows than the paper's table, rows
are drawn from it with noise; the tables say *resampled* and the fraction that is real.

Times are of one machine with all four servers on it, and comparable within one table; the paper used four servers of 40 cores
each. Rounds, bytes and errors do not depend on the machine.

## The paper

Xiaoyu Fan, Guosai Wang, Kun Chen, Xu He, Wei Xu: [*PPCA: Privacy-preserving Principal Component Analysis Using Secure Multiparty
Computation (MPC)*](https://arxiv.org/abs/2105.07612), 2021. Its algorithms are baselines here, with the corrections that
[eigensolvers](../concepts/eigensolvers.md#the-papers-algorithms) lists.

Its Figure 1, the four steps, with what this software does in each:

![Owners preprocess locally and send secret shares. Four servers compute covariance, eigendecomposition, projection matrix and
inference on shares. Receivers get the agreed result.](../figures/framework.svg)

Its Figure 2, the two ways in which owners can hold parts of one table:

![Left: row owners share sums of their rows. Right: column owners align their rows by id and share them in
chunks.](../figures/partitions.svg)
"""


def collected(results: Path) -> list[str]:
    """Copy what was measured into docs/evaluation/; the names of the parts."""
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
    """docs/evaluation/paper.md, from docs/evaluation/."""
    return "\n".join(
        [OPENING, f"## Overview\n\n{front(kept())}\n", *(section(data, "") + "\n" for data in kept().values())]
    )


def readme() -> str:
    """README.md with its table and picture, from docs/evaluation/."""
    return replaced(README.read_text(), "evaluation", comparison(kept()))


def collect(results: Path) -> list[str]:
    """Take over what was measured, write the page and the README's table; the names of the parts taken over."""
    names = collected(results)
    PAGE.write_text(page())
    README.write_text(readme())
    return names
