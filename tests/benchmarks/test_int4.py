# SPDX-License-Identifier: Apache-2.0
"""What a model loses when its weights become int4, by rules for the scale of a group.

stories260K is measured always, and the folders that BESPOKE_INT4_MODELS names, separated by colons: float models with a tokenizer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.int4_rules import RULES, WINDOW, Measured, perplexity

pytestmark = [pytest.mark.benchmark]

TOKENS, FEW = 50_000, 10_000  # the second of models with a vocabulary of more than LARGE
LARGE = 100_000


def test_what_a_model_loses(stories: Path, data_folder: Path) -> None:
    text = (data_folder / "text" / "wikitext-2" / "test.txt").read_text(encoding="utf-8")
    rows: list[list[Cell]] = []
    for folder in [stories, *(Path(name) for name in os.environ.get("BESPOKE_INT4_MODELS", "").split(":") if name)]:
        measured = Measured(folder, text, TOKENS)
        if measured.model.config.vocab_size > LARGE:
            measured.rows = measured.rows[: -(-FEW // WINDOW)]
        decoded = measured.nats()
        print(folder.name, "float", decoded, flush=True)
        cells: list[Cell] = [f"{perplexity(decoded):.2f}"]
        for name, rule in RULES.items():
            measured.quantize(rule)
            nats = measured.nats()
            print(folder.name, name, nats - decoded, flush=True)
            cells.append(f"{nats - decoded:+.3f} ({perplexity(nats):.2f})")
        rows.append([folder.name, sum(len(row) - 1 for row in measured.rows), *cells])
        # After each model: a run that is ended early leaves what it has.
        write_table(
            "int4_rules",
            ["model", "tokens", "perplexity before", *RULES],
            rows,
            f"WikiText-2's test text in windows of {WINDOW} tokens, transformers in fp32, every matrix replaced by what its int4 "
            "form decodes to, embedding and head too. Nats a token more than before, and in brackets the perplexity; lower is "
            "better. stories260K was never quantized before. The others' float weights were decoded from files of 4 bits, on grids "
            "of their own: SmolLM2-135M-Instruct from Q4_1, with a table in Q8_0, and Gemma 3 270M from Q4_K_M.",
        )
