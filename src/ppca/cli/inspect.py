"""`ppca inspect`: what a result says, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..html.formats import counted
from .options import AsJson, command
from .terminal import Terminal

if TYPE_CHECKING:
    from ..receiver import SharedFacts


@command()
def inspect(
    result: Annotated[Path, typer.Argument(help="Folder of a result, or its model.json.")],
    top: Annotated[int, typer.Option(min=1, help="Columns to list of each component.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show a fitted model: explained variance, loadings, and everything opened."""
    from ..receiver import PCAModel, SharedFacts
    from .result import MODEL, SHARED, print_facts, print_loadings, print_openings, print_scree, solver_text

    path = result / MODEL if result.is_dir() else result
    if result.is_dir() and not path.exists() and (result / SHARED).exists():
        facts = SharedFacts.load(result / SHARED)
        _echo(result / SHARED) if as_json else _show_shared(Terminal(), facts)
        return
    if not path.exists():
        raise ValueError(f"there is no {path}. Give the folder that `ppca fit` wrote with -o.")
    model = PCAModel.load(path)
    if as_json:
        _echo(path)
        return
    console = Terminal()
    print_facts(console, model)
    console.print(Text(solver_text(model)), soft_wrap=True, highlight=False)
    print_scree(console, model)
    print_loadings(console, model, top)
    print_openings(console, model.audit)


def _echo(path: Path) -> None:
    """The file as it is: it was read, so it is whole."""
    typer.echo(path.read_text(encoding="utf-8"), nl=False)


def _show_shared(console: Terminal, facts: SharedFacts) -> None:
    """Print the public facts of a model that was not revealed."""
    from .result import print_openings, solver_text

    what = "correlation (standardised columns)" if facts.standardized else "covariance"
    console.print(
        f"PCA of the {what} of {facts.rows:,} rows and {len(facts.scale_exponents)} columns, kept in shares by its "
        f"servers: {counted(facts.components, 'component')}. This model was not revealed to anyone.",
        highlight=False,
        soft_wrap=True,
    )
    allowed = "; ".join(f"{operation} for {' and '.join(to)}" for operation, to in facts.allowed.items())
    console.print(Text(f"allowed: {allowed or 'nothing'}"), soft_wrap=True, highlight=False)
    console.print(Text(solver_text(facts)), soft_wrap=True, highlight=False)
    print_openings(console, facts.audit)
