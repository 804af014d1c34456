# SPDX-License-Identifier: Apache-2.0
"""Code blocks of a documentation page, and how they are run: from top to bottom, in one folder, as a reader would.

A comment on the line before a block says more about it: `<!-- not run: reason -->`, `<!-- slow -->` (only in the full run), or
`<!-- model -->` (makes the model that the page goes on with; a test puts another one there).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

_BLOCK = re.compile(
    r"(?:^<!-- (?P<comment>[^\n]*?) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """`line` is that of its first line of code on the page."""

    page: Path
    line: int
    language: str
    comment: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page, text.count("\n", 0, found.start("code")) + 1, found["language"], found["comment"] or "", found["code"]
        )
        for found in _BLOCK.finditer(text)
    ]


def run_page(
    page: Path,
    folder: Path,
    *,
    slow: bool = False,
    instead: Mapping[str, str] | None = None,
    make_model: Callable[[Path], None] | None = None,
    commands: bool = True,
) -> list[str]:
    """Runs the page in `folder`; returns what each block printed. AssertionError with the block's name where one fails.

    `instead` replaces text in blocks, each of which must be there; `make_model` stands for the block marked as `model`. Without
    `commands`, blocks that call `bespoke` are left out, each of which takes seconds to import torch.
    """
    left = dict(instead or {})
    namespace: dict[str, Any] = {}
    printed = []
    for block in blocks(page):
        if block.language not in ("bash", "python") or block.comment.startswith("not run"):
            continue
        if block.comment == "slow" and not slow:
            continue
        if block.language == "bash" and not commands and "bespoke " in block.code:
            continue
        if block.comment == "model" and make_model is not None:
            make_model(folder)
            continue
        code = block.code
        for old, new in (instead or {}).items():
            if old in code:
                code = code.replace(old, new)
                left.pop(old, None)
        printed.append(
            run_bash(block, code, folder) if block.language == "bash" else _python(block, code, folder, namespace)
        )
    assert not left, f"{page.name} no longer holds {list(left)}"
    return printed


def run_bash(block: Block, code: str, folder: Path) -> str:
    """What the commands of a block print. AssertionError with the block's name where one fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{block.name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _python(block: Block, code: str, folder: Path, namespace: dict[str, Any]) -> str:
    import contextlib
    import io

    before = Path.cwd()
    os.chdir(folder)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            # Blank lines in front give a traceback the page's line numbers.
            exec(compile("\n" * (block.line - 1) + code, str(block.page), "exec"), namespace)
    finally:
        os.chdir(before)
    return out.getvalue()
