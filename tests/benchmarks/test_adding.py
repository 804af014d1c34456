# SPDX-License-Identifier: Apache-2.0
"""Adding 10,000 examples, one call each, every one on the disk when the call returns: seconds for each thousand."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from tests.benchmarks.figures import write_table
from tests.unit.personal_model.tiny import add_numbers, build

from bespoke import PersonalModel

COUNT, PIECE = 10_000, 1_000


@pytest.mark.benchmark
def test_ten_thousand_examples() -> None:
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        with PersonalModel.open(Path(folder) / "bundle", Path(folder) / "alice") as model:
            for first in range(0, COUNT, PIECE):
                began = time.perf_counter()
                add_numbers(model, PIECE, first)
                seconds.append(time.perf_counter() - began)
            assert len(model.examples) == COUNT
    row = [f"{COUNT:,}", sum(seconds), seconds[0], min(seconds), max(seconds), seconds[-1]]
    header = ("examples", "seconds", "first thousand", "fastest thousand", "slowest thousand", "last thousand")
    write_table("adding", header, [row], "Short examples of token ids, added one by one to one state; a commit each.")
    assert seconds[-1] < 2 * seconds[0]
