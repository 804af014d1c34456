# SPDX-License-Identifier: Apache-2.0
"""Long texts, added as an app adds them: seconds of one core, and what refusing one costs that is too long."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.conftest import REPOSITORY
from tests.support.models import tiny_model

MEGABYTES = (1, 2, 5, 10)
MOST_SECONDS = 10.0  # time on one processor core for 10 MB
TOO_LONG = 17
BUILD = """
import sys
from bespoke import Personalizer, Training
training = Training(sequence_lengths=(64,), steps=5)
Personalizer(sys.argv[1], "mesp", "torch", training=training, rehearsal=False, licence="none").build(sys.argv[2])
"""
ADD = """
import sys, time
from bespoke import PersonalModel
from bespoke.errors import DataError
text = open(sys.argv[3]).read()
while len(text.encode()) < int(sys.argv[4]):
    text += text
text = text.encode()[: int(sys.argv[4])].decode(errors="ignore")
with PersonalModel.open(sys.argv[1], sys.argv[2]) as model:
    model.examples.add({"text": "Warm."})
    began = time.process_time()
    try:
        model.examples.add({"text": text}, id="long")
    except DataError:
        pass
    spent = time.process_time() - began
    tokens, rows = next(((one.tokens, one.rows) for one in model.examples.list() if one.id == "long"), (0, 0))
print(spent, tokens, rows)
"""


@pytest.mark.benchmark
def test_ten_megabytes_of_text_are_added_in_seconds_of_one_core(
    stories: Path, data_folder: Path, tmp_path: Path
) -> None:
    qwen = tiny_model(
        "qwen2",
        tmp_path / "qwen",
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        vocab_size=151936,
    )
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data_folder / "tokenizers" / "qwen2.5" / file, qwen / file)
    text = data_folder / "text" / "wikitext-2" / "train.txt"
    rows: list[list[Cell]] = []
    environment = {**os.environ, "RAYON_NUM_THREADS": "1"}
    for name, model in {"Qwen2.5": qwen, "stories260K": stories}.items():
        bundle = tmp_path / f"{name}.bundle"
        subprocess.run([sys.executable, "-c", BUILD, model, bundle], cwd=REPOSITORY, check=True)
        for megabytes in (*MEGABYTES, TOO_LONG):
            command = [
                sys.executable,
                "-c",
                ADD,
                bundle,
                tmp_path / f"{name}_{megabytes}",
                text,
                str(megabytes * 10**6),
            ]
            done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True)
            seconds, tokens, windows = done.stdout.split()
            refused = megabytes == TOO_LONG
            rows.append(
                [name, megabytes, None if refused else int(tokens), "refused" if refused else windows, float(seconds)]
            )
            print(rows[-1], flush=True)
    write_table(
        "long_texts",
        ("tokenizer", "MB of text", "tokens", "rows", "seconds of one core"),
        rows,
        "WikiText-2, added by `examples.add` to a bundle with sequences of 64: canonical JSON, tokens, rows and one transaction.",
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
    print(f"largest process {peak:.0f} MB")
    for name, megabytes, _, _, seconds in rows:
        assert isinstance(seconds, float)
        assert megabytes not in (10, TOO_LONG) or seconds < (MOST_SECONDS if megabytes == 10 else 1.0), (
            name,
            megabytes,
            seconds,
        )
