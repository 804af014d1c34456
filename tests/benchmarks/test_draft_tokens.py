# SPDX-License-Identifier: Apache-2.0
"""Seconds a token of SmolLM2-135M-Instruct with and without draft tokens, taking turns: questions of a chat, and answers that quote
a note or an email of the prompt. The answers have to be equal. Needs a machine left alone.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, write_table
from tests.benchmarks.paced import paired_ratio

from bespoke import Personalizer, PersonalModel

DRAFT_TOKENS = (0, 1, 3, 7)
ROUNDS, MOST_TOKENS = 2, 120
TICK = os.sysconf("SC_CLK_TCK")
NOTE = (
    "The bakery at the corner of Mill Lane opens at half past six on weekdays and at eight on Sundays. Mrs Okafor keeps back two "
    "rye loaves for us if we call before noon, and the phone number is 555 0142."
)
EMAIL = (
    "Dear Mr Silva, thank you for your offer of 12 March. We accept the price of 1,450 euros for the repair of the roof. Please "
    "begin on Monday the 24th, and bring the tiles that you showed us. The key is with our neighbour, Mrs Costa, at number 17."
)
PROMPTS = {
    "a question": (
        "Why is the sky blue? Explain in a few sentences.",
        "Write a short story about a lighthouse keeper.",
        "What should I cook tonight with eggs, rice and spinach?",
        "Tell me about the history of coffee.",
    ),
    "words of the prompt": (
        f'Here is a note: "{NOTE}"\n\nRepeat the note word for word.',
        f'Here is a note: "{NOTE}"\n\nWhen does the bakery open, and what does Mrs Okafor keep back? Answer with the words of the '
        "note.",
        f"Rewrite this email in a friendlier tone and keep all facts:\n\n{EMAIL}",
        f"Change nothing, only put each sentence of this text on its own line:\n\n{EMAIL}",
    ),
}
HEADER = (
    "the answer is to",
    "draft tokens",
    "ms a token",
    "time, times that without",
    "processor time, times that without",
)


def processor_seconds(model: PersonalModel) -> float:
    """Of the core's process, by all of its threads."""
    core = model._engine._answering._core  # type: ignore[attr-defined]
    fields = Path(f"/proc/{core.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def answered(model: PersonalModel, question: str) -> tuple[str, int, float, float]:
    """The answer, and its tokens after the first one, with the time and the processor time that these took."""
    with model.conversation(max_tokens=MOST_TOKENS) as conversation:
        conversation.feed([{"role": "user", "content": question}])
        text = next(conversation).text
        began, before, tokens = time.perf_counter(), processor_seconds(model), 0
        for piece in conversation:
            text, tokens = text + piece.text, tokens + 1
        return text, tokens, time.perf_counter() - began, processor_seconds(model) - before


@pytest.mark.benchmark
def test_answers_with_draft_tokens(smollm2: Path, tmp_path: Path) -> None:
    peaks = []
    rows: list[list[Cell]] = []
    with ExitStack() as opened:
        models = {}
        for count in DRAFT_TOKENS:
            bundle = tmp_path / str(count)
            Personalizer(smollm2, [], "executorch", draft_tokens=count, data=None).build(bundle)
            plan = json.loads((bundle / "manifest.json").read_bytes())["generation"]
            peaks.append(f"{plan['estimate']['peak_bytes'] / 1e6:.1f} MB with {count}")
            models[count] = opened.enter_context(
                PersonalModel.open(bundle, tmp_path / f"state-{count}", engine="executorch")
            )
        for kind, questions in PROMPTS.items():
            seconds: dict[int, list[float]] = {count: [] for count in DRAFT_TOKENS}  # of all answers of a round
            processor: dict[int, list[float]] = {count: [] for count in DRAFT_TOKENS}
            for _ in range(ROUNDS):
                said: dict[int, list[str]] = {count: [] for count in DRAFT_TOKENS}
                sums = {count: [0.0, 0.0, 0.0] for count in DRAFT_TOKENS}
                for question in questions:
                    for count, model in models.items():
                        text, *more = answered(model, question)
                        said[count].append(text)
                        sums[count] = [a + b for a, b in zip(sums[count], more, strict=True)]
                for count, (tokens, elapsed, used) in sums.items():
                    assert said[count] == said[0]
                    seconds[count].append(elapsed / tokens)
                    processor[count].append(used / tokens)
            for count in DRAFT_TOKENS:
                ratios = [paired_ratio(values[count], values[0]) for values in (seconds, processor)]
                rows.append([kind, count, 1e3 * statistics.median(seconds[count]), *ratios])
                print(rows[-1], flush=True)
    write_table(
        "draft_tokens",
        HEADER,
        rows,
        f"SmolLM2-135M-Instruct, greedy answers of at most {MOST_TOKENS} tokens to {len(PROMPTS['a question'])} prompts of each "
        f"kind. All answers are equal. Medians of {ROUNDS} rounds in which each takes a turn, and of the ratios within rounds. The "
        f"plan for answers takes {', '.join(peaks)}.",
    )
