# SPDX-License-Identifier: Apache-2.0
"""What rehearsal adds to the build of a pretrained chat model: processor time of one thread, and bytes of the bundle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.figures import this_machine, write_text

LENGTH = 128
MOST_SECONDS, MOST_BYTES = 240, 300_000


@pytest.mark.benchmark
def test_seconds_and_bytes_of_the_answers_that_a_build_keeps(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bespoke import Personalizer, Training
    from bespoke.compiler import data_files, rehearsal

    seconds: list[float] = []

    def timed(*arguments: Any, **settings: Any) -> Any:
        began = time.process_time()  # of all threads, which other processes do not change
        kept = rehearsal.rehearse(*arguments, **settings)
        seconds.append(time.process_time() - began)
        return kept

    monkeypatch.setattr(data_files, "rehearse", timed)
    training = Training(sequence_lengths=(LENGTH,))
    bundle, report = Personalizer(smollm2, "mesp", "torch", training=training).build_with_report(tmp_path / "bundle")
    kept = report.rehearsal
    assert kept is not None
    size = sum(file.stat().st_size for file in (bundle / "data").glob("*.safetensors"))
    write_text(
        "rehearsal_cost",
        f"With SmolLM2-135M-Instruct and rows of {LENGTH} tokens, the build keeps {kept.answers + kept.held_out} answers, "
        f"{kept.mean_tokens:.0f} tokens in the mean. They take {seconds[-1]:.0f} seconds of one core and {size / 1e3:.0f} kB.\n\n"
        f"Measured on: {this_machine()}.",
    )
    assert seconds[-1] <= MOST_SECONDS
    assert size <= MOST_BYTES
