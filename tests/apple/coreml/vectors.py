# SPDX-License-Identifier: Apache-2.0
"""Golden vectors for Apple's runtime: specs, what goes in as features, and what torch says comes out.

    python -m tests.apple.coreml.vectors FOLDER [int32|int8] [fp32|fp16]

writes FOLDER/index.json and raw little-endian files; `on_a_mac/run_vectors.swift` runs them. Nobody has run that yet.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bespoke import plugins
from bespoke.errors import Unsupported
from bespoke_plugins.targets.coreml.mil import Feature, read_spec
from tests.apple.coreml.graphs import Recorded, recorded


def write_vectors(folder: Path, cases: Recorded, **options: Any) -> int:
    """How many graphs were written: those that the target takes with these options."""
    from bespoke_plugins.targets.coreml.features import Feature as Crossing
    from bespoke_plugins.targets.coreml.features import to_feature

    target = plugins.get("target", "coreml")
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for graph, operands in cases.values():
        try:
            path = target.lower(graph, folder, target.Options(**options)).path
        except Unsupported:  # a backward pass in fp16
            continue
        spec, results = read_spec(path), graph.module(*operands)

        def written(feature: Feature, array: np.ndarray, stem: str = path.stem) -> dict[str, Any]:
            file = f"{stem}.{feature.name}.bin"
            (folder / file).write_bytes(np.ascontiguousarray(array).tobytes())
            return {"name": feature.name, "shape": list(feature.type.shape), "dtype": feature.type.dtype, "file": file}

        inputs = [
            written(
                one, to_feature(Crossing.described(one.name, one.type.shape, one.type.dtype, one.description), operand)
            )
            for one, operand in zip(spec.inputs, operands, strict=True)
        ]
        kinds = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32}
        outputs = [
            written(one, result.numpy().astype(kinds[one.type.dtype]).reshape(one.type.shape))
            for one, result in zip(spec.outputs, results, strict=True)
        ]
        index.append({"graph": graph.name, "spec": path.name, "inputs": inputs, "outputs": outputs})
    (folder / "index.json").write_text(json.dumps(index, indent=1))
    return len(index)


if __name__ == "__main__":
    weights, precision = [*sys.argv[2:], *("int32", "fp32")[len(sys.argv) - 2 :]]
    methods = ["mesp", "mezo"] if precision == "fp32" else ["mezo"]
    print(write_vectors(Path(sys.argv[1]), recorded(methods), weights=weights, precision=precision), "graphs")
