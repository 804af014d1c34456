# SPDX-License-Identifier: Apache-2.0
"""Seeds of the fuzz targets (bindings/native/fuzz), out of small sound bundles: `python -m tests.native.fuzz_corpus FOLDER`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bespoke.format.tensors import write_arrays
from tests.unit.bundle.example import write_example
from tests.unit.format.tensor_files import ARRAYS, craft
from tests.unit.plan.broken import Sample
from tests.unit.plan.drafts import Draft, document_of

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("manifest", "plan", "schema", "safetensors")
# In the order of kDefinitions in bindings/native/fuzz/schema.cpp.
DEFINITIONS = [
    "Call",
    "Emit",
    "Estimate",
    "Free",
    "GraphRef",
    "Load",
    "Noise",
    "Record",
    "Store",
    "ValueRecord",
    "Zero",
    "",
    "GraphRecord",
    "MethodRecord",
    "ModelRecord",
    "TargetRecord",
    "TextRecord",
    "Training",
    "LoraRecord",
]


def write_corpus(folder: Path) -> dict[str, Path]:
    """A folder of seeds for each target, `words` for libFuzzer's -dict, and `manifest.json`, whose graphs the plans call."""
    with tempfile.TemporaryDirectory() as temporary:
        bundle = write_example(Path(temporary) / "a.bundle")
        manifest = json.loads((bundle / "manifest.json").read_bytes())
        seeds: dict[str, list[bytes]] = {target: [] for target in TARGETS}
        for name in sorted(manifest["files"]):
            if name.endswith(".safetensors"):
                seeds["safetensors"].append(compact((bundle / name).read_bytes()))
        write_arrays(Path(temporary) / "arrays", ARRAYS)
        seeds["safetensors"].append(compact((Path(temporary) / "arrays").read_bytes()))
        small = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"format": "np"}}
        seeds["safetensors"].append(craft(Path(temporary) / "small", small, bytes(8)).read_bytes())
    seeds["manifest"] += [json.dumps(manifest).encode(), json.dumps(manifest, indent=1, sort_keys=True).encode()]
    plans = [(draft, document) for draft, document in drafts()]
    seeds["plan"] += [json.dumps(document).encode() for _, document in plans]
    seeds["schema"] += list(pieces(manifest, [document for _, document in plans]))
    for target, documents in seeds.items():
        (folder / target).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(documents):
            (folder / target / f"seed_{number}").write_bytes(data)
    (folder / "manifest.json").write_bytes(json.dumps(with_graphs(manifest, [draft for draft, _ in plans])).encode())
    (folder / "words").write_text("".join(f'"{word}"\n' for word in sorted(words())), encoding="ascii")
    return {target: folder / target for target in TARGETS}


def compact(file: bytes) -> bytes:
    """The same tensors behind a header without 16 KB of padding."""
    size = 8 + int.from_bytes(file[:8], "little")
    header = file[8:size].rstrip(b" ")
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + file[size:]


def drafts() -> list[tuple[Draft, dict[str, Any]]]:
    """Plans with every instruction. Their graphs' keys differ, since one manifest has them all."""
    from tests.unit.plan.drafts import replayable

    sample = Sample()
    replay = replayable()
    accumulating = Draft(section="micro_step")
    gradient = accumulating.value((4, 2), "block_00.q_proj.lora_A.gradient", lifetime="step")
    loss = accumulating.make([[accumulating.batch()]])
    accumulating.call([[loss]], ([gradient], "add_to"))
    accumulating.emit_number("loss", loss)
    accumulating.section = "apply_step"
    adapter = accumulating.adapter("block_00.q_proj.lora_A")
    accumulating.store(adapter, [accumulating.make([[adapter], [gradient]])])
    made = []
    for number, draft in enumerate((sample.draft, replay, accumulating)):
        for graph in draft.plan.graphs:
            graph.key = f"{number}{graph.key[1:]}"
        made.append((draft, document_of(draft.compile())))
    return made


def with_graphs(manifest: dict[str, Any], of: list[Draft]) -> dict[str, Any]:
    def specs(given: Any) -> list[dict[str, Any]]:
        return [
            {"name": f"v{n}", "shape": list(spec.shape), "dtype": spec.dtype, "role": "temporary"}
            for n, spec in enumerate(given)
        ]

    file = manifest["graphs"][0]["file"]
    graphs = [
        {"key": graph.key, "name": "g", "file": file, "inputs": specs(graph.inputs), "outputs": specs(graph.outputs)}
        for draft in of
        for graph in draft.graphs
    ]
    return {**manifest, "graphs": [*manifest["graphs"], *graphs]}


def pieces(manifest: dict[str, Any], plans: list[dict[str, Any]]) -> Any:
    """One value of each definition, behind the byte that names it."""
    found: dict[str, Any] = {
        "GraphRecord": manifest["graphs"][0],
        "MethodRecord": manifest["methods"][0],
        "ModelRecord": manifest["model"],
        "TargetRecord": manifest["targets"][0],
        "TextRecord": manifest["text"],
        "Training": manifest["methods"][0]["training"],
        "LoraRecord": manifest["lora"],
    }
    for plan in plans:
        found |= {"Estimate": plan["estimate"], "GraphRef": plan["graphs"][0], "ValueRecord": plan["values"][0]}
        found |= {i["op"].capitalize(): i for code in plan["sections"].values() for i in code}
    for number, name in enumerate(DEFINITIONS):
        if name:
            yield bytes([number]) + json.dumps(found[name]).encode()
    count = len(DEFINITIONS) + 1
    whole = DEFINITIONS.index("")
    yield bytes([whole]) + json.dumps(manifest).encode()
    yield bytes([next(n for n in range(0x80, 256) if n % count == whole)]) + json.dumps(plans[0]).encode()


def words() -> set[str]:
    """Names of fields and their fixed values, as libFuzzer's dictionary writes a text within quotes."""
    found: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            found.update(part.get("properties", {}))
            found.update(value for value in part.get("enum", []) if isinstance(value, str))
            for inner in part.values():
                walk(inner)
        elif isinstance(part, list):
            for inner in part:
                walk(inner)

    for name in ("plan", "manifest"):
        walk(json.loads((ROOT / "bindings" / "schema" / f"{name}.schema.json").read_bytes()))
    return {rf"\"{word}\"" for word in found} | {"F32", "F16", "I64", "data_offsets", "dtype", "shape"}


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
