"""`ppca demo`: several institutions share scikit-learn's breast-cancer data, by rows or by columns, and fit one PCA
together.

The data are public, so the demo can show beside the joint result what scikit-learn finds in the pooled table. One
client plays all owners; the four server processes see shares only. The scenes are in `scenes`, the fit is that of `ppca
fit`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from .options import RESULT, Tls, command
from .terminal import Terminal

TOLERANCE = 1e-6
"""Largest accepted difference of an explained-variance ratio between the joint and the pooled result."""


@command()
def demo(
    vertical: Annotated[bool, typer.Option("--vertical", help="Use column owners instead of row owners.")] = False,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures and report.", rich_help_panel=RESULT)
    ] = Path("demo-result"),
    tls: Tls = False,
) -> None:
    """Run a joint PCA of three hospitals on four local servers.

    The result is compared with single hospitals and scikit-learn.

    With --vertical: three institutions that hold different columns of the same patients.
    """
    from ..estimator.partition import Columns
    from ..estimator.plan import Plan
    from ..jobs.pca import JointPCA
    from ..owner.tables.owners import open_columns, open_rows
    from ..runtime import LocalServers
    from .fit import fit_shown, id_names, settings_of
    from .folder import check_free, whole_folder
    from .result import FILES, REPORT, print_account, print_openings, print_scree, write_result
    from .walkthrough import COMPONENTS, Hospitals, Institutions, ModelResult, ratio_error

    console, scene = Terminal(), Institutions() if vertical else Hospitals()
    known = (*FILES, *(name for each in (Hospitals, Institutions) for name in (each.folder, *each.figures)))
    check_free(output, known, replace=True)
    console.print(scene.story, highlight=False)
    with whole_folder(output, known, replace=True) as folder:
        files = scene.write(folder / scene.folder)
        partition = scene.partition
        tables = open_columns(files, partition.id) if isinstance(partition, Columns) else open_rows(files)
        plan = Plan(JointPCA(components=COMPONENTS), standardize=True, partition=partition)
        fitted, _ = fit_shown(plan, tables, LocalServers(tls=tls))
        model = fitted.model
        joint = ModelResult("joint on shares", model.rows, model.components, model.explained_variance_ratio)
        settings = settings_of(fitted, tls, id=id_names(partition), data=scene.data)
        write_result(folder, fitted, title=scene.title, settings=settings, owners=list(files))
        if figures := scene.figures if find_spec("matplotlib") else ():
            scene.draw(folder, model, joint)
    print_scree(console, model)
    scene.compare(console, joint)
    print_openings(console, model.audit)
    console.print(scene.moral, highlight=False)
    print_account(console, model, fitted.account)
    drawn = f"figures: {', '.join(figures)}" if figures else "no figures without the extra: pip install 'ppca[plot]'"
    console.print(Text(f"written: {output} (open {output / REPORT}; {drawn})"), soft_wrap=True)
    again = f"ppca fit {scene.options}{output / scene.folder}/*.csv -k {COMPONENTS} --standardize -o result"
    console.print(Text(f"the same from files: {again}"), soft_wrap=True)
    worst = ratio_error(joint, scene.truth)
    if model.rows != scene.truth.rows or not worst <= TOLERANCE:
        raise ValueError(f"the joint result differs from scikit-learn's by {worst:.1e}, more than {TOLERANCE:g}.")
