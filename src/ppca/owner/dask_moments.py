"""The sums of an owner whose table is too large for one machine, computed on the owner's own Dask cluster.

Each worker sums its parts of the table with `moments`; the sums (d^2 numbers) are merged pairwise on the workers, and one set
of sums comes back. Needs the extra `ppca[dask]`. The result differs from one pass by rounding only: see `Moments.merge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .errors import BadColumns, OwnerError, UnreadableData
from .moments import Moments, Progress, moments
from .tables.sources import FILE_KINDS, check_compatible, open_source
from .tables.table import Source

CONNECT_SECONDS = 30


def moments_on_dask(
    data: Any,
    scheduler: str,
    *,
    columns: Sequence[str] | None = None,
    label: str | None = None,
    progress: Progress | None = None,
    security: Any = None,
) -> Moments:
    """The sums of `data`, computed by the workers of the Dask scheduler at the address `scheduler`.

    Parameters
    ----------
    data : a path, a list of paths, or a folder (all of its data files), as the workers see them; or a Dask array or frame
    scheduler : for example "tcp://10.0.0.5:8786"
    columns : names of the columns to take; None takes all
    progress : called with the rows done, as parts finish
    security : a `distributed.Security`, for a scheduler that asks for TLS
    """
    distributed = _distributed()
    try:
        client = distributed.Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError) as error:
        raise OwnerError(
            f"the Dask scheduler at {scheduler} cannot be reached ({error}). Check the address, and that it is running."
        ) from error
    with client:
        try:
            if hasattr(data, "to_delayed"):
                label = label or "owner 1"
                parts = _start_blocks(client, data, columns, label)
            else:
                paths = [data] if isinstance(data, str | PathLike) else list(data)
                label = label or Path(paths[0]).name if paths else "owner 1"
                parts = _start_files(client, paths, columns, label)
            return _collect(distributed, client, parts, label, progress)
        except (distributed.KilledWorker, distributed.comm.CommClosedError) as error:
            raise OwnerError(
                f"{label}: the Dask cluster lost its workers ({error}). Restart it and run again."
            ) from error


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise OwnerError("dask.distributed is not installed. Install it with: pip install 'ppca[dask]'") from error
    return distributed


def _start_files(client: Any, paths: list[Any], columns: Sequence[str] | None, label: str) -> list[Any]:
    """Open the files on the workers, check that their columns agree, then start one sum per file."""
    found = client.gather(client.map(_files_in, [str(path) for path in paths], pure=False))
    files = [file for part in found for file in part]
    if not files:
        raise UnreadableData(f"{label}: the folder holds no data files ({FILE_KINDS}).")
    opened = client.gather(client.map(_open, files, columns=columns, pure=False))
    return list(client.map(_sum_source, check_compatible(opened), pure=False))


def _start_blocks(client: Any, data: Any, columns: Sequence[str] | None, label: str) -> list[Any]:
    """Start one sum per block of rows of a Dask array, or per partition of a Dask frame."""
    if hasattr(data, "rechunk"):
        if data.ndim != 2:
            raise BadColumns(f"{label}: the array has {data.ndim} dimension(s), a table has two.")
        data = data.rechunk({1: -1})
        blocks = list(data.to_delayed().ravel())
    else:
        blocks = list(data.to_delayed())
    labels = [f"{label}, part {number}" for number in range(1, len(blocks) + 1)]
    return list(client.map(_sum_block, client.compute(blocks), labels, columns=columns, pure=False))


def _collect(distributed: Any, client: Any, parts: list[Any], label: str, progress: Progress | None) -> Moments:
    """Merge neighbours until one is left. Waits for the parts first, so that an error names the part it came from."""
    done = 0
    counts = client.map(_count, parts, pure=False)
    for _, count in distributed.as_completed(counts, loop=client.loop, with_results=True):
        done += count
        if progress is not None:
            progress(done, None)
    if done == 0:
        raise OwnerError(f"{label}: the table has no rows. An owner needs at least one.")
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        merged = [client.submit(_merge, left, right, pure=False) for left, right in pairs]
        parts = merged + parts[len(parts) - len(parts) % 2 :]
    total: Moments = parts[0].result()
    return Moments(total.count, total.mean, total.gram, total.largest, total.names, label)


def _files_in(path: str) -> list[str]:
    """The path itself, or the data files of a folder in the order of their names; runs on a worker."""
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    return sorted(str(file) for file in folder.iterdir() if file.suffix.lower() in FILE_KINDS.split(", "))


def _open(path: str, columns: Sequence[str] | None) -> Source:
    return open_source(path, columns=columns)


def _sum_source(source: Source) -> Moments:
    return moments(source, threads=1)


def _sum_block(block: Any, label: str, columns: Sequence[str] | None) -> Moments | None:
    """A block may be empty: filters leave such partitions."""
    return moments(open_source(block, columns=columns, label=label), threads=1) if len(block) else None


def _count(part: Moments | None) -> int:
    return 0 if part is None else part.count


def _merge(left: Moments | None, right: Moments | None) -> Moments | None:
    if left is None or right is None:
        return left or right
    return left.merge(right)
