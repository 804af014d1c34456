# SPDX-License-Identifier: Apache-2.0
"""Sessions of the core: tokens held against transformers and peft, turns, ends, and what changes between two tokens."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.conversation import Conversation
from bespoke.core import process
from bespoke.core.answers import Generation
from bespoke.errors import BespokeError, BudgetExceeded, Busy, DataError, GenerationError, StateError
from bespoke.reference.exported import exported_adapter
from bespoke.reference.generate import generate
from tests.native.family_folders import CLEAR, CONTEXT, VOCABULARY, family, folder, make
from tests.support.checks import full, new_seed, record_check
from tests.support.models import dequantized_reference
from tests.unit.personal_model.tiny import state_bits

__all__ = ["family", "folder"]


pytestmark = pytest.mark.xdist_group("sessions")
Turns = list[list[int]]


class Oracle:
    """transformers and peft on the dequantized weights."""

    def __init__(self, folder: Path, adapter: int, model: Path | None = None) -> None:
        import peft

        base = dequantized_reference(model or folder / "model")
        self.model = peft.PeftModel.from_pretrained(base, str(folder / "adapters" / str(adapter)))

    def logits(self, tokens: list[int]) -> np.ndarray:
        """[T, V]: of what follows each token."""
        with torch.no_grad():
            found: np.ndarray = self.model(input_ids=torch.tensor([tokens])).logits[0].numpy()
        return found


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder, 0)


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(folder / "bundle", tmp_path / "state", engine="executorch") as opened:
        opened.import_adapter(folder / "adapters" / "0", trust_base=True)
        yield opened


one_family = pytest.mark.parametrize("family", ["llama"], indirect=True)  # where families make no difference


def random_turns(numbers: np.random.Generator, turns: int, most: int, vocabulary: int = VOCABULARY) -> Turns:
    return [numbers.integers(3, vocabulary, numbers.integers(1, most)).tolist() for _ in range(turns)]


def answered(conversation: Conversation, prompt: Any) -> list[int]:
    return [piece.token for piece in conversation.feed(prompt) if piece.token is not None]


def agreement(oracle: Oracle, seen: list[int], answered: list[int]) -> tuple[int, int]:
    """How many of these tokens are the oracle's likeliest, and how many it finds clear; those have to be."""
    logits = oracle.logits([*seen, *answered])[len(seen) - 1 : -1]
    best = np.sort(logits, axis=-1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > CLEAR
    same = logits.argmax(-1) == np.array(answered)
    assert same[clear].all()
    return int(same.sum()), int(clear.sum())


def test_greedy_tokens_are_those_of_transformers_over_several_turns(
    model: PersonalModel, oracle: Oracle, family: str
) -> None:
    check_greedy_tokens(model, oracle, VOCABULARY, family)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stories260K", "the demo's model"])
def test_greedy_tokens_of_a_trained_model_are_those_of_transformers(name: str, stories: Path, tmp_path: Path) -> None:
    from sample_apps.desktop.pretrain import ensure_model

    trained = stories if name == "stories260K" else ensure_model()
    make(trained, tmp_path)
    with PersonalModel.open(tmp_path / "bundle", tmp_path / "state", engine="executorch") as model:
        model.import_adapter(tmp_path / "adapters" / "0", trust_base=True)
        check_greedy_tokens(model, Oracle(tmp_path, 0, trained), 512, name)


def check_greedy_tokens(model: PersonalModel, oracle: Oracle, vocabulary: int, name: str) -> None:
    """Compares greedy tokens in conversations of random tokens, three turns each."""
    conversations = 20 if full() else 2
    numbers = np.random.default_rng(seed := new_seed())
    same = clear = tokens = 0
    for _ in range(conversations):
        seen: list[int] = []
        with model.conversation(max_tokens=45) as conversation:
            for turn in random_turns(numbers, 3, 12, vocabulary):
                seen += turn
                said = answered(conversation, turn)
                found = agreement(oracle, seen, said)
                same, clear, tokens = same + found[0], clear + found[1], tokens + len(said)
                seen += said
    assert clear >= 0.98 * tokens
    counts = {"turns": 3 * conversations, "tokens": tokens, "as in transformers and peft": same, "of them clear": clear}
    record_check(f"greedy tokens of sessions, {name}", counts, seed)


def test_drawn_tokens_are_those_of_the_reference(model: PersonalModel, folder: Path) -> None:
    settings: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "top_k": 50, "seed": 2**63 + 5}
    prompt = [5, 17, 99]
    with read_bundle(folder / "bundle") as bundle:
        adapter = exported_adapter(folder / "adapters" / "0", bundle.manifest)
        expected = list(generate(bundle, prompt, adapter, max_tokens=40, **settings))
    assert list(model.generate_ids(prompt, max_tokens=40, **settings)) == expected
    assert list(model.generate_ids(prompt, max_tokens=40, **{**settings, "seed": 6})) != expected


def test_scores_of_answers_are_those_of_transformers(model: PersonalModel, oracle: Oracle) -> None:
    numbers = np.random.default_rng(new_seed())
    prompt = numbers.integers(3, VOCABULARY, 20).tolist()
    stems = [numbers.integers(3, VOCABULARY, numbers.integers(1, 4)).tolist() for _ in range(3)]
    answers = [
        [*stems[place % 3], *numbers.integers(3, VOCABULARY, numbers.integers(0, 4)).tolist()] for place in range(12)
    ]
    found = model.score(prompt, answers)
    for answer, score in zip(answers, found, strict=True):
        logits = torch.from_numpy(oracle.logits([*prompt, *answer])).double()[len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1)[range(len(answer)), answer].sum().item()
        assert score.log_probability == pytest.approx(expected, rel=1e-4)
        assert score.tokens == len(answer)


@one_family
def test_a_prompt_that_begins_as_the_one_before_answers_as_if_it_came_first(model: PersonalModel) -> None:
    long, other = [(7 * place) % 100 + 3 for place in range(90)], [9] * 30
    first = {size: list(model.generate_ids(long[:size], max_tokens=8)) for size in (90, 70, 33, 1)}
    for size in (33, 90, 1, 70, 90, 33):
        assert list(model.generate_ids(long[:size], max_tokens=8)) == first[size]
        list(model.generate_ids(other, max_tokens=2))


@one_family
def test_two_sessions_in_turn_answer_as_each_alone(model: PersonalModel) -> None:
    prompts = [[11, 12, 13, 14], [90, 80, 70]]
    alone = [list(model.generate_ids(prompt, max_tokens=12)) for prompt in prompts]
    with model.conversation(max_tokens=12) as one, model.conversation(max_tokens=12) as other:
        one.feed(prompts[0])
        other.feed(prompts[1])
        together = [[next(conversation).token for _ in range(12)] for conversation in (one, other)]
        assert together == alone
        one.feed([1])
        other.feed([2])
        for _ in range(6):
            next(one)
            next(other)


def test_each_answer_is_of_the_adapter_that_answered_when_it_began(
    model: PersonalModel, folder: Path, oracle: Oracle
) -> None:
    oracles, seen = [oracle, Oracle(folder, 1)], [5, 6, 7]
    with model.conversation(max_tokens=10) as conversation:
        conversation.feed(seen)
        for number in (0, 1, 0):
            said = [next(conversation).token for _ in range(4)]
            if number:
                model.rollback()
            else:
                model.import_adapter(folder / "adapters" / "1", trust_base=True)
            said += [piece.token for piece in conversation]
            assert len(said) == 10
            agreement(oracles[number], seen, said)  # type: ignore[arg-type]
            seen += [*said, 9]  # type: ignore[list-item]
            conversation.feed([9])


@one_family
def test_training_between_two_tokens_ends_nothing(model: PersonalModel) -> None:
    for number in range(6):
        model.examples.add({"tokens": [3 + number, 20, 21, 22]})
    whole = list(model.generate_ids([40, 41], max_tokens=10))
    with model.conversation(max_tokens=10) as conversation:
        conversation.feed([40, 41])
        first = [next(conversation).token for _ in range(4)]
        done: list[int] = []
        report = model.train(run_steps=3, on_step=lambda step, _: done.append(step), stop=lambda: bool(done))
        assert report.steps >= 1
        assert report.accepted is None  # the run has not ended
        assert first + [piece.token for piece in conversation] == whole


@one_family
def test_a_session_ends_where_its_context_is_full(model: PersonalModel) -> None:
    with pytest.raises(GenerationError, match=f"1 to {CONTEXT - 1} tokens"):
        model.generate_ids([7] * CONTEXT)
    assert len(list(model.generate_ids([7] * (CONTEXT - 1), max_tokens=9))) == 2
    with model.conversation() as conversation:
        assert len(answered(conversation, [7] * 100)) == CONTEXT - 100 + 1
        assert conversation.stopped_because == "context_full"
        assert answered(conversation, [7]) == []
        assert conversation.stopped_because == "context_full"
    with model.conversation(max_tokens=3) as conversation:
        answered(conversation, [7] * 100)
        assert answered(conversation, [7] * 100) == []  # nothing of it was taken
        assert conversation.stopped_because == "context_full"
        assert len(answered(conversation, [7])) == 3
        assert conversation.stopped_because == "max_tokens"


@one_family
def test_what_cannot_be_fed_changes_nothing(model: PersonalModel) -> None:
    with model.conversation(max_tokens=4) as conversation:
        assert list(conversation) == []
        of_ids_only = (("text", DataError), ([{"role": "user"}], DataError))
        for wrong, error in (([], GenerationError), ([VOCABULARY], DataError), *of_ids_only):
            with pytest.raises(error):
                conversation.feed(wrong)
        answered(conversation, [1, 2])
        for wrong, error in (([VOCABULARY], DataError), ([1.5], DataError), (None, GenerationError)):
            with pytest.raises(error):
                conversation.feed(wrong)  # type: ignore[arg-type]
        rest = answered(conversation, [3])
    with model.conversation(max_tokens=4) as conversation:
        answered(conversation, [1, 2])
        assert answered(conversation, [3]) == rest


@one_family
def test_a_limit_that_is_lowered_ends_no_conversation(model: PersonalModel) -> None:
    whole = list(model.generate_ids([40, 41], max_tokens=10))
    with model.conversation(max_tokens=10) as conversation:
        conversation.feed([40, 41])
        first = [next(conversation).token for _ in range(4)]
        model.set_limit(1)
        with pytest.raises(BudgetExceeded):
            next(conversation)
        model.set_limit(None)
        assert first + [piece.token for piece in conversation] == whole


def process_of(model: PersonalModel) -> subprocess.Popen[bytes]:
    core = model._engine._answering._core  # type: ignore[attr-defined]
    assert core is not None
    return core.process


@one_family
def test_answers_go_on_whichever_threads_ask_for_them(model: PersonalModel) -> None:
    """Each in a thread of its own, as a web server does it: the process that answers outlives the thread that started it."""
    whole = list(model.generate_ids([40, 41], max_tokens=6))
    conversation = model.conversation(max_tokens=6).feed([40, 41])
    said: list[int | None] = []

    def ask() -> None:
        said.append(next(conversation).token)

    for _ in range(6):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        time.sleep(0.05)
    assert said == whole
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: list(model.generate_ids([40, 41], max_tokens=6))).result() == whole


@one_family
def test_a_text_that_is_no_unicode_is_refused_and_the_next_call_answers(model: PersonalModel) -> None:
    with pytest.raises(DataError, match="surrogate"):
        model.conversation(stop_texts=["\ud800"])
    with pytest.raises(DataError, match="surrogate"):
        model.score("\ud800", ["a"])
    # What the SDK should have refused, the core answers: nobody waits.
    with pytest.raises(BespokeError, match="a line of standard input"):
        model._engine.open_conversation(Generation(stop_texts=("\ud800",)))
    assert len(list(model.generate_ids([40, 41], max_tokens=3))) == 3


@one_family
def test_a_prompt_that_no_line_holds_is_an_error(model: PersonalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = model.conversation(max_tokens=4).feed([40, 41])
    next(conversation)
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 10_000)
    with pytest.raises(DataError, match="at most 10,000"):
        model.conversation().feed([1] * 10_000)
    assert next(conversation).token is not None


@one_family
def test_a_thousand_sessions_need_no_more_memory_than_a_hundred(model: PersonalModel) -> None:
    def converse(conversations: int) -> int:
        """Anonymous memory of the process that answers, afterwards."""
        for number in range(conversations):
            with model.conversation(temperature=1.0, seed=number) as conversation:
                conversation.feed([5 + number % 100, 6, 7])
                for _ in range(number % 4):
                    next(conversation)
        status = Path(f"/proc/{process_of(model).pid}/status").read_text()
        return 1024 * int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])

    few = converse(100)
    assert converse(900) - few < 256 * 1024


@one_family
def test_a_process_that_is_killed_while_it_answers_leaves_the_state_as_it_was(
    model: PersonalModel, tmp_path: Path
) -> None:
    whole = list(model.generate_ids([40, 41], max_tokens=10))
    before = state_bits(tmp_path / "state")
    for after in range(5):
        conversation = model.conversation(max_tokens=10)
        conversation.feed([40, 41])
        for _ in range(after):
            next(conversation)
        process_of(model).kill()
        with pytest.raises(BespokeError, match="SIGKILL"):
            list(conversation)
        with pytest.raises(StateError, match="process has ended"):
            conversation.feed([1])
        conversation.close()
        assert state_bits(tmp_path / "state") == before
        assert list(model.generate_ids([40, 41], max_tokens=10)) == whole


@pytest.mark.slow
@one_family
def test_of_two_threads_one_is_told_that_the_model_is_busy_and_loses_no_token(model: PersonalModel) -> None:
    prompts = [[40, 41], [90, 80, 70]]
    alone = [list(model.generate_ids(prompt, max_tokens=60)) for prompt in prompts]
    model.set_pace(0.1)  # so that there is time to meet
    busy = []

    def said(prompt: list[int]) -> list[int]:
        found: list[int] = []
        with model.conversation(max_tokens=60) as conversation:
            conversation.feed(prompt)
            while conversation.stopped_because is None:
                try:
                    piece = next(conversation)
                    found += [] if piece.token is None else [piece.token]
                except Busy as told:
                    busy.append(told)
        return found

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(said, prompts)) == alone
    assert busy


@one_family
def test_what_is_closed_answers_no_more(model: PersonalModel) -> None:
    conversation = model.conversation()
    conversation.feed([1])
    next(conversation)
    conversation.close()
    conversation.close()
    with pytest.raises(StateError):
        conversation.feed([2])
    other = model.conversation()
    other.feed([1])
    model.close()
    with pytest.raises(StateError):
        other.feed([1])
    assert list(other) == []
