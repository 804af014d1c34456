# SPDX-License-Identifier: Apache-2.0
"""Answers by several tokens at a time are those by one at a time, bit for bit: tokens, logits, pieces of text and ends."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.errors import BudgetExceeded
from bespoke.reference.generate import generate
from bespoke.rules.drafts import Drafts
from tests.support.bundles import made_once
from tests.support.checks import new_seed, record_check
from tests.support.models import tiny_model

pytestmark = pytest.mark.xdist_group("drafts")
CONTEXT, VOCABULARY = 160, 131
PROMPT = [5, 17, 99, 4, 8, 5, 17, 99, 4]
TOLD = "Once upon a time, there was a little girl named Lily. She had a red ball. "


def build(model: Path, out: Path, draft_tokens: int, **settings: Any) -> None:
    training = Training(sequence_lengths=(16,), batch_size=1)
    settings = {"context": CONTEXT, "lora": Lora(rank=4, alpha=8.0), "training": training, "data": None, **settings}
    Personalizer(model, "mesp", "executorch", draft_tokens=draft_tokens, **settings).build(out)


@pytest.fixture(scope="module", params=("llama", pytest.param("gemma3_text", marks=pytest.mark.slow)))
def bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles 0, 1, 3 and 7 of a small random model, by the number of tokens that they guess."""

    def make(place: Path) -> None:
        model = tiny_model(request.param, place / "model")
        for draft_tokens in (0, 1, 3, 7):
            build(model, place / str(draft_tokens), draft_tokens)

    return made_once(tmp_path_factory, f"drafts-{request.param}", make)


@pytest.fixture(scope="module")
def told(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles 0 and 3 of a trained model that has words."""

    def make(place: Path) -> None:
        for draft_tokens in (0, 3):
            build(stories, place / str(draft_tokens), draft_tokens, context=256)

    return made_once(tmp_path_factory, "drafts-told", make)


def asked(numbers: np.random.Generator, temperature: float) -> dict[str, Any]:
    """An answer to be given without drafts, and settings of a draw."""
    return {
        "prompt": numbers.integers(3, VOCABULARY, numbers.integers(4, 40)).tolist(),
        "drafts": False,
        "temperature": temperature,
        "seed": int(numbers.integers(2**63)),
        "max_tokens": 100,
        "stop_ids": [],
    }


def lab(build: Path, request: dict[str, Any], masked: str = "") -> Any:
    environment = {**os.environ, "BESPOKE_MASKED_FEATURES": masked}
    done = subprocess.run(
        [build / "tests" / "answer_lab"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("draft_tokens", "masked"), [(1, ""), (3, ""), (7, ""), (3, "vnni"), (7, "avx2,avx512,vnni,amx")]
)
def test_tokens_and_logits_are_those_of_one_token_at_a_time(
    native_build: Path, bundles: Path, draft_tokens: int, masked: str
) -> None:
    """Guesses of which one in five is wrong. A plan that cannot take them is asked with them too."""
    numbers = np.random.default_rng(seed := new_seed())
    plain = [asked(numbers, temperature) for temperature in (0, 0, 0, 0, 0.01, 0.1, 0.3, 0.3, 0.7, 1.0)]
    request = {"adapter": 0.5, "threads": 2}
    without = lab(native_build, {**request, "bundle": str(bundles / "0"), "answers": plain}, masked)
    guessed = [
        {**one, "drafts": np.where(numbers.random(100) < 0.2, 3, answer["tokens"]).tolist()}
        for one, answer in zip(plain, without, strict=True)
    ]
    for name in ("0", str(draft_tokens)):
        found = lab(native_build, {**request, "bundle": str(bundles / name), "answers": guessed}, masked)
        assert {one["rows"] for one in found} == {int(name) + 1 if name != "0" else 0}
        for ours, theirs in zip(found, without, strict=True):
            assert ours["tokens"] == theirs["tokens"]
            assert ours["digests"] == theirs["digests"]
    tokens = sum(len(one["tokens"]) for one in found)
    runs, more = (sum(one["runs"] for one in part) for part in (found, without))
    assert tokens == 1000
    assert runs < 0.7 * more
    counts = {"tokens": tokens, "calls of graphs": runs, "without guesses": more}
    record_check(f"answers by {draft_tokens + 1} tokens at a time, without '{masked}'", counts, seed)


def test_text_that_repeats_itself_takes_fewer_runs(native_build: Path, told: Path, stories: Path) -> None:
    """Drafts from the prompt and the answer, by a trained model."""
    prompt = Tokenizer.from_file(str(stories / "tokenizer.json")).encode(TOLD + TOLD).ids
    answers = [
        {**asked(np.random.default_rng(seed), temperature), "prompt": prompt}
        for seed, temperature in enumerate((0, 0.1, 0.2, 0.5, 0.8))
    ]
    request = {"bundle": str(told / "3"), "threads": 2, "adapter": 0.0}
    without = lab(native_build, {**request, "answers": answers})
    found = lab(native_build, {**request, "answers": [{**one, "drafts": True} for one in answers]})
    for ours, theirs in zip(found, without, strict=True):
        assert (ours["tokens"], ours["digests"]) == (theirs["tokens"], theirs["digests"])
    assert sum(one["runs"] for one in found) < 0.99 * sum(one["runs"] for one in without)


def test_an_answer_ends_inside_a_draft_where_it_ends_without(native_build: Path, bundles: Path) -> None:
    """By the number of tokens, by a token that ends answers, and by the end of the context."""
    numbers = np.random.default_rng(new_seed())
    whole = asked(numbers, 0)
    request = {"bundle": str(bundles / "3"), "threads": 1, "adapter": 0.5}
    (found,) = lab(native_build, {**request, "answers": [{**whole, "max_tokens": 0}]})
    tokens = found["tokens"]
    assert len(whole["prompt"]) + len(tokens) == CONTEXT + 1
    guessed = {**whole, "max_tokens": 0, "drafts": tokens}
    shorter = [{**guessed, "max_tokens": length} for length in range(1, 60)]
    ended = [{**guessed, "stop_ids": [token]} for token in tokens[:40]]
    expected = [tokens, *(tokens[:length] for length in range(1, 60))]
    expected += [tokens[: tokens.index(token)] for token in tokens[:40]]
    for answer, right in zip(
        lab(native_build, {**request, "answers": [guessed, *shorter, *ended]}), expected, strict=True
    ):
        assert answer["tokens"] == right


def test_the_core_guesses_what_the_torch_runtime_guesses(native_build: Path) -> None:
    numbers = np.random.default_rng(new_seed())
    texts = [numbers.integers(0, vocabulary, 300).tolist() for vocabulary in (2, 3, 5, 9, 30)]
    texts = [text + text[:20] for text in texts]  # of 30 tokens, no three need follow each other twice
    texts.append(list(itertools.islice(itertools.cycle([1, 2, 3, 4, 5]), 100)))
    found = lab(native_build, {"texts": texts, "most": 3})
    for text, guesses in zip(texts, found, strict=True):
        drafts = Drafts()
        assert guesses == [drafts.next(text[: end + 1], 3) for end in range(len(text))]
        assert any(guesses)


def test_the_torch_runtime_answers_the_same_with_and_without(bundles: Path) -> None:
    answers = {}
    for draft_tokens in (0, 3):
        with read_bundle(bundles / str(draft_tokens)) as bundle:
            answers[draft_tokens] = [
                list(generate(bundle, PROMPT, max_tokens=60, temperature=temperature, seed=4))
                for temperature in (0.0, 0.2)
            ]
    assert answers[0] == answers[3]


# ---- conversations -----------------------------------------------------------------------------------------------------


@pytest.fixture
def both(
    native_build: Path, told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[PersonalModel, PersonalModel]]:
    """The model without drafts, and with them."""
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    with (
        PersonalModel.open(told / "0", tmp_path / "0", engine="executorch") as plain,
        PersonalModel.open(told / "3", tmp_path / "3", engine="executorch") as drafting,
    ):
        yield plain, drafting


Pieces = list[tuple[str, int | None, Any]]


def pieces_of(conversation: Any, prompt: Any, most: int = 1000) -> Pieces:
    fed = conversation.feed(prompt)
    return [(piece.text, piece.token, piece.stopped_because) for piece in itertools.islice(fed, most)]


def test_pieces_are_the_same_over_turns_forks_and_other_conversations(
    both: tuple[PersonalModel, PersonalModel],
) -> None:
    def talked(model: PersonalModel) -> list[Pieces]:
        settings: dict[str, Any] = {"max_tokens": 30}
        with (
            model.conversation(**settings) as one,
            model.conversation(**settings, temperature=0.3, seed=8) as other,
            model.conversation(**settings) as fork,
        ):
            said = [pieces_of(one, TOLD + TOLD), pieces_of(other, TOLD)]
            said.append(pieces_of(fork, TOLD + TOLD, most=7))  # dropped in the middle of an answer
            said.append(pieces_of(one, " Then Lily said: " + TOLD))
            said.append(pieces_of(fork, TOLD))
            said.append(pieces_of(other, " And " + TOLD))
            turns = [iter(one.feed(" So ")), iter(other.feed(TOLD))]  # a token each, in turns
            said.append([(piece.text, piece.token, None) for pair in zip(*turns, strict=False) for piece in pair])
            return said

    plain, drafting = both
    assert talked(plain) == talked(drafting)


def test_stop_texts_end_an_answer_inside_a_draft(both: tuple[PersonalModel, PersonalModel]) -> None:
    whole = "".join(both[0].generate(TOLD + TOLD, max_tokens=60))
    for begin in range(0, len(whole) - 5, 3):
        stop = whole[begin : begin + 5]
        ends = []
        for model in both:
            with model.conversation(max_tokens=60, stop_texts=[stop]) as conversation:
                ends.append(pieces_of(conversation, TOLD + TOLD))
        assert ends[0] == ends[1]
        assert "".join(text for text, _, _ in ends[1]) == whole[: whole.index(stop)]


def test_a_run_that_was_refused_can_be_asked_for_again(both: tuple[PersonalModel, PersonalModel]) -> None:
    plain, drafting = both
    whole = "".join(plain.generate(TOLD + TOLD, max_tokens=40))
    with drafting.conversation(max_tokens=40) as conversation:
        conversation.feed(TOLD + TOLD)
        said, refused = "", 0
        while conversation.stopped_because is None:
            drafting.set_limit(1)
            try:
                said += next(conversation).text  # of a guess: nothing has to run
            except BudgetExceeded:
                refused += 1
                drafting.set_limit(None)
                said += next(conversation).text
    assert said == whole
    assert refused > 0


def test_scores_and_labels_do_not_guess(both: tuple[PersonalModel, PersonalModel]) -> None:
    answers = [" Lily", " ball", " a little girl"]
    assert both[0].score(TOLD, answers) == both[1].score(TOLD, answers)


def test_the_plan_says_what_it_needs(bundles: Path) -> None:
    documents = {}
    for draft_tokens in (0, 3, 7):
        folder = bundles / str(draft_tokens)
        record = json.loads((folder / "manifest.json").read_bytes())["generation"]
        documents[draft_tokens] = json.loads((folder / record["file"]).read_bytes())
    assert documents[0]["version"] == [1, 0]
    assert documents[3]["version"] == documents[7]["version"] == [1, 2]
    assert "decode_rows" not in documents[0]["sections"]
    for draft_tokens in (3, 7):
        plan = documents[draft_tokens]
        emitted = next(one for one in plan["sections"]["decode_rows"] if one["op"] == "emit")
        assert plan["values"][emitted["source"]]["shape"] == [VOCABULARY, draft_tokens + 1]
        assert plan["estimate"]["arena_bytes"] >= VOCABULARY * (draft_tokens + 1) * 4
