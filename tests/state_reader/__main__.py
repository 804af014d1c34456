# SPDX-License-Identifier: Apache-2.0
"""Reads a user's state without any code of bespoke and checks what docs/reference/state_format.md promises of it.

    python tests/state_reader FOLDER [--bundle FOLDER] [--forgotten TEXT ...] [--json]

It is the oracle of the store: written from the page, with the standard library, in a process of its own that changes nothing in the
folder. Prints what the state holds, a digest by which two states can be compared, and each broken promise; ends with 1 if there is
one. `--bundle` adds what only the bundle knows: base, pieces of the adapter, what methods keep, number of token ids, longest row.
`--forgotten` takes texts, or JSON lists of token ids, of which no byte may be left.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
from pathlib import Path
from typing import Any

from content import summary
from database import FILE, check_database, opened, version_of
from examples import Limits, check_examples
from findings import Findings
from forgotten import check_forgotten
from runs import check_answers, check_judgements, check_losses, check_runs
from tensors import NAME, Shapes, check_folder, check_tensor_files, tensor_places


def read(folder: Path, bundle: Path | None, forgotten: list[str]) -> dict[str, Any]:
    findings = Findings()
    found: dict[str, Any] = {"made": False}
    if not _made(folder):
        # A process that is killed while it makes the database leaves nothing that counts: the next open begins again.
        left = check_folder(folder, {f"{FILE}-journal"}, findings)
        check_forgotten(None, folder, forgotten, findings)
        return {**found, "digest": "", "left": left, "broken": findings.broken}
    try:
        with opened(folder) as connection:
            if check_database(connection, findings):
                found = {"made": True, **summary(connection), "left": _check(connection, folder, bundle, findings)}
            check_forgotten(connection if "digest" in found else None, folder, forgotten, findings)
    except (sqlite3.Error, OSError) as error:
        findings.check(False, "readable", FILE, error)
    return {**found, "broken": findings.broken}


def _made(folder: Path) -> bool:
    lock = folder / "files.lock"
    tensor_files = [path for path in folder.iterdir() if NAME.fullmatch(path.name)]
    return bool(tensor_files) or (lock.is_file() and lock.stat().st_size > 0)


def _check(connection: sqlite3.Connection, folder: Path, bundle: Path | None, findings: Findings) -> list[str]:
    version, base, adapter = connection.execute("SELECT version, base_sha256, adapter FROM state").fetchone() or (
        0,
        "",
        "{}",
    )
    shapes: Shapes = {name: tuple(shape) for name, shape in findings.json_object(adapter, "state", "adapter").items()}
    findings.check(version == version_of(connection), "state", "version", version)
    if version > 1:
        (text,) = connection.execute("SELECT text FROM state").fetchone()
        findings.check(text is None or re.fullmatch("[0-9a-f]{64}", text), "state", "text", text)
    limits, kept = Limits(), {}
    if bundle is not None:
        limits, kept = _check_bundle(bundle, base, shapes, findings), kept_by_methods(bundle)
    check_examples(connection, limits, findings)
    check_runs(connection, findings)
    if version > 1:
        check_losses(connection, findings)
    if version > 2:
        check_judgements(connection, findings)
    if version > 4:
        check_answers(connection, findings)
    return check_folder(folder, check_tensor_files(connection, folder, shapes, kept, findings), findings)


def _check_bundle(bundle: Path, base: str, shapes: Shapes, findings: Findings) -> Limits:
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    findings.check(base == manifest["model"]["base_sha256"], "base", "base_sha256", base)
    places = tensor_places((bundle / manifest["adapter"]).read_bytes())
    pieces = {name: shape for name, (shape, _, _) in places.items()}
    findings.check(shapes == pieces, "shapes", "state.adapter", f"other pieces than {manifest['adapter']}")
    return Limits(int(manifest["model"]["config"]["vocab_size"]), max(manifest["sequence_lengths"]) + 1)


def kept_by_methods(bundle: Path) -> dict[str, Shapes]:
    """By the name of a method, names and shapes of what its plan calls state."""
    kept = {}
    for method in json.loads((bundle / "manifest.json").read_bytes())["methods"]:
        values = json.loads((bundle / method["plans"][0]["file"]).read_bytes())["values"]
        kept[method["name"]] = {v["place"]["name"]: tuple(v["shape"]) for v in values if v["lifetime"] == "state"}
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="state_reader", description="Check a user's state against the promises of its format."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--forgotten", action="extend", nargs="+", default=[], metavar="TEXT")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"{given.folder} is no folder")
    found = read(given.folder, given.bundle, given.forgotten)
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            if name != "broken":
                print(f"{name}: {value}")
        for one in found["broken"]:
            print(f"BROKEN {one['promise']}: {one['where']}: {one['got']}")
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
