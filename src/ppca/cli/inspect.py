"""`ppca inspect`: what a result says, in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .complaint import complaints


def inspect(
    result: Annotated[Path, typer.Argument(help="folder of a result, or its model.json")],
    top: Annotated[int, typer.Option(min=1, help="columns to list of each component")] = 5,
) -> None:
    """Show a fitted model: facts, explained variance, strongest loadings, and everything that was opened."""
    with complaints():
        from ..estimator import PCAModel
        from .result import MODEL, print_facts, print_loadings, print_openings, print_scree, solver_text

        path = result / MODEL if result.is_dir() else result
        if not path.exists():
            raise ValueError(f"there is no {path}. Give the folder that `ppca fit` wrote with -o.")
        model = PCAModel.load(path)
        console = Console()
        print_facts(console, model)
        console.print(Text(solver_text(model)), soft_wrap=True, highlight=False)
        print_scree(console, model)
        print_loadings(console, model, top)
        print_openings(console, model)
