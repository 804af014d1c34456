# SPDX-License-Identifier: Apache-2.0
"""Writes what other languages' readers are made from: the schemas of plan and manifest, and the table of what a plan may hold."""

from __future__ import annotations

import json
from pathlib import Path

from bespoke.bundle.manifest_document import manifest_schema
from bespoke.plan.instructions import Plan
from bespoke.plan.kinds import rules_document

FOLDER = Path(__file__).resolve().parents[1] / "bindings" / "schema"


def schemas() -> dict[str, str]:
    """File name -> contents."""
    documents = {
        "plan.schema.json": Plan.model_json_schema(),
        "manifest.schema.json": manifest_schema(),
        "plan_rules.json": rules_document(),
    }  # fmt: skip
    return {name: json.dumps(document, indent=2, sort_keys=True) + "\n" for name, document in documents.items()}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name)
