# SPDX-License-Identifier: Apache-2.0
"""The tables of bespoke.h for ctypes against the header itself, and errors that come out of the library."""

from __future__ import annotations

import ctypes as c
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke.core import engine_table, find, library
from bespoke.errors import BundleError, MissingDependency
from tests.support import c_header

HEADER = c_header.declarations()
PLAIN = {
    "size_t": c.c_size_t,
    "int32_t": c.c_int32,
    "uint32_t": c.c_uint32,
    "int64_t": c.c_int64,
    "uint64_t": c.c_uint64,
    "double": c.c_double,
    **dict.fromkeys(re.findall(r"BESPOKE_ENUM\((\w+)\)\s*\{", HEADER), c.c_int32),
    "void": None,
    "char *": c.c_char_p,
    "uint8_t *": c.c_char_p,
    "bespoke_log": c.c_void_p,  # a function
}
STRUCTS = {**library.STRUCTS, **engine_table.STRUCTS}
POINTED_TO = {
    name: struct for name, struct in STRUCTS.items() if name != "bespoke_engine"
}  # structs of which an address is enough
OPAQUE = ("bespoke_model", "bespoke_session", "bespoke_cancel")


def kind(declared: str) -> object:
    """What ctypes has for a type of C. A text that is handed out is an address: it must be freed as one."""
    name = " ".join(declared.replace("const", "").replace("*", " * ").split()).replace("* *", "**")
    if name in PLAIN:
        return PLAIN[name]
    if name in STRUCTS:
        return STRUCTS[name]
    base, stars = name.split(" ")
    if base in OPAQUE:
        return {"*": c.c_void_p, "**": c.POINTER(c.c_void_p)}[stars]
    if base == "char":
        return c.POINTER(c.c_void_p)
    if base not in POINTED_TO and base not in PLAIN:
        return c.c_void_p  # pointer to an engine's table
    pointed = c.POINTER(POINTED_TO.get(base) or PLAIN[base])
    return pointed if stars == "*" else c.POINTER(pointed)


def split(declaration: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?[\s*])(\w+)", " ".join(declaration.split()))
    assert found is not None, declaration
    return found[1], found[2]


def functions() -> dict[str, tuple[object, tuple[object, ...]]]:
    found = {}
    for declared, parameters in re.findall(r"^BESPOKE_(?:API|CHECKED) ([^;(]*)\(([^;]*)\);", HEADER, re.MULTILINE):
        returned, name = split(declared)
        taken = [] if parameters.strip() == "void" else [split(each)[0] for each in parameters.split(",")]
        found[name] = (kind(returned), tuple(map(kind, taken)))
    return found


def fields(struct: str) -> list[tuple[str, object]]:
    body = re.search(rf"typedef struct {struct} {{(.*?)}} {struct};", HEADER, re.DOTALL)
    assert body is not None, struct
    found: list[tuple[str, object]] = []
    for line in filter(None, (part.strip() for part in body[1].split(";"))):
        if "(*" in line:
            found.append((re.search(r"\(\*(\w+)\)", line)[1], None))  # type: ignore[index]
            continue
        first, *more = line.split(",")
        declared, name = split(first)
        found += [(each, kind(declared)) for each in (name, *(other.strip() for other in more))]
    return found


def test_the_functions_are_those_of_the_header() -> None:
    # bespoke_free takes the address of what a function has handed out; from a text ctypes would make another one
    declared = {name: types for name, types in functions().items() if name != "bespoke_free"}
    assert declared == {name: types for name, types in library.FUNCTIONS.items() if name != "bespoke_free"}


@pytest.mark.parametrize("struct", STRUCTS)
def test_the_structs_have_the_fields_of_the_header(struct: str) -> None:
    here = [(name, kind) for name, kind, *_ in STRUCTS[struct]._fields_]
    there = fields(struct)
    assert [name for name, _ in here] == [name for name, _ in there]
    assert [kind for _, kind in here if not issubclass(kind, c._CFuncPtr)] == [
        kind for _, kind in there if kind is not None
    ]


def test_an_error_of_the_core_has_its_class_and_its_four_parts(tmp_path: Path) -> None:
    core = library.load()
    model = c.c_void_p()
    bundle = library.struct(library.CBundle, path=str(tmp_path / "nosuch"))
    with pytest.raises(BundleError) as refused:
        core.call("bespoke_open", bundle, library.text(str(tmp_path / "state")), None, None, c.byref(model))
    assert str(tmp_path / "nosuch") in refused.value.subject
    assert all((refused.value.got, refused.value.expected, refused.value.next_step))
    assert not (tmp_path / "state").exists()


def test_a_kind_that_this_version_does_not_know_is_the_base_of_all() -> None:
    error = library.error_of({"kind": "OfALaterVersion", "subject": "a", "got": "b", "expected": "c", "next_step": "d"})
    assert (type(error).__name__, str(error)) == ("BespokeError", "a: got b; expected c. d.")


def test_a_core_without_its_library_says_what_to_run(fake_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_loaded", None)  # as in a process that has loaded none
    with pytest.raises(MissingDependency, match="Install bespoke-sdk again"):
        library.load()
    fake_core.with_name(library.Path(find().library or "").name).write_bytes(b"no library")
    with pytest.raises(MissingDependency, match="a library that cannot be used"):
        library.load()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["import torch", "from executorch.extension.pybindings import portable_lib", ""])
def test_the_library_loads_in_a_process_that_has_torch_and_executorch_too(first: str) -> None:
    """In any order: the library brings ExecuTorch's own libraries with it."""
    last = "import torch; from executorch.extension.pybindings import portable_lib"
    program = (
        f"{first}\nfrom bespoke.core import library\nprint(library.load().plain('bespoke_version').decode())\n{last}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (find().says["version"])
