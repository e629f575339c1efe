"""`ppca run`: a program on four local servers, inputs from files, the result on standard output and in a file."""

from __future__ import annotations

import json
import os
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from ..estimator.job import Job
from ..protocol import share
from ..runtime import Account, LocalServers
from ..runtime.files import whole_file
from ..runtime.programs import name_of
from .folder import FolderRefused, check_file
from .options import Force, Timeout, Tls, command
from .progress import stage_bars
from .result import print_openings
from .terminal import Terminal

ENDINGS = (".npz", ".npy", ".json")


class ArrayFileRefused(ValueError):
    """An input file cannot be read. The message says how to fix it."""


@command()
def run(
    program: Annotated[str, typer.Argument(help="The program: module:function or file.py:function, an 'async def'.")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Your secret arrays, one file each (.npy, or .csv of numbers).")
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option("--public", "-p", help="Public parameter name=value (number, true, [1, 2] or text); repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Also write the result here: .npz, .json, or .npy if it is one array."),
    ] = None,
    force: Force = False,
    tls: Tls = False,
    timeout: Timeout = 60.0,
) -> None:
    """Run a program on four local servers.

    Secrets are shared in this process; servers see only shares.

    The program is an 'async def program(party, *secrets, **public)'; it returns what it opened or revealed.

    Example: ppca run analysis.py:program x.npy y.csv -p scale=2 -o result.npz
    """
    parameters = _parameters(public or [])
    if output is not None:
        check_file(output, ENDINGS, replace=force)
    sys.path.append(os.getcwd())  # so that module:function finds modules in the current folder
    name = name_of(program)
    packets = [share(_load(path), name=path.name) for path in inputs or []]
    servers = LocalServers(tls=tls, timeout=timeout, developer=True)
    with stage_bars(quiet=not Terminal(stderr=True).is_terminal) as show, Job(servers, show) as job:
        result = job.run(name, *packets, **parameters)
    arrays = _flat(result)
    _print(Terminal(), arrays, job.account)
    if output is not None:
        _save(output, arrays)
        Terminal(stderr=True).print(f"written: {output}", markup=False, highlight=False, soft_wrap=True)


# -- what comes in -------------------------------------------------------------------------------------------------


def _load(path: Path) -> Any:
    if path.suffix not in (".npy", ".csv"):
        raise ArrayFileRefused(f"{path}: only .npy and .csv can be read; save the array with numpy.save")
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "loadtxt: input contained no data")
            return np.loadtxt(path, delimiter=",", ndmin=1)
    except OSError as error:
        raise ArrayFileRefused(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, UserWarning) as error:
        hint = "; a .csv here has numbers only, no line of names" if path.suffix == ".csv" else ""
        raise ArrayFileRefused(f"cannot read {path}: {error}{hint}") from None


def _parameters(texts: list[str]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise typer.BadParameter(f"{text!r} is not of the form name=value", param_hint="--public")
        if name in parameters:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--public")
        parameters[name] = _value(value)
    return parameters


def _value(text: str) -> Any:
    for convert in (int, float, json.loads):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


# -- what goes out -------------------------------------------------------------------------------------------------


def _flat(result: Any, name: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a result by their place in it: ``result``, ``key``, ``key.inner``, ``key[0]``."""
    if isinstance(result, dict):
        prefix = f"{name}." if name else ""
        return {k: v for key, item in result.items() for k, v in _flat(item, prefix + key).items()}
    plain = (bool, int, float)
    if isinstance(result, list) and not (result and all(isinstance(item, plain) for item in result)):
        return {k: v for i, item in enumerate(result) for k, v in _flat(item, f"{name or 'result'}[{i}]").items()}
    array = np.asarray(result)
    return {name or "result": array if array.dtype.kind != "O" else np.asarray(str(result))}


def _print(console: Console, arrays: dict[str, NDArray[Any]], account: Account) -> None:
    for name, array in arrays.items():
        text = np.array2string(array, threshold=20, precision=6)
        between = "\n" if "\n" in text else " "
        console.print(Text.assemble((name, "bold"), " =", between, text), soft_wrap=True)
    sent = max(account.bytes_sent)
    text = f"{account.rounds} rounds (one of them for key agreement), {sent:,} bytes sent by the busiest server, "
    console.print(f"{text}{account.seconds:.3f} s", style="dim", highlight=False, soft_wrap=True)
    print_openings(console, account.audit)


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the arrays in the format of the file's suffix. If this fails, no file is left."""
    ending = path.suffix.lower()
    if ending == ".npy" and len(arrays) != 1:
        raise FolderRefused(
            f"-o {path}: the result has {len(arrays)} arrays, a .npy file holds one. Give a .npz or .json file."
        )
    with whole_file(path) as part:
        if ending == ".json":
            part.write_text(
                json.dumps({name: array.tolist() for name, array in arrays.items()}, indent=1) + "\n", encoding="utf-8"
            )
        elif ending == ".npy":
            with part.open("wb") as file:
                np.lib.format.write_array(file, next(iter(arrays.values())), allow_pickle=False)
        else:
            with zipfile.ZipFile(part, "w") as archive:  # numpy.savez does not take every name
                for name, array in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, array, allow_pickle=False)
