# SPDX-License-Identifier: Apache-2.0
"""The layout of the C API as a compiler has it: sizes, offsets, values of enums and macros, and the functions.

    python -m tests.native.c_layout [COMPILER]

prints it. bindings/native/include/layout.txt keeps it: what stands there holds for as long as the major version does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import c_header

KEPT = c_header.INCLUDE / "layout.txt"
_STRUCT = re.compile(r"typedef struct (bespoke_\w+) \{(.*?)\n\} \1;", re.DOTALL)
_ENUM = re.compile(r"BESPOKE_ENUM\((bespoke_\w+)\)\s*\{(.*?)\};", re.DOTALL)
_MACRO = re.compile(r"^#define (BESPOKE_[A-Z_]+) +\d+$", re.MULTILINE)


def layout(compiler: str = "cc") -> str:
    """The layout of a 64-bit machine, a line for each fact."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "layout.c", Path(folder) / "layout"
        source.write_text(_program())
        flags = ["-std=c11", "-w", "-I", str(c_header.INCLUDE)]
        subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return printed + "".join(f"function {line}\n" for line in sorted(_functions()))


def _program() -> str:
    text = c_header.declarations()
    lines = []
    for struct, body in _STRUCT.findall(text):
        lines.append(f'printf("struct {struct} %zu\\n", sizeof({struct}));')
        for field in _fields(body):
            size = f"sizeof((({struct} *)0)->{field})"
            lines.append(f'printf("  {field} at %zu, %zu bytes\\n", offsetof({struct}, {field}), {size});')
    for enum, body in _ENUM.findall(text):
        lines.append(f'printf("enum {enum} %zu\\n", sizeof({enum}));')
        lines += [f'printf("  {name} %d\\n", (int){name});' for name in re.findall(r"\b(BESPOKE_\w+)\b", body)]
    lines += [f'printf("macro {name} %d\\n", {name});' for name in _MACRO.findall(text)]
    body = "\n".join(f"  {line}" for line in lines)
    return f'#include <stdio.h>\n#include "bespoke.h"\n\nint main(void) {{\n{body}\n  return 0;\n}}\n'


def _fields(body: str) -> list[str]:
    """Names of a struct's fields, several of a line and pointers to functions too."""
    fields: list[str] = []
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        pointer = re.search(r"\(\*(\w+)\)", declaration)
        fields += [pointer[1]] if pointer else re.findall(r"\**(\w+)(?=,|$)", declaration)
    return fields


def _functions() -> list[str]:
    declared = re.findall(r"^BESPOKE_(?:API|CHECKED) ([^;]*);", c_header.declarations(), re.MULTILINE)
    return [" ".join(each.split()) for each in declared]


if __name__ == "__main__":
    print(layout(*sys.argv[1:2]), end="")
