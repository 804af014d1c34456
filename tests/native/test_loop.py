# SPDX-License-Identifier: Apache-2.0
"""The core's batches and noise against the reference's, on one state folder and on counters drawn at random."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.rules.batches import BatchCursor, CursorState, evaluation_batches
from bespoke.rules.noise import noise
from tests.conformance.make_batches import as_json
from tests.native.core_store import CoreStore
from tests.native.state.states import BASE, SHAPES, token_row
from tests.support.reading import rows_of_split
from tests.unit.rules.numbers import ulps

TEXT = Path(__file__).read_bytes()


def ask(build: Path, **request: Any) -> Any:
    program = build / "tests" / "loop_lab"
    done = subprocess.run([program], input=json.dumps(request), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(native_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 examples of one to three rows and 8 pairs of answers, of this file's bytes."""
    path = tmp_path_factory.mktemp("loop") / "alice"
    draw = random.Random(3)
    with CoreStore.open(native_build / "tests" / "state_lab", path, BASE, SHAPES) as store:
        for number in range(40):
            pieces = [
                TEXT[start : start + draw.randrange(2, 66)] for start in draw.sample(range(1000), draw.randrange(1, 4))
            ]
            rows = [token_row(*piece, trained=draw.randrange(1, len(piece))) for piece in pieces]
            store.add_example({"text": f"{number}"}, rows)
        for number in range(8):
            chosen, other = (TEXT[2000 + at : 2000 + at + 9 + number] for at in (0, 40 + number))
            pair = [[*chosen], [0] * 5 + [1] * (4 + number), [*other], [0] * 5 + [1] * (4 + number)]
            store.act("add", json=f'{{"prompt": "{number}"}}', id=f"pair {number}", rows=[pair])
    return path


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize(("batch_size", "accumulation", "seed"), [(1, 1, 0), (4, 3, 2**63 - 1), (100, 1, 5)])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_state_gives_the_same_batches_in_both(
    native_build: Path, folder: Path, split: Any, pairs: bool, batch_size: int, accumulation: int, seed: int
) -> None:
    batch_size += pairs  # a pair takes two rows
    lengths = [16, 32, 64]
    rows = rows_of_split(folder, split)
    cursor = BatchCursor(
        rows,
        [],
        seed=seed,
        batch_size=batch_size,
        accumulation=accumulation,
        sequence_lengths=lengths,
        general_share=0.5,
        pairs=pairs,
    )
    assert any(row.rejected is not None for row in rows)
    state, steps = CursorState(), []
    for _ in range(30):
        batches, state = cursor.step(state)
        steps.append([as_json(batch) for batch in batches])
    got = ask(
        native_build,
        do="batches",
        folder=str(folder),
        base=BASE,
        adapter={n: list(s) for n, s in SHAPES.items()},
        split=split,
        seed=seed,
        batch_size=batch_size,
        accumulation=accumulation,
        sequence_lengths=lengths,
        vocab_size=256,
        pairs=pairs,
        steps=30,
    )
    assert got["steps"] == steps
    assert got["evaluation"] == [as_json(batch) for batch in evaluation_batches(rows, batch_size, lengths)]


def test_a_token_that_the_model_does_not_know_is_refused(native_build: Path, folder: Path) -> None:
    got = ask(
        native_build,
        do="batches",
        folder=str(folder),
        base=BASE,
        adapter={n: list(s) for n, s in SHAPES.items()},
        split="train",
        seed=0,
        batch_size=1,
        accumulation=1,
        sequence_lengths=[64],
        vocab_size=40,
        steps=30,
    )
    assert got["error"] == "DataError"
    assert "which the model knows" in got["text"]


@pytest.mark.parametrize("rademacher", [False, True])
def test_noise_is_that_of_numpy_to_a_unit_in_the_last_place(
    native_build: Path, tmp_path: Path, rademacher: bool
) -> None:
    draw = random.Random(8)
    for count in (1, 63, 64, 65, 1_000_003):
        at: dict[str, Any] = {
            "seed": draw.randrange(2**64),
            "step": draw.randrange(2**32),
            "query": draw.randrange(2**31),
            "block": draw.randrange(2**16),
            "tensor": draw.randrange(2**16),
        }
        ask(native_build, do="noise", count=count, rademacher=rademacher, file=str(tmp_path / "z"), **at)
        got = np.fromfile(tmp_path / "z", np.float32)
        apart = ulps(got, noise((count,), distribution="rademacher" if rademacher else "normal", **at))
        assert apart.max() <= (0 if rademacher else 1)
        assert (apart > 0).mean() < 1e-5  # one in 2^28 or so: what a double's last place may tip
