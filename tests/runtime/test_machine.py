"""Memory of the machine, and of the control group of this process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ppca.federation.serverfile import MIN_INPUT_BYTES, Policy
from ppca.runtime import machine
from ppca.runtime.machine import machine_bytes

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control group of a service."""
    (tmp_path / "cgroup").write_text("0::/system.slice/ppca.service\n")
    (folder := tmp_path / "system.slice" / "ppca.service").mkdir(parents=True)
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    monkeypatch.setattr(machine, "OWN_CGROUP", tmp_path / "cgroup")
    return folder


def test_a_service_without_a_limit_has_the_memory_of_the_machine(group: Path) -> None:
    (group / "memory.max").write_text("max\n")
    assert machine_bytes() == PHYSICAL


@pytest.mark.parametrize("place", [".", ".."])
def test_the_smallest_limit_counts(group: Path, place: str) -> None:
    (group / place / "memory.max").write_text(f"{1 << 30}\n")
    assert machine_bytes() == 1 << 30
    assert Policy().input_bytes == 1 << 28


def test_the_default_of_memory_is_a_quarter_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was 8 GiB on every machine."""
    assert Policy().input_bytes == machine_bytes() // 4
    assert Policy(memory=1 << 26).input_bytes == 1 << 26
    monkeypatch.setattr("ppca.federation.serverfile.machine_bytes", lambda: 1 << 20)
    assert Policy().input_bytes == MIN_INPUT_BYTES


def test_no_control_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "OWN_CGROUP", tmp_path / "none")
    assert machine_bytes() == PHYSICAL
