"""`ppca fit`: joint PCA of several owners' files on four local servers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from .complaint import complaints, printable

TITLE = "Joint PCA"


def fit(
    files: Annotated[list[Path], typer.Argument(help="one table per owner: .csv, .parquet, .arrow, .npy, .npz")],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the result")] = Path("result"),
    components: Annotated[
        str, typer.Option("--components", "-k", help="how many; or the share of variance to explain, as 0.95; or 'all'")
    ] = "all",
    standardize: Annotated[
        bool, typer.Option("--standardize", help="divide columns by their joint deviation (correlation)")
    ] = False,
    columns: Annotated[
        list[str] | None, typer.Option("--columns", help="columns to take: a,b,c; may be repeated")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="columns to leave out: a,b,c; may be repeated")
    ] = None,
    solver: Annotated[str, typer.Option(help="eigensolver")] = "allpairs",
    tol: Annotated[float, typer.Option(help="where the eigensolver stops, relative to the matrix")] = 1e-6,
    bounds: Annotated[
        str, typer.Option(help="public bound on magnitudes: 'auto', a number, or one per column: 1,10,5")
    ] = "auto",
    fixed_iterations: Annotated[
        int | None, typer.Option("--fixed-iterations", min=1, help="run so many and open no convergence bits")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="servers keep the model's shares in the result, for transform and detect")
    ] = False,
    reveal: Annotated[
        bool, typer.Option("--reveal/--no-reveal", help="whether you receive the model; if not, only servers keep it")
    ] = True,
    max_iterations: Annotated[
        int | None, typer.Option("--max-iterations", min=1, help="give up after so many; then jacobi takes over")
    ] = None,
    vertical: Annotated[
        bool, typer.Option("--vertical", help="owners hold different columns of the same individuals")
    ] = False,
    id_column: Annotated[
        str | None, typer.Option("--id", help="vertical: the column that names the individuals")
    ] = None,
    alignment: Annotated[
        str, typer.Option(help="vertical: psi (private join by id), aligned (same order), namespace (ids 0..N-1)")
    ] = "psi",
    namespace: Annotated[int | None, typer.Option(help="vertical: number of ids of alignment namespace")] = None,
    minimum: Annotated[int, typer.Option(min=1, help="vertical: stop if fewer ids are common to all owners")] = 10,
    fold_case: Annotated[bool, typer.Option("--fold-case", help="vertical: ids may differ in case")] = False,
    pieces: Annotated[int | None, typer.Option(min=1, help="vertical: row pieces of the covariance step")] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="vertical: worker processes of every server; 0: the server itself")
    ] = 0,
    title: Annotated[str, typer.Option(help="title of the report")] = TITLE,
    tls: Annotated[bool, typer.Option("--tls", help="mutual TLS between the servers")] = False,
    timeout: Annotated[float, typer.Option(help="seconds a communication round may take")] = 60.0,
    profile: Annotated[bool, typer.Option("--profile", help="show where the time went")] = False,
    force: Annotated[bool, typer.Option("--force", help="replace an earlier result")] = False,
) -> None:
    """Joint PCA of the rows of several owners' files, on four servers that this command starts on this machine.

    Every file is read here, once; only shares of its sums reach the servers. The result folder gets components.csv,
    explained_variance.csv, model.json and report.html, all of them or none. With --keep it also gets what each server keeps
    of the model, one folder per server; with --no-reveal only that.

    With --vertical owners hold different columns of the same individuals, joined by --id; their rows reach the servers as shares.
    """
    with complaints(), ExitStack() as work:
        count = component_count(components)
        limits = bounds_of(bounds)

        from ..estimator import PCA
        from ..owner.alignment.arrangement import Alignment
        from .columns import labels_for, names_in, open_files
        from .folder import check_free, whole_folder
        from .job import fit_jointly, fit_vertically
        from .kept import KEPT_AS, kept_state, write_kept
        from .result import FILES, KEPT, KNOWN, print_account, print_openings, print_profile, print_scree, write_result

        console, messages = Console(), Console(stderr=True)
        check_free(output, KNOWN, replace=force)
        keep = keep or not reveal
        pca = PCA(
            count,
            standardize=standardize,
            solver=solver,
            tol=tol,
            bounds=limits,
            fixed_iterations=fixed_iterations,
            max_iterations=max_iterations,
            keep=KEPT_AS if keep else None,
            reveal=reveal,
        )
        state = work.enter_context(kept_state()) if keep else None
        if vertical:
            if id_column is None and alignment != "aligned":
                raise ValueError("--vertical needs --id, the column that names the individuals in every file.")
            pca.set_params(
                partition="columns",
                id=id_column,
                alignment=Alignment(alignment, namespace, minimum, fold_case),
                pieces=pieces,
                executor={"kind": "processes", "workers": workers} if workers else None,
            )
            run = fit_vertically(
                pca,
                files,
                messages,
                labels=labels_for(files),
                columns=names_in(columns),
                drop=names_in(drop),
                tls=tls,
                timeout=timeout,
                state=state,
            )
        else:
            if id_column is not None or namespace is not None:
                raise ValueError("--id and --namespace are for owners of different columns: add --vertical.")
            sources = open_files(files, names_in(columns), names_in(drop))
            for note in _notes(files, sources):
                line = Text.assemble(("note: ", "yellow"), printable(note, 400))
                messages.print(line, soft_wrap=True, highlight=False)
            if isinstance(limits, list) and len(limits) != sources[0].n_columns:
                raise ValueError(
                    f"--bounds has {len(limits)} numbers for {sources[0].n_columns} columns. Give one for each."
                )
            run = fit_jointly(pca, sources, messages, tls=tls, timeout=timeout, state=state)
        if pca.verified_ is False:
            raise ValueError(
                "the check on shares failed: the decomposition is less accurate than --tol promises. Nothing was written. "
                "Fit again with a larger --tol, without --fixed-iterations, or with --solver jacobi."
            )
        settings = {
            "components": components,
            "standardize": "yes" if standardize else "no",
            "eigensolver": solver,
            "tolerance": f"{tol:g}",
            "bounds": bounds,
            "iterations": "until converged" if fixed_iterations is None else f"{fixed_iterations}, fixed",
            "columns": "all" if columns is None and drop is None else f"{pca.n_features_in_} chosen",
            "servers": "four processes on one machine" + (", mutual TLS" if tls else ", plain TCP"),
        }
        if vertical:
            settings |= {"partition": "by columns", "alignment": alignment, "id": id_column or "none"}
        with whole_folder(output, KNOWN, replace=force) as folder:
            if reveal:
                write_result(folder, pca.model_, run, title=title, settings=settings, owners=labels_for(files))
            if state is not None:
                write_kept(folder, pca.shared_facts(), state)
        written = [*(FILES if reveal else ()), *(KEPT if keep else ())]
        if reveal:
            print_scree(console, pca.model_)
        print_openings(console, run)
        if profile:
            print_profile(console, run)
        print_account(console, pca.model_ if reveal else pca.shared_facts(), run)
        if not reveal:
            console.print(
                "Nobody received the model: the servers keep it in shares, for ppca transform and ppca detect."
            )
        console.print(Text(f"written: {output} ({', '.join(written)})"), soft_wrap=True, highlight=False)


def component_count(text: str) -> int | float | None:
    """What -k means: a number of components, a share of variance, or (None) all."""
    if text == "all":
        return None
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    raise ValueError(f"-k {text}: give a whole number, a share of variance between 0 and 1, or 'all'.")


def bounds_of(text: str) -> Any:
    if text == "auto":
        return text
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--bounds {text}: give 'auto', a number, or one number per column, as 1,10,5.") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _notes(files: list[Path], sources: list[Any]) -> list[str]:
    notes = [note for source in sources for note in source.notes if note]
    places = [path.resolve() for path in files]
    twice = {path.name for path, place in zip(files, places, strict=True) if places.count(place) > 1}
    return notes + [f"{name} is given more than once: its rows count each time" for name in sorted(twice)]
