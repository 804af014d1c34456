# SPDX-License-Identifier: Apache-2.0
"""The adapter that answers, while another process accepts, takes back or forgets: each answer is of one whole adapter."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bespoke import PersonalModel
from bespoke.errors import StateError
from tests.sharing import outside
from tests.sharing.c_api import CModel
from tests.sharing.lab import Changer, processes
from tests.support.checks import count, record_check
from tests.unit.personal_model.tiny import add_numbers, numbers

PROMPT = [40, 41, 42]


def exported(model: PersonalModel, folder: Path) -> dict[str, np.ndarray]:
    return dict(load_file(model.export_adapter(folder, base=True) / "adapter_model.safetensors"))


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in other)


@pytest.fixture
def trained(tiny_core_bundle: Path, tmp_path: Path) -> Path:
    """A state with an adapter that answers, and an export of that adapter next to it."""
    with PersonalModel.open(tiny_core_bundle, tmp_path / "alice") as model:
        add_numbers(model)
        model.train(run_steps=4)
        assert model.versions()
        model.export_adapter(tmp_path / "adapter")
    return tmp_path / "alice"


@pytest.mark.slow
def test_exports_and_answers_next_to_a_process_that_accepts_and_takes_back_are_of_one_adapter(
    tiny_core_bundle: Path, trained: Path, tmp_path: Path
) -> None:
    times = count(10_000)
    with PersonalModel.open(tiny_core_bundle, trained) as model:
        after = exported(model, tmp_path / "after"), list(model.generate_ids(PROMPT, max_tokens=2))
        model.rollback()
        before = exported(model, tmp_path / "before"), list(model.generate_ids(PROMPT, max_tokens=2))
        assert not same(before[0], after[0])
        with Changer(processes(), tiny_core_bundle, trained, tmp_path / "adapter"):
            for number in range(times):
                got = exported(model, tmp_path / "now")
                assert same(got, before[0]) or same(got, after[0]), f"export {number} is of neither adapter"
                assert list(model.generate_ids(PROMPT, max_tokens=2)) in (before[1], after[1]), f"answer {number}"
    record_check(
        "exports and answers next to a process that accepts and takes back", {"of each": times, "that failed": 0}
    )


def test_the_core_evaluates_next_to_a_process_that_accepts_and_takes_back(
    core: Path, tiny_core_bundle: Path, trained: Path, tmp_path: Path
) -> None:
    times = count(5_000)
    with CModel(core, tiny_core_bundle, trained) as model:
        after = model.good("train_split")["loss"]
        with PersonalModel.open(tiny_core_bundle, trained) as other:
            other.rollback()
        before = model.good("train_split")["loss"]
        assert before != after
        with Changer(processes(), tiny_core_bundle, trained, tmp_path / "adapter"):
            for number in range(times):
                assert model.good("train_split")["loss"] in (before, after), f"evaluation {number}"
    record_check(
        "evaluations by the core next to a process that accepts and takes back",
        {"evaluations": times, "that failed": 0},
    )


def test_an_answer_that_has_begun_ends_with_the_adapter_it_began_with_though_it_is_forgotten(
    tiny_core_bundle: Path, trained: Path
) -> None:
    with PersonalModel.open(tiny_core_bundle, trained) as model, PersonalModel.open(tiny_core_bundle, trained) as other:
        asked = {"max_tokens": 12, "temperature": 1.5, "seed": 3}
        whole = list(model.generate_ids(PROMPT, **asked))  # type: ignore[arg-type]
        answer = model.generate_ids(PROMPT, **asked)  # type: ignore[arg-type]
        got = [next(answer)]
        weights = next(trained.glob("accepted_*")).read_bytes()
        assert other.examples.forget("number-0").accepted_deleted == 1
        assert list(trained.glob("accepted_*")) == []
        got += answer
        assert got == whole
        assert list(model.generate_ids(PROMPT, **asked)) != whole  # type: ignore[arg-type]
        left = [path for path in trained.iterdir() if path.is_file() and weights[4096:] in outside.bytes_of(path)]
        assert left == []


def test_what_is_forgotten_and_read_by_nobody_is_overwritten(
    tiny_core_bundle: Path, trained: Path, tmp_path: Path
) -> None:
    accepted = next(trained.glob("accepted_*"))
    os.link(accepted, tmp_path / "the same blocks")
    with PersonalModel.open(tiny_core_bundle, trained) as model:
        model.examples.forget("number-0")
    assert not accepted.exists()
    content = (tmp_path / "the same blocks").read_bytes()
    assert content == bytes(len(content)) != b""


@pytest.mark.parametrize("language", ["torch", "core"])
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_what_a_killed_process_left_is_overwritten_unless_it_is_read(
    core: Path, tiny_core_bundle: Path, trained: Path, tmp_path: Path, language: str, read: bool
) -> None:
    """A file that the database does not name any more: forgotten by a process that was killed before it removed the file."""
    left = trained / "accepted_00000077_0a0b0c0d.safetensors"
    shutil.copy(next(trained.glob("accepted_*")), left)
    os.link(left, tmp_path / "the same blocks")
    content = left.read_bytes()
    with left.open("rb") as reader:
        if read:
            fcntl.flock(reader, fcntl.LOCK_SH)
        if language == "core":
            with CModel(core, tiny_core_bundle, trained):
                pass
        else:
            PersonalModel.open(tiny_core_bundle, trained).close()
    assert not left.exists()
    assert (tmp_path / "the same blocks").read_bytes() == (content if read else bytes(len(content)))


def test_the_core_marks_the_adapter_that_it_reads(core: Path, tiny_core_bundle: Path, trained: Path) -> None:
    with PersonalModel.open(tiny_core_bundle, trained) as model:
        for index in range(200):  # for an evaluation that takes a moment
            model.examples.add(numbers(index), id=f"more-{index}")
    accepted = next(trained.glob("accepted_*"))
    marked, done = [], threading.Event()
    with CModel(core, tiny_core_bundle, trained) as model:

        def watch() -> None:
            while not done.is_set():
                marked.append(outside.is_marked_as_read(accepted, model.process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            model.good("train_split")
        finally:
            done.set()
            watcher.join()
        assert any(marked)
        assert not outside.is_marked_as_read(accepted, model.process.pid)


def test_an_adapter_that_is_shorter_than_the_plan_is_refused_alike_by_both_readers(
    core: Path, tiny_core_bundle: Path, trained: Path, tmp_path: Path
) -> None:
    """A sound file whose hash the database names, as an attacker or another build would leave it: one tensor lacks a row."""
    accepted = next(trained.glob("accepted_*"))
    tensors = dict(load_file(accepted))
    name = max(tensors)
    rows, columns = tensors[name].shape
    tensors[name] = tensors[name][:-1].copy()
    outside.write_tensors(accepted, tensors)
    digest = hashlib.sha256(accepted.read_bytes()).hexdigest()
    outside.write(trained, f"UPDATE versions SET sha256 = '{digest}', bytes = {accepted.stat().st_size}")
    subject, got = f"{accepted}, tensor '{name}'", f"float32 [{rows - 1}, {columns}]"
    with PersonalModel.open(tiny_core_bundle, trained) as model, pytest.raises(StateError) as caught:
        model.export_adapter(tmp_path / "short")
    with CModel(core, tiny_core_bundle, trained) as other:
        answer = other.act("train_split")
    assert (caught.value.subject, caught.value.got) == (subject, got)
    assert (answer["error"], answer["subject"], answer["got"]) == ("StateError", subject, got)
