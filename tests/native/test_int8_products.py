# SPDX-License-Identifier: Apache-2.0
"""The device core with XNNPACK's products of int8 activations and int4 weights: what it computes, and files of packed weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.core.handle import Place
from bespoke.core.own_process import OwnProcess
from bespoke.errors import DiskFull, Unavailable
from tests.support.bundles import made_once
from tests.support.checks import record_check
from tests.support.reading import select

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]

STEPS, ROWS, LENGTH, EPSILON = 30, 4, 32, 1e-2
METHODS = {"mezo": {"epsilon": EPSILON}, "prge": {"epsilon": EPSILON, "queries": 2}}
TARGETS: Mapping[str, Any] = {"int8": {"executorch": {"products": "xnnpack_qb4w"}}, "exact": "executorch"}
PROMPT, TOKENS = "Once upon a time", 12


def personalizer(stories: Path, target: str) -> Personalizer:
    training = Training(sequence_lengths=(LENGTH,), batch_size=ROWS, steps=STEPS, seed=1)
    return Personalizer(stories, METHODS, TARGETS[target], lora=Lora(rank=4), training=training, context=64, data=None)


@pytest.fixture(scope="module")
def bundles(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: made_once(
            tmp_path_factory, f"products-{name}", lambda f, n=name: personalizer(stories, n).build(f / "bundle")
        )
        / "bundle"
        for name in TARGETS
    }


@pytest.fixture(scope="module")
def texts(data_folder: Path) -> list[str]:
    words = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text()
    return [words[i * 100 : (i + 1) * 100] for i in range(ROWS)]


def trained(bundle: Path, state: Path, method: str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Losses, and g of each query of each step."""
    with PersonalModel.open(bundle, state=state, engine="executorch") as model:
        for text in words:
            model.examples.add({"text": text}, use="train")
        losses = model.train(run_steps=STEPS, method=method).losses
    rows = select(state, "SELECT recorded FROM journal ORDER BY step")
    return np.array(losses), np.concatenate([np.frombuffer(bytes.fromhex(row[0]), "<f4") for row in rows])


ANSWER = f"""
import sys
from bespoke import PersonalModel
with PersonalModel.open(sys.argv[1], state=sys.argv[2], engine="executorch") as model:
    print("".join(model.generate({PROMPT!r}, max_tokens={TOKENS})))
"""


def answer_of_a_process(bundle: Path, state: Path) -> str:
    done = subprocess.run([sys.executable, "-c", ANSWER, bundle, state], capture_output=True, text=True, check=True)
    return done.stdout.removesuffix("\n")


def answer(bundle: Path, state: Path) -> str:
    with PersonalModel.open(bundle, state=state, engine="executorch") as model:
        return "".join(model.generate(PROMPT, max_tokens=TOKENS))


def packed(state: Path) -> dict[str, tuple[int, int]]:
    """Files of packed weights: size, and when they were last written."""
    found = {path.name: path.stat() for path in (state / "packed").rglob("*.packed")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


@pytest.mark.parametrize("method", METHODS)
def test_the_core_trains_as_with_exact_products(
    bundles: dict[str, Path], method: str, texts: list[str], tmp_path: Path
) -> None:
    (losses, g), (exact_losses, exact_g) = (trained(bundles[name], tmp_path / name, method, texts) for name in TARGETS)
    figures = {
        "steps": len(losses),
        "epsilon": EPSILON,
        "largest relative error of a loss": float(np.max(np.abs(losses / exact_losses - 1))),
        "correlation of g": float(np.corrcoef(g, exact_g)[0, 1]),
        "same signs": float(np.mean(np.sign(g) == np.sign(exact_g))),
    }
    record_check(f"training with int8 products, {method}", figures)
    assert figures["largest relative error of a loss"] <= 1e-2
    assert figures["correlation of g"] >= 0.97
    assert figures["same signs"] >= 0.9


def test_golden_vectors_hold(bundles: dict[str, Path], tmp_path: Path) -> None:
    with read_bundle(bundles["int8"]) as opened:
        core = OwnProcess(Place(bundles["int8"], tmp_path / "state", opened.manifest_sha256), None)
    assert {check["method"] for check in core.verify()["checks"]} >= {*METHODS, "generation"}


def test_weights_are_packed_once_and_their_files_are_as_large_as_the_estimate_says(
    bundles: dict[str, Path], stories: Path, texts: list[str], tmp_path: Path
) -> None:
    """All programs with the same weights share a file, whatever number of rows they take, and so does the next process."""
    state = tmp_path / "state"
    first = answer(bundles["int8"], state)
    for_answers = packed(state)
    trained(bundles["int8"], state, "mezo", texts)
    files = packed(state)
    estimate = personalizer(stories, "int8").estimate()
    assert for_answers.items() <= files.items()
    assert 0.5 * estimate.cache_bytes < sum(size for size, _ in files.values()) <= estimate.cache_bytes
    assert f"packed weights on the device {estimate.cache_bytes / 1e6:.1f} MB" in str(estimate)
    assert answer_of_a_process(bundles["int8"], state) == first
    assert packed(state) == files
    assert personalizer(stories, "exact").estimate().cache_bytes == 0


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "no seal"])
def test_a_damaged_file_is_packed_again(damage: str, bundles: dict[str, Path], tmp_path: Path) -> None:
    expected = answer(bundles["int8"], tmp_path)
    for path in (tmp_path / "packed").rglob("*.packed"):
        data = bytearray(path.read_bytes())
        for place in range(0, len(data) // 2, 64):
            data[place] ^= 0x5A
        if damage == "no seal":
            path.with_suffix(".sha256").unlink()
        path.write_bytes({"flipped": data, "cut": data[: len(data) // 3], "empty": b"", "no seal": data}[damage])
    assert answer(bundles["int8"], tmp_path) == expected


def test_a_second_process_has_files_of_its_own(bundles: dict[str, Path], tmp_path: Path) -> None:
    with PersonalModel.open(bundles["int8"], state=tmp_path, engine="executorch") as model:
        expected = "".join(model.generate(PROMPT, max_tokens=TOKENS))
        assert answer_of_a_process(bundles["int8"], tmp_path) == expected
    names = sorted(packed(tmp_path))
    assert len(names) == 2 * sum("-" in name for name in names) > 0


def test_files_of_another_base_model_are_removed(bundles: dict[str, Path], tmp_path: Path) -> None:
    stale = tmp_path / "packed" / "0123456789abcdef"
    stale.mkdir(parents=True)
    (stale / "old.packed").write_bytes(b"old")
    answer(bundles["int8"], tmp_path)
    assert not stale.exists()
    assert packed(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", folder], capture_output=True).returncode:
        pytest.skip("this system does not let root mount a tmpfs")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_an_error_and_a_later_call_finds_room(bundles: dict[str, Path], small_disk: Path) -> None:
    """Where a page of a mapped file has no room, a write to it would end the process."""
    ballast = small_disk / "ballast"
    with PersonalModel.open(bundles["int8"], state=small_disk / "state", engine="executorch") as model:
        ballast.write_bytes(bytes(400 * 1024))
        with pytest.raises(
            DiskFull, match=r"no room for 1 MB of packed weights in .*packed.*No space left.*Free some space"
        ):
            list(model.generate(PROMPT, max_tokens=TOKENS))
        subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
        assert list(model.generate(PROMPT, max_tokens=TOKENS))


def test_a_folder_that_cannot_be_written_is_an_error(bundles: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "packed").write_text("a file")
    with pytest.raises(Unavailable, match=r"the folder for packed weights, .*packed.*nothing is damaged"):
        answer(bundles["int8"], tmp_path)
