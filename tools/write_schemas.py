# SPDX-License-Identifier: Apache-2.0
"""Writes what other languages share: schemas of plan and manifest, what a plan may hold, kinds of errors, enumerations, fields."""

from __future__ import annotations

import json
from pathlib import Path

from cpp_tables import LICENCE, tables

from bespoke import errors
from bespoke.bundle.manifest_document import manifest_schema
from bespoke.plan.instructions import Plan
from bespoke.plan.kinds import rules_document

# What the core raises: its name there, and the class. `Internal` is a defect of the core.
CORE_ERRORS = {
    "Config": errors.ConfigError, "Data": errors.DataError, "Plan": errors.PlanError, "Bundle": errors.BundleError,
    "BundleVersion": errors.BundleVersionError, "Signature": errors.SignatureError, "Golden": errors.GoldenMismatch,
    "State": errors.StateError, "StateLocked": errors.StateLocked, "DiskFull": errors.DiskFull, "Budget": errors.BudgetExceeded,
    "Adapter": errors.AdapterError, "Unsupported": errors.Unsupported, "MissingDependency": errors.MissingDependency,
    "Internal": errors.BespokeError,
}  # fmt: skip
FOLDER = Path(__file__).resolve().parents[1] / "bindings" / "schema"


def schemas() -> dict[str, str]:
    """File name -> contents."""
    documents = {
        "plan.schema.json": Plan.model_json_schema(),
        "manifest.schema.json": manifest_schema(),
        "plan_rules.json": rules_document(),
    }  # fmt: skip
    texts = {name: json.dumps(document, indent=2, sort_keys=True) + "\n" for name, document in documents.items()}
    return {**texts, **tables(), "error_kinds.inc": error_kinds()}


def error_kinds() -> str:
    """For C++: BESPOKE_ERROR(kind, name of the Python class, exit code of the command line), one a line."""
    head = LICENCE + "// Written by tools/write_schemas.py from sdk/bespoke/errors.py.\n"
    return head + "".join(f'BESPOKE_ERROR({kind}, "{error.__name__}", {error.exit_code})\n' for kind, error in CORE_ERRORS.items())


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
