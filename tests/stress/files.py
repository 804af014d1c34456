# SPDX-License-Identifier: Apache-2.0
"""The files of a stress as they lie there while nobody runs: read by plain SQLite in a process of its own, and as bytes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from tests.stress.bundles import NAMES
from tests.stress.oracle import Learned
from tests.support.reading import read_state, select_all

_PARTIAL = re.compile(r"\..*\.(partial|old)")
_TENSORS = {"peft": "adapter_model.safetensors", "mlx": "adapters.safetensors"}


def stored_examples(state: Path) -> dict[str, tuple[str, str]]:
    """id -> split, JSON."""
    (rows,) = select_all(state, "SELECT id, split, json FROM examples")
    return {id: (split, text) for id, split, text in rows}


def broken_tokens(state: Path) -> list[str]:
    """Rows whose token ids are not the bytes of a part of their example's words."""
    (rows,) = select_all(state, "SELECT id, json, r.tokens FROM example_rows r JOIN examples ON key = example")
    found = []
    for id, text, tokens in rows:
        example = json.loads(text)
        words = example.get("text") or example["prompt"] + example["completion"]
        numbers = struct.unpack(f"<{len(tokens) // 8}i", bytes.fromhex(tokens))
        said = bytes(number for number in numbers if number < 256).decode("utf-8", "replace")
        if said not in words:
            found.append(f"the row of {id} says {said!r}, its words are {words!r}")
    return found


def learned(state: Path) -> Learned:
    versions, runs, last = select_all(
        state,
        "SELECT id, run FROM versions",
        "SELECT id, step, ended_because, parent FROM runs",
        "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'versions'",
    )
    return Learned(dict(versions), {id: (step, ended, parent) for id, step, ended, parent in runs}, last[0][0])


def bundle_of(state: Path, bundles: Path) -> str:
    """Which of the two bundles the state is of."""
    ((base,),) = select_all(state, "SELECT base_sha256 FROM state")[0]
    bases = {
        json.loads((bundles / name / "manifest.json").read_bytes())["model"]["base_sha256"]: name for name in NAMES
    }
    return bases[base]


def promises(state: Path, bundle: Path) -> tuple[list[str], list[str], str]:
    """Broken ones, files that a killed process left, and a digest of what the state says."""
    found = read_state(state, bundle)
    return (
        [f"{one['promise']}: {one['where']}: {one['got']}" for one in found["broken"]],
        found["left"],
        found["digest"],
    )


def broken_exports(exports: Path) -> list[str]:
    """An exported adapter is whole or not there; beside it may lie what a killed process had begun."""
    found = []
    for folder in sorted(exports.iterdir()):
        if _PARTIAL.fullmatch(folder.name):
            continue
        try:
            kind = folder.name.partition("-")[0]
            if kind == "gguf":
                whole_gguf((folder / "adapter.gguf").read_bytes())
            else:
                json.loads((folder / "adapter_config.json").read_bytes())
                whole_tensors((folder / _TENSORS[kind]).read_bytes())
        except (OSError, ValueError, KeyError, struct.error) as error:
            found.append(f"export {folder.name} is not whole: {type(error).__name__}: {error}")
    return found


def whole_tensors(data: bytes) -> None:
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if not ends or 8 + length + max(ends) != len(data):
        raise ValueError(f"{len(data)} bytes, the header says {8 + length + max(ends, default=0)}")


def whole_gguf(data: bytes) -> None:
    if data[:4] != b"GGUF" or len(data) < 1000:
        raise ValueError(f"{len(data)} bytes that begin with {data[:4]!r}")
