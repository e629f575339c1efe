"""`ppca transform`: coordinates of new rows under a fitted model, model and rows both secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from .complaint import complaints
from .joint_rows import FoldCase, IdColumn, Namespace, Receiver, Rows, Way, joint_options


def transform(
    result: Annotated[Path, typer.Argument(help="folder of a result, from `ppca fit --keep`")],
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="file for the coordinates: .csv or .parquet")] = Path(
        "projected.csv"
    ),
    revealed: Annotated[
        bool, typer.Option("--revealed", help="use the revealed model here, in the clear, without servers")
    ] = False,
    id_column: IdColumn = None,
    alignment: Way = "psi",
    namespace: Namespace = None,
    fold_case: FoldCase = False,
    receiver: Receiver = None,
    tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False,
    timeout: Annotated[float, typer.Option(help="seconds a communication round may take")] = 60.0,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
) -> None:
    """Project new rows onto the components of a fitted model.

    On shares: four servers hold the model, the rows reach them as shares, and only the coordinates come back. Each component's
    sign is then the one the servers happen to have, the same in every call; nobody has looked at the components to choose it.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are projected, and the
    receiver gets them with its own ids.
    """
    with complaints():
        import numpy as np

        from ..report import combined
        from .folder import check_file
        from .job import StageBars, progress_bars
        from .kept import ENDINGS, chunks_of, kept_model, load_facts, load_revealed, open_rows, write_table
        from .result import print_openings, print_traffic

        console, messages = Console(), Console(stderr=True)
        check_file(output, ENDINGS, replace=force)
        joint = joint_options(rows, id_column, alignment, namespace, fold_case, receiver, revealed)
        ids: dict[str, Any] = {}
        if revealed:
            model = load_revealed(result)
            source = open_rows(rows[0], model.feature_names, len(model.mean))
            found = np.vstack([model.project(chunk) for chunk in chunks_of(source)])
            run = None
        elif joint is not None:
            facts = load_facts(result)
            with (
                kept_model(result, facts, tls=tls, timeout=timeout) as (shared, servers),
                progress_bars(messages) as bars,
            ):
                shown = StageBars(bars, servers)
                answer = shared.transform_columns(rows, **joint, progress=shown)
                shown.finish()
            assert answer.coordinates is not None
            found, run = answer.coordinates, combined(servers.runs)
            ids = {} if answer.ids is None else {id_column or "row": answer.ids}
        else:
            facts = load_facts(result)
            source = open_rows(rows[0], facts.feature_names, len(facts.scale_exponents))
            with (
                kept_model(result, facts, tls=tls, timeout=timeout) as (shared, servers),
                progress_bars(messages) as bars,
            ):
                task = bars.add_task("transform on shares", total=source.rows, detail="")
                parts, done = [], 0
                for part in shared.transform_batches(chunks_of(source)):
                    parts.append(part)
                    done += len(part)
                    bars.update(task, completed=done, detail=f"{done:,} rows")
                bars.update(task, completed=done, total=done)
                found, run = np.vstack(parts), combined(servers.runs)
        write_table(output, ids | {f"pc{i + 1}": column for i, column in enumerate(np.ascontiguousarray(found.T))})
        count = found.shape[1]
        where = "in the clear" if revealed else "on shares"
        console.print(
            f"{len(found):,} rows projected onto {count} component{'' if count == 1 else 's'} {where}", highlight=False
        )
        if run is not None:
            print_openings(console, run)
            print_traffic(console, run)
        console.print(Text(f"written: {output}"), soft_wrap=True, highlight=False)
