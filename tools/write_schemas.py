# SPDX-License-Identifier: Apache-2.0
"""Writer of the files that other languages share: schemas, the rules of plans, kinds of errors, enumerations, fields, vectors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kotlin_types
import swift_types
from cpp_tables import LICENCE, tables
from record_schemas import bench_schema, record_schemas
from signed_request_vectors import vectors

from bespoke import errors
from bespoke.bundle.manifest_schema import manifest_schema
from bespoke.plan.instructions import Plan
from bespoke.plan.kinds import rules_document
from bespoke.rules.round_documents import DeviceDocument, RoundDocument
from bespoke.verbs import CAMEL_SETTINGS, VERB_OF

# The core's errors: name in C++ -> class. `Internal` is a defect of the core. The status in the C API is the position in this
# list, from 1 on: the list only grows.
CORE_ERRORS = {
    "Internal": errors.BespokeError,
    "Config": errors.ConfigError,
    "MissingDependency": errors.MissingDependency,
    "Data": errors.DataError,
    "Plan": errors.PlanError,
    "Unsupported": errors.Unsupported,
    "Bundle": errors.BundleError,
    "BundleVersion": errors.BundleVersionError,
    "Signature": errors.SignatureError,
    "Golden": errors.GoldenMismatch,
    "State": errors.StateError,
    "StateLocked": errors.StateLocked,
    "DiskFull": errors.DiskFull,
    "Budget": errors.BudgetExceeded,
    "Adapter": errors.AdapterError,
    "Busy": errors.Busy,
    "Cancelled": errors.Cancelled,
    "Unavailable": errors.Unavailable,
    "Generation": errors.GenerationError,
}
BINDINGS = Path(__file__).resolve().parents[1] / "bindings"
FOLDER = BINDINGS / "schema"
HEADER = BINDINGS / "native" / "include" / "bespoke_base.h"
KOTLIN = BINDINGS / "kotlin" / "core" / "src" / "main" / "kotlin" / "dev" / "bespoke"
SWIFT = BINDINGS / "swift" / "Sources" / "Bespoke" / "Written"
BEGIN, END = "    /* <statuses> */\n", "    /* </statuses> */\n"


def schemas() -> dict[str, str]:
    """File name -> contents."""
    documents = {
        "plan.schema.json": Plan.model_json_schema(),
        "manifest.schema.json": manifest_schema(),
        "plan_rules.json": rules_document(),
        "round_document.schema.json": RoundDocument.model_json_schema(),
        "device_document.schema.json": DeviceDocument.model_json_schema(),
        **record_schemas(),
        "bench_report.schema.json": bench_schema(),
    }
    texts = {name: json.dumps(document, indent=2, sort_keys=True) + "\n" for name, document in documents.items()}
    return {
        **texts,
        **tables(),
        "error_kinds.inc": error_kinds(),
        "verbs.inc": verbs(),
        "remedies.json": json.dumps(remedies(), indent=2) + "\n",
        "errors.json": json.dumps(error_table(), indent=2) + "\n",
        "signed_request_vectors.json": json.dumps(vectors(), indent=2) + "\n",
    }


def kotlin() -> dict[str, str]:
    """File name -> contents."""
    records, example = _records()
    return {
        "Records.kt": kotlin_types.records(records),
        "Example.kt": kotlin_types.example(example),
        "BespokeErrors.kt": kotlin_types.errors(error_table()),
        "Names.kt": kotlin_types.names(remedies()),
    }


def swift() -> dict[str, str]:
    """File name -> contents."""
    records, example = _records()
    return {
        "Records.swift": swift_types.records(records),
        "Example.swift": swift_types.example(example),
        "ErrorKinds.swift": swift_types.errors(error_table()),
        "Names.swift": swift_types.names(remedies()),
    }


def _records() -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The schemas of what comes out, and that of an example."""
    records = record_schemas()
    records.pop("error_references.schema.json")  # a binding reads them piece by piece
    return records, records.pop("example.schema.json")


def error_kinds() -> str:
    """Lines for C++: BESPOKE_ERROR(kind, name of the Python class, status in the C API)."""
    head = LICENCE + "// Written by tools/write_schemas.py from sdk/bespoke/errors.py.\n"
    rows = enumerate(CORE_ERRORS.items(), 1)
    return head + "".join(f'BESPOKE_ERROR({kind}, "{error.__name__}", {status})\n' for status, (kind, error) in rows)


def verbs() -> str:
    """For C++: BESPOKE_VERB(key, the first name in C or nothing, the name in Python), one a line."""
    head = LICENCE + "// Written by tools/write_schemas.py from sdk/bespoke/verbs.py.\n"
    names = remedies()["verbs"].items()
    return head + "".join(f'BESPOKE_VERB({key}, "{verb["c"] or ""}", "{verb["python"]}")\n' for key, verb in names)


def remedies() -> dict[str, dict[str, dict[str, str | None]]]:
    """For other languages: what errors call verbs and settings, by the names in `references` of an error. Other settings are called
    the same in all."""
    return {
        "verbs": {
            key: {
                "python": verb.full_python,
                "c": _first(verb.c),
                "kotlin": _first(verb.kotlin),
                "swift": _first(verb.swift),
            }
            for key, verb in sorted(VERB_OF.items())
            if key.isidentifier() and not key.startswith("_")
        },
        "settings": {name: {"kotlin": camel, "swift": camel} for name, camel in CAMEL_SETTINGS.items()},
    }


def _first(names: str | None) -> str | None:
    return None if names is None else names.partition(", ")[0]


def error_table() -> list[dict[str, object]]:
    """Table for other languages: each kind of error, its status and constant in the C API, its meaning."""
    return [
        {
            "kind": error.__name__,
            "status": status,
            "constant": constant(error),
            "means": str(error.__doc__).split("\n")[0],
        }
        for status, error in enumerate(CORE_ERRORS.values(), 1)
    ]


def constant(error: type[errors.BespokeError]) -> str:
    name = "InternalError" if error is errors.BespokeError else error.__name__
    return "BESPOKE" + re.sub(r"(?=[A-Z])", "_", name).upper()


def header() -> str:
    """bespoke_base.h with the current statuses."""
    before, rest = HEADER.read_text().split(BEGIN)
    after = rest.split(END)[1]
    rows = "".join(f"    {row['constant']} = {row['status']},\n" for row in error_table())
    return f"{before}{BEGIN}{rows}{END}{after}"


def write(path: Path, text: str) -> None:
    """Writes a file that differs: one that does not keeps its time, so that nothing is compiled again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        print(path)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        write(FOLDER / name, text)
    write(HEADER, header())
    for name, text in kotlin().items():
        write(KOTLIN / name, text)
    SWIFT.mkdir(parents=True, exist_ok=True)
    for name, text in swift().items():
        write(SWIFT / name, text)
