# SPDX-License-Identifier: Apache-2.0
"""C++ text for the core from the SDK's types: enumerations, and the fields of Training, reports and records."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from record_schemas import RECORDS, file_name

from bespoke.bundle.manifest import BEFORE, TextRecord
from bespoke.bundle.target_records import TensorRecord
from bespoke.config import Schedule, Training
from bespoke.core.reports import fields_of_the_core
from bespoke.golden.document import GradientSource
from bespoke.plan.instructions import DType, Instruction, Lifetime, Place, Result, Role, SectionName
from bespoke.rules.batches import Source
from bespoke.rules.noise import Distribution, Stream
from bespoke.rules.records import AdapterFormat, AnswerEnd, FederationStep, NotMeasured
from bespoke.rules.report import (
    Evaluation,
    JudgedOn,
    MemoryReport,
    Phase,
    RefusedBecause,
    Stage,
    StoppedBecause,
    TrainReport,
    UncheckedBecause,
)
from bespoke.rules.verification import PassedCheck, VerifyReport

LICENCE = "// SPDX-License-Identifier: Apache-2.0\n"
PLAIN = {int: "int64_t", float: "double", bool: "bool", str: "std::string"}


def field_type(owner: Any, name: str) -> Any:
    return get_type_hints(owner)[name]


def kinds(union: Any, tag: str) -> tuple[str, ...]:
    """The tags of a discriminated union, in its order."""
    members = get_args(get_args(union)[0])  # Annotated[A | B, Field(discriminator=...)]
    return tuple(text for member in members for text in get_args(field_type(member, tag)))


# Name in C++ -> names in the SDK. int32 appears in bundles; no plan value has it.
ENUMS: dict[str, tuple[str, ...]] = {
    "DType": tuple(dict.fromkeys((*get_args(DType), *get_args(field_type(TensorRecord, "dtype"))))),
    "Role": get_args(Role),
    "Lifetime": get_args(Lifetime),
    "PlaceKind": kinds(Place, "kind"),
    "Op": kinds(Instruction, "op"),
    "How": get_args(field_type(Result, "how")),
    "Section": get_args(SectionName),
    "Distribution": get_args(Distribution),
    "Source": get_args(Source),
    "Schedule": get_args(Schedule),
    "TrainOn": get_args(field_type(TextRecord, "train_on")),
    "GradientKind": get_args(field_type(GradientSource, "kind")),
    "Stage": get_args(Stage),
    "Phase": get_args(Phase),
    "JudgedOn": get_args(JudgedOn),
    "Stopped": get_args(StoppedBecause),
    "Refused": get_args(RefusedBecause),
    "Unchecked": get_args(UncheckedBecause),
    "AnswerEnd": get_args(AnswerEnd),
    "FederationStep": get_args(FederationStep),
    "NotMeasured": get_args(NotMeasured),
    "AdapterFormat": get_args(AdapterFormat),
}


def enums() -> str:
    """The enumerations, each with its names in order, and a function that returns the names of a type."""
    head = LICENCE + "// Written by tools/write_schemas.py from the types of sdk/bespoke.\n"
    streams = braced(
        "enum class Stream : uint32_t", [f"{stream.name.lower()} = {stream.value:#x}" for stream in Stream]
    )
    return head + "\n".join([*(enumeration(name, values) for name, values in ENUMS.items()), streams])


def enumeration(name: str, values: tuple[str, ...]) -> str:
    return (
        braced(f"enum class {name} : uint8_t", values)
        + braced(f"inline constexpr const char* k{name}Names[] =", [f'"{value}"' for value in values])
        + f"constexpr const auto& names_of({name}) {{ return k{name}Names; }}\n"
    )


def braced(head: str, values: Sequence[str]) -> str:
    """The values in braces, on a single line if they fit, otherwise four a line."""
    line = f"{head} {{{', '.join(values)}}};\n"
    lines = [", ".join(values[first : first + 4]) for first in range(0, len(values), 4)]
    return line if len(line) <= 120 else f"{head} {{\n    " + ",\n    ".join(lines) + "};\n"


def training() -> str:
    """A line for each field of Training: BESPOKE_FIELD(name, type).

    A field that older documents lack is BESPOKE_LATER_FIELD(name, type, value), with its value in those documents.
    """
    old_values = {path.rpartition(".")[2]: value for path, value in BEFORE.items()}
    lines = ""
    for name in Training.model_fields:
        kind = cpp_type(field_type(Training, name))
        if name in old_values:
            value = "std::nullopt" if old_values[name] is None else old_values[name]
            lines += f"BESPOKE_LATER_FIELD({name}, {kind}, {value})\n"
        else:
            lines += f"BESPOKE_FIELD({name}, {kind})\n"
    return f"{LICENCE}// Written by tools/write_schemas.py from Training of sdk/bespoke/config.py.\n{lines}"


def cpp_type(kind: Any) -> str:
    """The C++ type of an annotation. Raises TypeError for a type that the core does not have yet."""
    if kind in PLAIN:
        return PLAIN[kind]
    if get_origin(kind) is Literal:
        names = [name for name, values in ENUMS.items() if values == get_args(kind)]
        if len(names) == 1:
            return names[0]
    elif get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        return f"std::vector<{cpp_type(get_args(kind)[0])}>"
    elif get_origin(kind) in (Union, types.UnionType) and get_args(kind)[1:] == (type(None),):
        return f"std::optional<{cpp_type(get_args(kind)[0])}>"
    raise TypeError(f"no type of the core for {kind}")


def filled(kind: type, module: str) -> str:
    """A line BESPOKE_FIELD(name) for each field of a report or record that the core fills."""
    lines = "".join(f"BESPOKE_FIELD({name})\n" for name in fields_of_the_core(kind))
    return (
        f"{LICENCE}// Written by tools/write_schemas.py from {kind.__name__} of sdk/bespoke/rules/{module}.py.\n{lines}"
    )


def tables() -> dict[str, str]:
    """File name -> contents."""
    return {
        "enums.inc": enums(),
        "training.inc": training(),
        **{f"{file_name(kind)}.inc": filled(kind, "report") for kind in (TrainReport, MemoryReport, Evaluation)},
        **{f"{file_name(kind)}.inc": filled(kind, "verification") for kind in (PassedCheck, VerifyReport)},
        **{f"{file_name(kind)}.inc": filled(kind, "records") for kind in RECORDS},
    }
