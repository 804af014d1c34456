# SPDX-License-Identifier: Apache-2.0
"""A bundle for the example in C, and what the example prints with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from safetensors.numpy import load_file

from bespoke import Lora, Personalizer, Training
from tests.unit.golden.bundles import build


def example_bundle(place: Path) -> Path:
    """A bundle of a model with a tokenizer."""
    build(place, "llama", "mezo", text=True)
    training = Training(learning_rate=1e-2, sequence_lengths=(12,), batch_size=1, steps=20, seed=1)
    bundle = place / "core.bundle"
    Personalizer(place / "model", "mesp", "executorch", lora=Lora(rank=2), training=training, data=None).build(bundle)
    return bundle


def check_what_it_said(lines: str, adapter: Path) -> None:
    ends = re.findall(r"^ended (\d) after (\d+) tokens$", lines, re.MULTILINE)
    assert len(ends) == 2
    assert {int(end) for end, _ in ends} <= {1, 3}  # BESPOKE_END_STOP_TOKEN, BESPOKE_END_MAX_TOKENS
    pieces = re.findall(r"^piece (-?\d+) ", lines, re.MULTILINE)
    assert len([token for token in pieces if token != "-1"]) == sum(int(tokens) for _, tokens in ends)
    known = re.findall(r"^(added|trained|versions|forgotten|left) (.*)$", lines, re.MULTILINE)
    said = [(what, json.loads(found)) for what, found in known]
    assert [what for what, _ in said] == ["added"] * 3 + ["trained"] * 2 + ["versions", "forgotten", "left"]
    first, second = said[3][1], said[4][1]
    assert (first["stopped_because"], first["total_steps"], first["accepted"]) == ("steps_done", 5, None)
    assert (second["total_steps"], second["accepted"]) == (12, True)
    assert [version["run_id"] for version in said[5][1]] == [first["run"]]
    assert any(
        tensor.any() for name, tensor in load_file(adapter / "adapter_model.safetensors").items() if "lora_B" in name
    )
    forgotten = {"example": True, "accepted_deleted": 1, "run_stopped": False, "numbers_dropped": 0, "rounds": []}
    assert said[6][1] == forgotten
    assert said[7][1] == 2
