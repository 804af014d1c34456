# SPDX-License-Identifier: Apache-2.0
"""The how-to pages for authors of plugins: their Python runs, and the names that they list are those that there are."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

from bespoke.contracts import Target
from tests.conftest import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how_to"
PAGES = ("write_an_optimizer.md", "write_a_target.md")


def files(page: str) -> dict[str, str]:
    """The Python of a page, by the file name in the first line of each block."""
    blocks = re.findall(r"```python\n(.*?)```", (HOW_TO / page).read_text(encoding="utf-8"), re.DOTALL)
    names = [re.match(r"# file: (\w+\.py)\n", block) for block in blocks]
    assert all(names), "every block of Python says which file it is"
    return {name.group(1): block for name, block in zip(names, blocks, strict=True) if name}


def count_of_tests(texts: dict[str, str]) -> int:
    count = sum(text.count("\ndef test_") for text in texts.values())
    assert count >= 2
    return count


@pytest.mark.slow  # the suites that it runs are those of test_plugins.py
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = files(page)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    modules = [name.removesuffix(".py") for name in texts]
    try:
        tests = importlib.import_module(next(name for name in modules if name.startswith("test_")))
        ran = [getattr(tests, name)() for name in dir(tests) if name.startswith("test_")]
    finally:
        for module in modules:
            sys.modules.pop(module, None)
    assert len(ran) == count_of_tests(texts)


def hooks() -> str:
    """The table of a target's hooks, from the source of the class: what each is, when it is called, its default."""
    (target,) = ast.parse(inspect.getsource(Target)).body
    assert isinstance(target, ast.ClassDef)
    rows = ["| hook | what it is | when it is called | default |", "|---|---|---|---|"]
    for statement, following in zip(target.body, [*target.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            assert isinstance(following, ast.Expr)
            hook, text = ast.unparse(statement.target), ast.literal_eval(following.value)
        elif isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            arguments = ", ".join(argument.arg for argument in statement.args.args[1:])
            hook, text = f"{statement.name}({arguments})", ast.get_docstring(statement)
        else:
            continue
        what, *when, default = (" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n"))
        assert default.startswith("Default: "), hook
        rows.append(f"| `{hook}` | {what} | {' '.join(when)} | {default.removeprefix('Default: ')} |")
    return "\n".join(rows)


def test_the_table_of_hooks_is_that_of_the_class() -> None:
    page = (HOW_TO / "write_a_target.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- hooks -->\n(.*?)\n<!-- /hooks -->", page, re.DOTALL)
    assert table == hooks()
    assert (
        table.count("\n| `")
        == len([name for name in Target.__dict__.keys() | Target.__annotations__.keys() if name[0] != "_"]) - 1
    )
