"""`ppca detect`: anomalous rows under a fitted model, model and rows both secret."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from .complaint import complaints
from .joint_rows import FoldCase, IdColumn, Namespace, Receiver, Rows, Way, joint_options


def detect(
    result: Annotated[Path, typer.Argument(help="folder of a result, from `ppca fit --keep`")],
    rows: Rows,
    output: Annotated[Path, typer.Option("--output", "-o", help="file for the flags: .csv or .parquet")] = Path(
        "flags.csv"
    ),
    threshold: Annotated[float | None, typer.Option(help="flag rows with a score above this")] = None,
    contamination: Annotated[
        float | None, typer.Option(help="flag this share of the rows: those with the largest scores")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="also reveal the scores")] = False,
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
    """Flag rows that a fitted model describes badly.

    The score of a row is its squared distance to its projection, of a standardised model in standardised units. On shares: the
    servers hold the model, the rows reach them as shares, and only flags (with --scores: also scores) come back.

    Of a vertical fit give every owner's table, in the order of the fit: the rows that all owners have are scored, and the
    receiver gets the verdicts with its own ids.
    """
    with complaints():
        import numpy as np

        from ..estimator.shared import check_limits, flags_of
        from ..report import combined
        from .folder import check_file
        from .job import StageBars, progress_bars
        from .kept import ENDINGS, chunks_of, kept_model, load_facts, load_revealed, open_rows, write_table
        from .result import print_openings, print_traffic

        console, messages = Console(), Console(stderr=True)
        check_limits(threshold, contamination)
        if threshold is None and contamination is None and not scores:
            raise ValueError("nothing to find: give --threshold, --contamination or --scores.")
        check_file(output, ENDINGS, replace=force)
        joint = joint_options(rows, id_column, alignment, namespace, fold_case, receiver, revealed)
        columns: dict[str, Any] = {}
        if revealed:
            model = load_revealed(result)
            source = open_rows(rows[0], model.feature_names, len(model.mean))
            plain = np.concatenate([model.scores(chunk) for chunk in chunks_of(source)])
            found: Any = plain
            flags, run = flags_of(plain, threshold, contamination), None
        elif joint is not None:
            facts = load_facts(result)
            with (
                kept_model(result, facts, tls=tls, timeout=timeout) as (shared, servers),
                progress_bars(messages) as bars,
            ):
                shown = StageBars(bars, servers)
                answer = shared.detect_columns(
                    rows, threshold=threshold, contamination=contamination, scores=scores, **joint, progress=shown
                )
                shown.finish()
            found, flags, run = answer.scores, answer.flags, combined(servers.runs)
            columns = {} if answer.ids is None else {id_column or "row": answer.ids}
        else:
            facts = load_facts(result)
            source = open_rows(rows[0], facts.feature_names, len(facts.scale_exponents))
            with (
                kept_model(result, facts, tls=tls, timeout=timeout) as (shared, servers),
                progress_bars(messages) as bars,
            ):
                task = bars.add_task("detect on shares", total=None, detail="")

                def show(text: str, fraction: float | None, rounds: int) -> None:
                    detail = text if fraction else ""
                    bars.update(task, completed=fraction or 0.0, total=1.0 if fraction else None, detail=detail)

                found, flags = shared.detect_batches(
                    chunks_of(source), threshold=threshold, contamination=contamination, scores=scores, progress=show
                )
                bars.update(task, completed=1.0, total=1.0, detail="")
                run = combined(servers.runs)
        columns |= {} if flags is None else {"anomaly": flags.astype(np.int8)}
        if scores:
            columns["score"] = found
        write_table(output, columns)
        where = "in the clear" if revealed else "on shares"
        count = len(next(iter(columns.values())))
        verdict = "" if flags is None else f", {int(flags.sum()):,} flagged"
        console.print(f"{count:,} rows scored {where}{verdict}", highlight=False)
        if run is not None:
            print_openings(console, run)
            print_traffic(console, run)
        console.print(Text(f"written: {output}"), soft_wrap=True, highlight=False)
