# SPDX-License-Identifier: Apache-2.0
"""A bundle of two small pieces with a federation, written by hand: no model is built and no graph is traced."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.federation_key import PRIVATE
from tests.unit.bundle.example import groups, manifest_document

from bespoke.bundle.manifest import Manifest
from bespoke.bundle.signature import public_key_of
from bespoke.bundle.writer import BundleWriter
from bespoke.format.tensors import write_arrays
from bespoke.rules.noise import noise

PIECES = {"block_00.q_proj.lora_B": (8, 2), "block_00.v_proj.lora_B": (4, 2)}
CODE_BYTES = 12  # of a column of guidance: two codes each
SEED = 7


def write_bundle(
    folder: Path, *, clip: float = 1.0, noise: float = 1.0, budget: float | None = 4.0, probed_columns: int = 0
) -> Path:
    """A bundle whose method steps along noise, and along one column of guidance where there are some.

    Plans and graphs hold what the server reads and nothing else.
    """
    document = manifest_document()
    graphs = {name: _graph(name, shape) for name, shape in PIECES.items()}
    document["graphs"] = [*document["graphs"], *graphs.values()]
    document["federation"] = {
        "task": "words",
        "server_key": public_key_of(PRIVATE).hex(),
        "method": "mesp",
        "seed": SEED,
        "clip": clip,
        "noise": noise,
        "budget": budget,
    }
    target = document["targets"][0]
    for graph in graphs.values():
        artifact = {**target["artifacts"][1], "graph": graph["key"], "operands": ["theta", "z", "c"]}
        target["artifacts"].append(artifact)
    with BundleWriter(folder) as writer:
        for name, arrays in groups().items():
            write_arrays(writer.path_for(name), arrays)
        plan = json.dumps(_plan(graphs, probed_columns)).encode()
        for name in _other_files(document):
            writer.add_bytes(name, plan if name == "plans/mesp_16.json" else b"{}\n")
        return writer.finish(Manifest.model_validate_json(json.dumps(document)))


def initial_pieces() -> dict[str, np.ndarray]:
    adapter = groups()["adapter/initial.safetensors"]
    return {name: adapter[name] for name in PIECES}


def _other_files(document: dict[str, Any]) -> list[str]:
    names = ["plans/mesp_16.json", "plans/generation.json", "plans/mesp_16-0.5mb.json", "plans/generation-0.5mb.json"]
    names += ["graphs/scale.json", "graphs/cuda/scale.json", "graphs/cuda/scale-block_00.json"]
    names += [f"text/{name}" for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.bin", "turns.json")]
    return [*names, *document["licences"]]


def _graph(name: str, shape: tuple[int, ...]) -> dict[str, Any]:
    def tensor(label: str, size: tuple[int, ...], role: str) -> dict[str, Any]:
        return {"name": label, "shape": list(size), "dtype": "float32", "role": role}

    inputs = [tensor("theta", shape, "adapter"), tensor("z", shape, "temporary"), tensor("c", (), "scalar")]
    outputs = [tensor("result_0", shape, "temporary")]
    key = hashlib.sha256(name.encode()).hexdigest()
    return {"key": key, "name": "stepped", "file": "graphs/scale.json", "inputs": inputs, "outputs": outputs}


def _plan(graphs: dict[str, Any], columns: int) -> dict[str, Any]:
    values: list[dict[str, Any]] = []

    def value(shape: tuple[int, ...], role: str, lifetime: str, place: dict[str, Any], dtype: str = "float32") -> int:
        values.append({"shape": list(shape), "dtype": dtype, "role": role, "lifetime": lifetime, "place": place})
        return len(values) - 1

    def arena(shape: tuple[int, ...], offset: int) -> int:
        return value(shape, "temporary", "section", {"kind": "arena", "offset": offset})

    def scalar(name: str, dtype: str = "float32") -> int:
        return value((), "scalar", "call", {"kind": "named", "name": name}, dtype)

    pieces = {name: value(s, "adapter", "state", {"kind": "named", "name": name}) for name, s in PIECES.items()}
    coefficient, rate, direction = scalar("coefficient"), scalar("learning_rate"), scalar("direction", "int64")

    def steps(size: int, query: Any) -> list[dict[str, Any]]:
        section: list[dict[str, Any]] = []
        for number, (name, shape) in enumerate(PIECES.items()):
            z, new = arena(shape, 0), arena(shape, 256)
            counter = {"query": query, "block": 0, "tensor": 2 * number + 1, "distribution": "rademacher"}
            section.append({"op": "noise", "value": z, **counter})
            operands, result = [[pieces[name]], [z], [size]], {"to": [new], "how": "make"}
            section.append({"op": "call", "graph": number, "operands": operands, "results": [result]})
            section.append({"op": "free", "value": z, "group": None})
            section.append({"op": "store", "state": pieces[name], "source": [new]})
            section.append({"op": "free", "value": new, "group": None})
        return section

    received: list[dict[str, Any]] = []
    for kind, shape, dtype in (("codes", (CODE_BYTES, columns), "uint8"), ("scales", (len(PIECES),), "float32")):
        if columns:
            place = {"kind": "arena", "offset": 512 if kind == "codes" else 1024}
            at = value(shape, "received", "section", place, dtype)
            received.append({"op": "receive", "value": at, "name": f"guidance.block_00.{kind}"})
            received.append({"op": "free", "value": at, "group": None})
    sum_, sent = arena((), 0), value((), "recorded", "section", {"kind": "arena", "offset": 64})
    measure = [
        {"op": "zero", "value": sum_},
        {"op": "record", "source": sum_, "value": sent},
        {"op": "free", "value": sum_, "group": None},
        {"op": "send", "source": sent},
        {"op": "free", "value": sent, "group": None},
    ]
    sections = {
        "federated_apply": [*received, *steps(coefficient, [0, direction])],
        "federated_measure": measure,
        "train_step": steps(rate, 0),
    }
    memory = manifest_document()["methods"][0]["plans"][0]["estimate"]
    refs = [{"key": g["key"], "name": "stepped", "workspace_bytes": 0, "engine_bytes": 0} for g in graphs.values()]
    head = {"version": [1, 2], "method": "mesp", "sequence_length": 16, "batch_size": 1, "replayable": False}
    return {**head, "choices": {}, "estimate": memory, "graphs": refs, "values": values, "sections": sections}


def by_hand(coefficients: list[list[float]], half: int = 0) -> str:
    """The hash of the adapter after these rounds, by the formula."""
    pieces = {name: piece.copy() for name, piece in initial_pieces().items()}
    for number, of_round in enumerate(coefficients, 1):
        for place, name in enumerate(PIECES):
            for direction, c in enumerate(of_round):
                counter = {"seed": SEED, "step": number, "query": direction, "block": 0, "tensor": 2 * place + 1}
                z = noise(PIECES[name], distribution="rademacher", **counter)
                pieces[name] = pieces[name] - np.float32(c) * z
            if half and number % half == 0:
                pieces[name] = pieces[name].astype(np.float16).astype(np.float32)
    return hashlib.sha256(b"".join(pieces[name].tobytes() for name in sorted(pieces))).hexdigest()
