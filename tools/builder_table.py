# SPDX-License-Identifier: Apache-2.0
"""Writes the table of what the builder gives in docs/how_to/write_an_optimizer.md, from `StepBuilder` and `Value`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how_to" / "write_an_optimizer.md"
BEGIN, END = "<!-- builder -->\n", "<!-- /builder -->\n"


def table() -> str:
    """Rows in the order of the code: attributes and calls of the builder, then those of a value."""
    rows = [*_rows("b", StepBuilder), *_rows("value", Value)]
    lines = "".join(f"| `{call}` | {does} |\n" for call, does in rows)
    return f"| builder | gives or does |\n|---|---|\n{lines}"


def _rows(name: str, kind: type[Any]) -> list[tuple[str, str]]:
    members = {member: value for member, value in vars(kind).items() if not member.startswith("_")}
    documented = {member: inspect.getdoc(value) for member, value in members.items()}
    return [
        (f"{name}.{member}{_arguments(members[member])}", " ".join(doc.split("\n\n")[0].split()))
        for member, doc in documented.items()
        if doc
    ]


def _arguments(member: Any) -> str:
    """`(copies=1)`: names and defaults as one writes them, without types; nothing for an attribute."""
    if isinstance(member, property):
        return ""
    parameters = list(inspect.signature(member).parameters.values())[1:]
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return "(" + ", ".join(str(parameter).replace("'", '"') for parameter in plain) + ")"


def with_table(page: str) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
