"""Build identifier: the version, and the SHA-256 of all Python sources and of the compiled kernels.

All servers of a job must run the same build. Install the same wheel everywhere: kernels compiled on two machines may
differ.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from .. import __version__
from ..native import kernels


@cache
def build() -> str:
    root = Path(__file__).resolve().parent.parent
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    files["native/kernels"] = Path(str(kernels.__file__))
    total = hashlib.sha256()
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        total.update(f"{name} {len(content)}\n".encode() + content)
    return f"{__version__}+{total.hexdigest()}"
