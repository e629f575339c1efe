"""These tests pin the structure. The typed stub of the kernels has the names, parameters and types of the compiled module: mypy
checks callers against the stub only."""

from __future__ import annotations

import ast
from pathlib import Path

import ppca.native
import ppca.native._kernels as kernels

STUB = ast.parse((Path(ppca.native.__file__).parent / "_kernels.pyi").read_text())


def declared(body: list[ast.stmt]) -> dict[str, str]:
    """What the stub says, by name: the signature of a function, the type of an attribute, nothing of a class."""
    found = {}
    for item in body:
        if isinstance(item, ast.FunctionDef):
            found[item.name] = ast.unparse(item)
        elif isinstance(item, ast.ClassDef):
            found[item.name] = ""
        elif isinstance(item, ast.AnnAssign):
            found[ast.unparse(item.target)] = ast.unparse(item.annotation)
    return found


def compiled(scope: object) -> dict[str, str]:
    """The same of the compiled module, or of one of its classes."""
    found = {}
    for name, value in vars(scope).items():
        if isinstance(value, type):
            found[name] = ""
        elif isinstance(value, property):
            ((signature, *_),) = value.fget.__nb_signature__
            found[name] = signature.split("-> ")[1]
        elif hasattr(value, "__nb_signature__"):
            ((signature, *_),) = value.__nb_signature__  # one: no kernel is overloaded
            found[name] = ast.unparse(ast.parse(signature + ": ..."))
    return found


def test_stub_and_module_agree() -> None:
    assert declared(STUB.body) == compiled(kernels)


def test_stub_and_classes_agree() -> None:
    classes = {item.name: item for item in STUB.body if isinstance(item, ast.ClassDef)}
    for name, item in classes.items():
        assert declared(item.body) == compiled(getattr(kernels, name))
