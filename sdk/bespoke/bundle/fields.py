# SPDX-License-Identifier: Apache-2.0
"""Types of the manifest's fields, with their limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from bespoke.bundle.file_names import file_name_problem
from bespoke.config import as_tuple

__all__ = ["MAX_COUNT", "Bytes", "ElementType", "FileName", "Name", "OptionValue", "Range", "Sha256", "Shape"]

MAX_COUNT = 2**53  # the largest integer that every JSON reader keeps exactly


def _file_name(name: str) -> str:
    problem = file_name_problem(name)
    if problem:
        raise ValueError(f"the name is {problem}")
    return name


def _printable(text: str) -> str:
    if not text.isprintable():  # a name ends up on somebody's terminal
        raise ValueError("the text has control characters")
    return text


FileName = Annotated[str, AfterValidator(_file_name)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_printable)]
Bytes = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Range = Annotated[
    tuple[Annotated[int, Field(ge=0, le=MAX_COUNT)], ...], Field(min_length=2, max_length=2), BeforeValidator(as_tuple)
]
Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_COUNT)], ...], Field(max_length=8), BeforeValidator(as_tuple)]
ElementType = Literal["float32", "float16", "uint8", "int32", "int64"]
OptionValue = bool | int | float | Annotated[str, Field(max_length=4096)] | None
