# SPDX-License-Identifier: Apache-2.0
"""What a bundle rehearses: rows as the device core encodes them, cut at whole sentences, held-out kinds apart."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import BuildWarning, Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.compiler import greedy
from bespoke.compiler.data_files import warn_of_short_rows
from bespoke.compiler.rehearsal import ChatAsking, RehearsalReport, TextAsking, before_repetition, whole_sentences
from bespoke.data.prompts import read_prompts
from bespoke.data.rows import TokenRow, TokenRows
from bespoke.data.template import compile_turns
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns, protect_markers
from bespoke.errors import DataError
from tests.support.core_rows import core
from tests.unit.data import templates
from tests.unit.data.conftest import qwen, qwen_template, qwen_turns, story

__all__ = ["qwen", "qwen_template", "qwen_turns", "story"]

pytestmark = pytest.mark.xdist_group("rehearsal")  # one process builds the bundles
LENGTH = 128
CACHE_BYTES = 20_000_000  # so small that the answers are several batches, which threads share
ANSWER = "A kettle boils.\n\nThen  it whistles, \N{HOT BEVERAGE} and you pour. "


def turns_of(template: str, tokenizer: Tokenizer) -> Turns:
    special = {**tokenizer.special_tokens, "eos_token": "</s>", "bos_token": "<s>"}
    turns = compile_turns(template, special, None, added_tokens=tokenizer.added_tokens, note=lambda text: None)
    protect_markers(tokenizer, turns)
    return turns


def same(row: TokenRow, tokens: Any, mask: Any) -> None:
    assert row.tokens.tolist() == list(tokens)
    assert row.mask.tolist() == list(mask)


@pytest.mark.parametrize("answer", [ANSWER, "Yes.", " no"])
@pytest.mark.parametrize("template", ["chatml", "ZEPHYR", "LLAMA2", "VICUNA"])
def test_a_row_is_what_the_core_makes_of_the_same_messages(
    template: str, answer: str, qwen: Tokenizer, qwen_turns: Turns, stories: Path, tmp_path: Path
) -> None:
    tokenizer = qwen if template == "chatml" else Tokenizer.open(stories)
    turns = qwen_turns if template == "chatml" else turns_of(getattr(templates, template), tokenizer)
    asking = ChatAsking(tokenizer, turns)
    question = "How do I boil water?"
    row = asking.row(question, answer, ended=True)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    with core(tmp_path, tokenizer, turns, "assistant", LENGTH, tokenizer.vocab_size) as encoder:
        (expected,) = encoder.try_encode({"messages": messages}, "a").rows
    same(row, expected.tokens, expected.mask)

    prompt = asking.prompt(question)
    assert row.tokens[: len(prompt)].tolist() == prompt
    cut = asking.row(question, answer, ended=False)
    assert 0 < len(cut.tokens) < len(row.tokens)
    same(cut, row.tokens[: len(cut.tokens)], row.mask[: len(cut.tokens)])
    assert (
        tokenizer.decode(cut.tokens[cut.mask == 1]).strip()
        == tokenizer.decode(tokenizer.encode(answer.strip())).strip()
    )


def test_a_continuation_is_what_the_core_makes_of_a_prompt_and_its_completion(story: Tokenizer, tmp_path: Path) -> None:
    asking = TextAsking(story)
    row = asking.row("Once upon a time", " there was a cat.", ended=True)
    with core(tmp_path, story, None, "assistant", LENGTH, story.vocab_size) as encoder:
        (expected,) = encoder.try_encode({"prompt": "Once upon a time", "completion": " there was a cat."}, "a").rows
    same(row, expected.tokens, expected.mask)
    assert asking.row("Once upon a time", " there was a cat.", ended=False).tokens.tolist() == row.tokens[:-1].tolist()


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Water is wet. It is al", "Water is wet."),
        ("1. Apples\n2. Pears\n3.", "1. Apples\n2. Pears"),
        ("It was in 2024. And th", "It was in 2024."),
        ('He said "stop!" and', 'He said "stop!"'),
        ("You need:\n", ""),
        ("a version 1.2 of i", ""),
        ("水は濡れている。それ", "水は濡れている。"),
        ("A whole answer.", "A whole answer."),
    ],
)
def test_a_cut_answer_ends_with_a_whole_sentence_or_line(written: str, kept: str) -> None:
    assert whole_sentences(written) == kept


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (" are over. I am glad. I am glad. I am", " are over. I am glad."),
        (" came.\nThen\nit rained.\nThen\nit rained.", " came.\nThen\nit rained."),
        (" went home. They slept.", " went home. They slept."),
        ("", ""),
    ],
)
def test_a_continuation_ends_before_it_repeats_itself(written: str, kept: str) -> None:
    assert before_repetition(written) == kept


def test_rows_that_cut_most_answers_are_warned_of() -> None:
    report = RehearsalReport(answers=6, held_out=4, tokens=99, ended=2, no_room=6, left_out=0, seconds=1.0)
    with pytest.warns(BuildWarning, match=r"6 of the 10 answers .* 64 tokens"):
        warn_of_short_rows(report, 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_short_rows(replace(report, no_room=5), 64)


def test_prompts_of_a_model_s_languages_come_behind_the_english_ones() -> None:
    english = read_prompts("everyday", [])
    assert len(english) > 200
    assert {prompt.kind for prompt in english if prompt.held_out}.isdisjoint(
        prompt.kind for prompt in english if not prompt.held_out
    )
    both = read_prompts("everyday", ["de", "en", "xx"])
    assert both[: len(english)] == english
    assert len(both) > len(english)


# ---- builds ---------------------------------------------------------------------------------------------------------------


def personalizer(model: Path, **more: Any) -> Personalizer:
    training = Training(sequence_lengths=(LENGTH,), batch_size=2, steps=4)
    return Personalizer(model, "mesp", "torch", context=2 * LENGTH, lora=Lora(rank=2), training=training, **more)


def build(model: Path, out: Path, **more: Any) -> tuple[Path, Any]:
    """A bundle, and the report of its build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(greedy, "CACHE_BYTES", CACHE_BYTES)
        return personalizer(model, **more).build_with_report(out)


def rows_of(bundle: Path) -> dict[str, TokenRows | None]:
    with read_bundle(bundle) as opened:
        names = opened.manifest.data.model_dump()
        return {
            name: None
            if file is None
            else TokenRows.from_arrays({key: np.array(part) for key, part in opened.mapped(file).items()}, file)
            for name, file in names.items()
        }


@pytest.fixture(scope="module")
def chat(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K with a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(stories, folder)
    (folder / "chat_template.jinja").write_text(templates.ZEPHYR)
    return folder


@pytest.fixture(scope="module")
def rehearsed(chat: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A bundle of that model, built with one thread, and the report of its build."""
    assert torch.get_num_threads() == 1
    return build(chat, tmp_path_factory.mktemp("rehearsed") / "bundle")


def files_of(bundle: Path) -> dict[str, bytes]:
    return {str(file.relative_to(bundle)): file.read_bytes() for file in bundle.rglob("*") if file.is_file()}


def prompts_of(rows: TokenRows, tokenizer: Tokenizer) -> list[str]:
    return [
        tokenizer.decode(row.tokens[: int(np.flatnonzero(row.mask)[0])])
        for row in (rows.rows(index) for index in range(len(rows)))
    ]


@pytest.mark.slow
def test_a_chat_model_rehearses_most_kinds_and_is_judged_by_the_others(chat: Path, rehearsed: tuple[Path, Any]) -> None:
    bundle, report = rehearsed
    rows = rows_of(bundle)
    train, behaviour = rows["train"], rows["behaviour"]
    assert rows["valid"] is None
    assert train is not None
    assert behaviour is not None
    assert (len(train), len(behaviour)) == (report.rehearsal.answers, report.rehearsal.held_out)
    assert report.rehearsal.left_out == len(read_prompts("everyday", [])) - len(train) - len(behaviour)
    assert report.rehearsal.tokens == train.mask.sum() + behaviour.mask.sum()
    tokenizer = Tokenizer.open(chat)
    for part, held_out in ((train, False), (behaviour, True)):
        texts = [prompt.text for prompt in read_prompts("everyday", []) if prompt.held_out is held_out]
        for shown in prompts_of(part, tokenizer):
            assert any(text in shown for text in texts)
    size = sum(map(len, files_of(bundle).values()))
    assert size <= personalizer(chat).estimate().bundle_bytes <= 1.2 * size


@pytest.mark.slow
def test_a_build_with_three_threads_gives_the_same_bytes(
    chat: Path, rehearsed: tuple[Path, Any], tmp_path: Path
) -> None:
    torch.set_num_threads(3)
    try:
        build(chat, tmp_path / "bundle")
    finally:
        torch.set_num_threads(1)
    one, three = files_of(rehearsed[0]), files_of(tmp_path / "bundle")
    assert one.keys() == three.keys()
    assert [name for name, content in one.items() if content != three[name]] == []


@pytest.mark.slow
def test_the_rows_of_a_file_come_before_the_rehearsed_ones(chat: Path, tmp_path: Path) -> None:
    file = tmp_path / "data.jsonl"
    file.write_text("".join(json.dumps({"text": f"Once there were {n} cats."}) + "\n" for n in range(20)))
    build(chat, tmp_path / "plain", data=file, rehearsal=False)
    build(chat, tmp_path / "both", data=file)
    plain, both = rows_of(tmp_path / "plain"), rows_of(tmp_path / "both")
    assert plain["behaviour"] is None
    assert plain["train"] is not None
    assert both["train"] is not None
    assert len(both["train"]) > len(plain["train"])
    for index in range(len(plain["train"])):
        assert both["train"].rows(index).tokens.tolist() == plain["train"].rows(index).tokens.tolist()
    assert both["valid"] is not None
    assert plain["valid"] is not None
    assert both["valid"].to_bytes() == plain["valid"].to_bytes()


@pytest.mark.slow
def test_a_model_without_a_template_continues_openings(stories: Path, tmp_path: Path) -> None:
    build(stories, tmp_path / "bundle")
    rows = rows_of(tmp_path / "bundle")
    assert rows["valid"] is None
    tokenizer = Tokenizer.open(stories)
    for name, held_out in (("train", False), ("behaviour", True)):
        part = rows[name]
        assert part is not None
        openings = {prompt.text for prompt in read_prompts("openings", []) if prompt.held_out is held_out}
        assert {text.strip() for text in prompts_of(part, tokenizer)} <= openings


@pytest.mark.slow
def test_without_rehearsal_plain_texts_judge(chat: Path, tmp_path: Path) -> None:
    _, report = build(chat, tmp_path / "bundle", rehearsal=False)
    rows = rows_of(tmp_path / "bundle")
    assert report.rehearsal is None
    assert (rows["train"], rows["behaviour"]) == (None, None)
    assert rows["valid"] is not None


@pytest.mark.slow
def test_no_data_asks_for_no_rehearsal(chat: Path, tmp_path: Path) -> None:
    build(chat, tmp_path / "bundle", data=None)
    assert rows_of(tmp_path / "bundle") == {"train": None, "valid": None, "behaviour": None}


@pytest.mark.slow
def test_its_own_answers_alone_are_nothing_to_learn(rehearsed: tuple[Path, Any], tmp_path: Path) -> None:
    with (
        PersonalModel.open(rehearsed[0], tmp_path / "state") as model,
        pytest.raises(DataError, match="no example of the user to train on"),
    ):
        model.train(run_steps=1)
