# SPDX-License-Identifier: Apache-2.0
"""Every dotted name in docstrings, comments and pages is one that the code has: a module, or an attribute where it is defined."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable
from functools import cache
from types import ModuleType

import pytest
from tools.count_words import PYTHON, Place, comments, docstrings, pages, sources

from tests.conftest import REPOSITORY

# `bespoke.plan.verify` anywhere, and in backticks `plan.verify`, `Budget.memory_mb` or `model.train()`.
ABSOLUTE = re.compile(r"(?<![\w./@-])(bespoke(?:_plugins)?(?:\.\w+)+)")
IN_BACKTICKS = re.compile(r"`([a-zA-Z_]\w*(?:\.\w+)+)(?:\([^`]*\))?`")
FILES = ("h", "json", "safetensors", "toml", "zip")  # endings of files' names
# Variables that pages and docstrings call so, and their classes; `examples` is an `Examples` without being listed.
VARIABLES = {
    "model": ("bespoke.PersonalModel", "bespoke.model.spec.ModelSpec"),
    "model.examples": ("bespoke.examples.Examples",),
    "model.federation": ("bespoke.participation.Participation",),
    "federation": ("bespoke.bundle.federation_record.FederationRecord", "bespoke.participation.Participation"),
}
OTHER_THINGS = {
    "examples.key": "a column of a state's database",
    "examples.tokens": "a column of a state's database",
    "Job.cancel": "of Kotlin's coroutines",
    "model.language_model": "the beginning of tensors' names",
}


@cache
def classes() -> dict[str, list[str]]:
    """Modules of the SDK and the plugins by the name of a class that they define."""
    modules: dict[str, list[str]] = {}
    for file, text in sources(("sdk", "plugins")):
        module = ".".join(file.removesuffix(".py").removesuffix("/__init__").split("/")[1:])
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            modules.setdefault(name, []).append(module)
    return modules


@cache
def layers() -> set[str]:
    """Names of the modules and packages right below `bespoke`."""
    return {path.stem for path in (REPOSITORY / "sdk" / "bespoke").iterdir() if not path.name.startswith("_")}


@cache
def members_in_other_languages() -> set[str]:
    """Functions and properties of the bindings for Kotlin and Swift."""
    bindings = REPOSITORY / "bindings"
    sources = [*(bindings / "kotlin").rglob("*.kt"), *(bindings / "swift" / "Sources").rglob("*.swift")]
    declared = r"\b(?:fun|func|va[lr]|let|case) (\w+)"
    return {name for path in sources for name in re.findall(declared, path.read_text(encoding="utf-8"))}


@cache
def resolves(name: str) -> bool:
    """Whether an absolute name is a module, or an attribute of the module that defines it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return _has(module, parts[length:])
    return False


def _has(holder: object, names: list[str]) -> bool:
    for name in names:
        if hasattr(holder, name):
            value = getattr(holder, name)
            if isinstance(holder, ModuleType) and not _is_of(holder, name, value):
                return False
            holder = value
            continue
        # A field without a default, or what a method assigns: no more can be known of either.
        return (
            name == names[-1]
            and isinstance(holder, type)
            and (
                any(name in vars(kind).get("__annotations__", {}) for kind in holder.__mro__)
                or f"self.{name}" in inspect.getsource(holder)
            )
        )
    return True


def _is_of(module: ModuleType, name: str, value: object) -> bool:
    """Whether a module defines or exports this name, and not only imports it for its own use."""
    defined = (
        getattr(value, "__module__", module.__name__) if inspect.isclass(value) or inspect.isfunction(value) else None
    )
    return defined in (None, module.__name__) or hasattr(module, "__path__") or name in getattr(module, "__all__", ())


def is_known(name: str) -> bool:
    """Whether a name in backticks is one of the code, or none that the code could have."""
    first, *rest = name.split(".")
    if name in OTHER_THINGS or rest[-1] in FILES or first in ("bespoke", "bespoke_plugins"):
        return True  # absolute names are looked at as such
    readings = [f"{module}.{name}" for module in classes().get(first, ())]
    for variable, kinds in VARIABLES.items():
        if name.startswith(f"{variable}."):
            readings += [f"{kind}.{name.removeprefix(f'{variable}.')}" for kind in kinds]
    if first in layers():
        readings += [f"bespoke.{name}", f"bespoke.{first}.{first.title()}.{'.'.join(rest)}"]
    return not readings or any(map(resolves, readings)) or (len(rest) == 1 and rest[0] in members_in_other_languages())


def is_operator(name: str) -> bool:
    """Whether the name is one of our operators, as torch calls them."""
    import torch

    importlib.import_module("bespoke.ops.int4")  # registers them

    return name.startswith("bespoke.") and hasattr(torch.ops.bespoke, name.removeprefix("bespoke."))


def stale(places: Iterable[Place]) -> list[str]:
    """The names of these texts that the code does not have, with their places."""
    wrong = []
    for place in places:
        absolute = [name for name in ABSOLUTE.findall(place.text) if name.split(".")[-1] not in FILES]
        names = [name for name in absolute if not resolves(name) and not is_operator(name)]
        names += [name for name in IN_BACKTICKS.findall(place.text) if not is_known(name)]
        wrong += [f"{place.file}:{place.line}: {name}" for name in names]
    return wrong


def test_every_name_in_a_docstring_or_a_comment_is_one_of_the_code() -> None:
    files = list(sources(PYTHON))
    written = [place for file in files for place in (*docstrings(*file), *comments(*file))]
    assert len(written) > 2000
    assert stale(written) == []


def test_every_name_on_a_page_is_one_of_the_code() -> None:
    """The changelog aside, which also names what is gone."""
    assert stale(Place(page, 1, text) for page, text in pages().items() if page != "docs/changelog.md") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("See bespoke.plan.rules.", "bespoke.plan.rules"),
        ("as `plan.rules` allows", "plan.rules"),
        ("by `plan.compile.Speed`", "plan.compile.Speed"),
        ("`Budget.memory_gb` is the limit", "Budget.memory_gb"),
        ("call `model.study()`", "model.study"),
        ("call `model.examples.learn(example)`", "model.examples.learn"),
        ("the operator `bespoke.linear_int5`", "bespoke.linear_int5"),
        ("`Personalizer.build.steps`", "Personalizer.build.steps"),
    ],
)
def test_a_name_that_is_gone_is_found(text: str, name: str) -> None:
    assert stale([Place("page.md", 3, text)]) == [f"page.md:3: {name}"]


@pytest.mark.parametrize(
    "text",
    [
        "bespoke.plan.verify and `plan.verify`",
        "`bespoke.Budget`, `Budget.memory_mb`, `bespoke.linear_int4`",
        "`model.examples.add(example, id=...)`, `model.train(run_steps=50)`, `examples.forget`",
        "`TrainReport.peak_bytes`, `LearningStatus.Waiting` of Kotlin, `manifest.json`, `bundle.zip`",
    ],
)
def test_names_of_the_code_and_of_other_languages_pass(text: str) -> None:
    assert stale([Place("page.md", 1, text)]) == []
