# SPDX-License-Identifier: Apache-2.0
"""Golden vectors for MLX on a Mac: a bundle for its processor, one for Metal, and a state with examples to train on.

    python -m tests.apple.mlx.vectors FOLDER

writes them on any machine that has the extra `mlx`; `on_a_mac/run_bundles.py` runs them. Nobody has run that on a Mac yet.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from tests.apple.mlx.bundles import METHODS, add_examples, build

METHOD, STEPS, SEED = "mesp", 5, 3
TARGETS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {"mlx": {"int4": "decode"}},
    "gpu": {"mlx": {"int4": "fused", "device": "gpu", "background": False}},
}


def write_vectors(folder: Path, targets: dict[str, dict[str, dict[str, Any]]] = TARGETS) -> None:
    """FOLDER/cpu.bundle and gpu.bundle, whose golden vectors `transformers` made; FOLDER/state; FOLDER/run.json: a run, and the
    losses of its steps in torch."""
    folder.mkdir(parents=True, exist_ok=True)
    for device, options in targets.items():
        made = build("qwen2", folder / device, options, {METHOD: METHODS[METHOD]})
        made.rename(folder / f"{device}.bundle")
        shutil.rmtree(folder / device)
    with PersonalModel.open(folder / "cpu.bundle", folder / "state", engine="torch") as model:
        add_examples(model)
    shutil.copytree(folder / "state", folder / "trained")
    with PersonalModel.open(folder / "cpu.bundle", folder / "trained", engine="torch") as model:
        losses = model.train(run_steps=STEPS, method=METHOD, seed=SEED).losses
    shutil.rmtree(folder / "trained")
    run = {"method": METHOD, "steps": STEPS, "seed": SEED, "losses": losses}
    (folder / "run.json").write_text(json.dumps(run, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write_vectors(Path(sys.argv[1]))
