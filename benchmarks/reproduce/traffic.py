"""Traffic of nine devices (N-BaIoT), with what attacked them; made up in the same shape where the files are absent.

Rows that occur several times are kept once, so that no row can be in a training and in a test set. The features are
statistics of packets over windows of up to a minute; rows of one capture may overlap in time, and the files do not tell
their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.data_sets import Floats, Folder, MissingData, find

FAMILIES = ("benign", "gafgyt", "mirai")
ATTACKS = {"gafgyt": ("combo", "junk", "scan", "tcp", "udp"), "mirai": ("ack", "scan", "syn", "udp", "udpplain")}
WIDTH = 115
WITHOUT_MIRAI = ("Ennio", "Samsung")

ROUNDING = 1e-30
"""Values below this are rounding of a zero: owners cannot share columns that vary by less than 1e-145."""

Ints = NDArray[np.int64]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Traffic:
    """Rows of all devices. device: index into `devices`; label: index into FAMILIES; attack: benign, gafgyt udp, ..."""

    source: str
    devices: list[str]
    X: Floats
    device: Ints
    label: Ints
    attack: NDArray[np.str_]
    dropped: int

    @property
    def real(self) -> bool:
        """Return whether rows are real or made up."""
        return self.source.startswith("Real")

    def of(self, devices: list[int]) -> Bits:
        """Return the positions of the rows of these devices."""
        return np.isin(self.device, devices)

    def held_out(self, part: float, seed: int) -> Bits:
        """A part of the rows of every device and attack, by chance: the test set."""
        random = np.random.default_rng(seed)
        chosen = np.zeros(len(self.X), bool)
        kinds = np.unique(
            [f"{device} {attack}" for device, attack in zip(self.device, self.attack, strict=True)], return_inverse=True
        )[1]
        for kind in range(kinds.max() + 1):
            rows = random.permutation(np.flatnonzero(kinds == kind))
            chosen[rows[: max(1, round(part * len(rows)))]] = True
        return chosen

    def at_most(self, rows: Bits, count: int | None, seed: int) -> Bits:
        """Return a random sample of these rows, at most a given number per device."""
        if count is None:
            return rows
        random = np.random.default_rng(seed)
        kept = np.zeros_like(rows)
        for device in range(len(self.devices)):
            kept[random.permutation(np.flatnonzero(rows & (self.device == device)))[:count]] = True
        return kept


def traffic(data: Folder, made: int) -> Traffic:
    """The real rows, or `made` rows of every device if there are none."""
    try:
        return _real(data)
    except MissingData as missing:
        return _made(
            made, f"Synthetic traffic of nine devices ({missing}): what it shows says nothing about real traffic."
        )


def _real(data: Folder) -> Traffic:
    import pyarrow.parquet

    parts, device, label, attack, names = [], [], [], [], []
    for number, file in enumerate(sorted(find(data, "nbaiot").glob("*.parquet"))):
        table = pyarrow.parquet.read_table(file)
        names.append(_short(file.stem))
        kept = [column for column in table.column_names if column not in ("family", "attack", "label")]
        parts.append(np.column_stack([table[column].to_numpy() for column in kept]))
        family, kind = (np.asarray(table[column].to_pylist()) for column in ("family", "attack"))
        label.append(np.asarray(table["label"].to_numpy(), np.int64))
        attack.append(np.where(family == "benign", "benign", np.char.add(np.char.add(family, " "), kind)))
        device.append(np.full(len(family), number))
    return _once(
        "Real rows: the sample of N-BaIoT, nine devices, 115 columns; 41 % of its rows are benign, 8 % of the whole "
        "data set. Labels were recovered by replaying a published split; by device, those of gafgyt rows rest on "
        "that alone.",
        names,
        (np.vstack(parts), np.concatenate(device), np.concatenate(label), np.concatenate(attack)),
    )


def _short(name: str) -> str:
    """Danmini, or SimpleHome 1002: enough to tell devices apart."""
    words = name.split("_")
    number = next((word for word in words if word.isdigit() or word in ("737E",)), "")
    return f"{words[0]} {number}".strip() if words[0] in ("Provision", "SimpleHome") else words[0]


def _made(rows: int, source: str) -> Traffic:
    """Devices with a plane of their own, attacks with a shift of theirs; two devices without mirai."""
    random = np.random.default_rng(9)
    names = [f"device {number + 1}" for number in range(7)] + [f"{name} (made)" for name in WITHOUT_MIRAI]
    common = random.standard_normal((12, WIDTH))
    parts, device, label, attack = [], [], [], []
    for number in range(len(names)):
        own = common + 0.5 * random.standard_normal(common.shape)
        kinds = ["benign", *(f"gafgyt {kind}" for kind in ATTACKS["gafgyt"])]
        kinds += [f"mirai {kind}" for kind in ATTACKS["mirai"]] if number < 7 else []
        drawn = np.concatenate([["benign"] * (rows // 2), random.choice(kinds[1:], rows - rows // 2)])
        X = random.standard_normal((rows, 12)) @ own + 0.1 * random.standard_normal((rows, WIDTH))
        for kind in kinds[1:]:
            shift = np.random.default_rng(sum(map(ord, kind))).standard_normal(WIDTH) * 3
            X[drawn == kind] = 0.3 * X[drawn == kind] + shift
        parts.append(X)
        device.append(np.full(rows, number))
        label.append(np.asarray([FAMILIES.index(kind.split()[0]) for kind in drawn], np.int64))
        attack.append(drawn)
    return _once(
        source, names, (np.vstack(parts), np.concatenate(device), np.concatenate(label), np.concatenate(attack))
    )


def _once(source: str, names: list[str], rows: tuple[Floats, Ints, Ints, NDArray[np.str_]]) -> Traffic:
    """Every row once. Rounding of the statistics, some 1e-160 where the others are counts, is zero."""
    X, device, label, attack = rows
    X = np.where(np.abs(X) < ROUNDING, 0.0, X)
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    dropped = len(X) - len(first)
    return Traffic(source, names, X[first], device[first], label[first], attack[first], dropped)
