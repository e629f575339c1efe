"""`ppca forget`: erase what local servers keep of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..html.formats import counted
from .options import ServersState, command
from .terminal import Terminal


@command()
def forget(
    result: Annotated[Path, typer.Argument(help="Folder of a result, from `ppca fit --keep`.")],
    servers_state: ServersState = None,
) -> None:
    """Erase the shares of a model that local servers keep.

    Revealed values stay in the result.

    The files are deleted, not overwritten: backups and the disk itself may still hold them.
    """
    from .result import MODEL, SHARED
    from .shares import erase, kept_as, state_folder

    name = kept_as(result)
    if name is None:
        raise ValueError(
            f"{result} names no kept model: it was fitted without --keep, or `ppca forget` has erased it. There is "
            "nothing to erase."
            if result.is_dir()
            else f"there is no folder {result}. Give the folder that `ppca fit --keep` wrote with -o."
        )
    state = state_folder(servers_state)
    found = erase(state, name)
    if not found:
        raise ValueError(
            f"no server keeps this model in {state}. Give the folder that the fit used: --servers-state FOLDER."
        )
    (result / SHARED).unlink()
    if (result / MODEL).exists():
        left = f"The revealed model stays in {result}: ppca transform and ppca detect use it with --revealed."
    else:
        left = "This model was not revealed, so nothing of it is left. To use it, fit again with --keep."
        if not any(result.iterdir()):
            result.rmdir()
    text = f"erased: the shares of {counted(found, 'server')} in {state}, and {result / SHARED}. {left}"
    Terminal().print(Text(text), soft_wrap=True, highlight=False)
