# SPDX-License-Identifier: Apache-2.0
"""Answering: the calls of a personal model that use the adapter that answers, and change nothing."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from bespoke import arguments
from bespoke.bundle.reader import Bundle
from bespoke.conversation import Conversation, answers_json, check_prompt, generation_of, prompt_json
from bespoke.core.answers import Judged, classification_of, scores_of
from bespoke.core.engine import Engine
from bespoke.core.handle import Handle
from bespoke.data.example_json import example_json
from bespoke.errors import DataError, GenerationError, kind_of
from bespoke.remedies import setting, verb
from bespoke.rules.records import AnswerPiece, Classification, Description, Score
from bespoke.rules.report import AnswerPair, BehaviourReport, Evaluation
from bespoke.tasks import Task, TaskReport, judge

if TYPE_CHECKING:
    from bespoke.data.behaviour import AskedRow

__all__ = ["ANSWER_TOKENS", "AnsweringModel", "behaviour_prompts"]

_ASKED = 3  # prompts whose answers `evaluate_behaviour` shows
ANSWER_TOKENS = 96  # as many as a build lets the base answer with


class AnsweringModel:
    """The part of `PersonalModel` that evaluates, answers and says what it is."""

    def __init__(self, bundle: Bundle, core: Handle, engine: Engine) -> None:
        self._bundle = bundle
        self._core = core
        self._engine = engine
        self._conversations: weakref.WeakSet[Conversation] = weakref.WeakSet()

    @property
    def has_turns(self) -> bool:
        """Whether the model has chat turns. Then a prompt may be messages; else it is a text to continue."""
        return self._bundle.manifest.text.turns is not None

    @overload
    def evaluate(self, examples: Task) -> TaskReport: ...

    @overload
    def evaluate(
        self, examples: Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation"
    ) -> Evaluation: ...

    def evaluate(
        self, examples: Task | Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation"
    ) -> Evaluation | TaskReport:
        """Measures the adapter that answers: loss, perplexity and next-token accuracy, or how often its answers are right.

        Args:
            examples: Examples to evaluate on. A `Task` of `bespoke.tasks.read_task` asks for answers and compares them with the
                right ones. None: the user's own examples.
            split: Which of the user's own examples: "validation", those held out of training, or "train". Ignored with `examples`.
        """
        if isinstance(examples, Task):
            return judge(self, examples)
        arguments.one_of("split", split, ("validation", "train"))
        if examples is not None and (not isinstance(examples, Sequence) or isinstance(examples, str | bytes)):
            raise DataError(
                setting("examples"),
                got=kind_of(examples),
                expected="a list of examples",
                next_step="Give them as a list",
            )
        self._core.check_open()
        texts = None
        if examples is not None:
            texts = [example_json(example, f"example {number}") for number, example in enumerate(examples, 1)]
        return self._engine.evaluate(split, texts)

    def evaluate_behaviour(self) -> BehaviourReport:
        """Measures what the adapter that answers does with prompts of other kinds, and what the base model does.

        The bundle has the base's answers to such prompts. The report has the loss of both on them. It also has three of the prompts
        with the base's answer and that of today, if the bundle has a tokenizer and a plan for answers.

        Raises DataError for a bundle without such answers.
        """
        self._core.check_open()
        evaluation = self._engine.evaluate("behaviour", None)
        pairs = []
        for one in behaviour_prompts(self._bundle):
            room = self._bundle.manifest.context_length - len(one.prompt)
            now = one.decode(list(self.generate_ids(one.prompt, max_tokens=min(ANSWER_TOKENS, room))))
            pairs.append(AnswerPair(one.words, one.answer, now))
        return BehaviourReport(evaluation, tuple(pairs))

    def conversation(
        self,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
        stop_texts: Sequence[str] = (),
        notes: bool = False,
    ) -> Conversation:
        """Opens a conversation, which keeps its KV cache from one answer to the next.

        Args:
            max_tokens: Most tokens of one answer. None: as many as fit in the bundle's context.
            temperature: 0 takes the likeliest token. A higher value draws tokens with more variety; 0.7 is usual for chat.
            top_p: Draws from the likeliest tokens whose probabilities add up to this. 1: from all. Lower it to avoid odd words.
            top_k: Draws from this many of the likeliest tokens. None: from all.
            seed: Seed of the draws. The same seed and the same prompts give the same answers.
            stop_texts: Texts that end an answer. They are not a part of it.
            notes: Whether the model reads, with each question, the notes among the user's examples that are nearest to it. At most
                three, in at most a quarter of the context. They stay in the conversation.
        """
        generation = generation_of(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop_texts=stop_texts,
            notes=notes,
        )
        self._core.check_open()
        conversation = Conversation(self._engine.open_conversation(generation), self._core.check_open)
        self._conversations.add(conversation)
        return conversation

    def generate(
        self,
        prompt: str | Sequence[Any],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
        stop_texts: Sequence[str] = (),
        notes: bool = False,
    ) -> Iterator[str]:
        """Returns the answer to a prompt, in pieces of text as they are computed.

        Args:
            prompt: Messages, a text to continue, or token ids.
            max_tokens: Most tokens of the answer.
            temperature, top_p, top_k, seed, stop_texts, notes: As for `conversation`.
        """
        if self._bundle.manifest.text.tokenizer_bin is None:
            check_prompt(prompt)
            raise GenerationError(
                "prompt",
                got="a bundle that takes token ids only",
                expected="a bundle with a tokenizer",
                next_step="Use " + verb("generate_ids"),
            )
        pieces = self._answer(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop_texts=stop_texts,
            notes=notes,
        )
        return (piece.text for piece in pieces if piece.text)

    def generate_ids(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> Iterator[int]:
        """Returns the answer to token ids, as token ids.

        Args:
            prompt: Token ids.
            max_tokens: Most tokens of the answer.
            temperature, top_p, top_k, seed: As for `conversation`.
        """
        ids = arguments.token_ids("prompt", prompt, self._bundle.manifest.text.vocab_size)
        pieces = self._answer(ids, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        return (piece.token for piece in pieces if piece.token is not None)

    def score(self, prompt: str | Sequence[Any], answers: Sequence[str | Sequence[int]]) -> list[Score]:
        """Returns the log-probability of each answer to a prompt. A common beginning of several answers is computed once.

        Args:
            prompt: Messages, a text, or token ids.
            answers: Texts. Token ids where the prompt is token ids.
        """
        return scores_of(self._judge("score", prompt_json(prompt), answers_json("answers", answers)))

    def classify(self, prompt: str | Sequence[Any], labels: Sequence[str]) -> Classification:
        """Returns the likeliest label as the answer to a prompt. Computes only the tokens that tell the labels apart.

        Args:
            prompt: Messages, a text, or token ids.
            labels: The texts to choose from.
        """
        return classification_of(self._judge("classify", prompt_json(prompt), answers_json("labels", labels)))

    def describe(self) -> Description:
        """What the open bundle is: its model, licence, context, methods and targets."""
        return self._core.describe()

    def count_tokens(self, prompt: str | Sequence[Any]) -> int:
        """How many tokens a prompt takes, as a new conversation would read it: messages, a text or token ids."""
        return self._core.count_tokens(prompt_json(prompt))

    def trim(self) -> None:
        """Gives the memory back that the model keeps between calls. The next answer computes its conversation again.

        Raises Busy while a call computes.
        """
        self._core.trim()
        self._engine.trim()

    def _judge(self, what: Judged, prompt: str, answers: str) -> Any:
        self._core.check_open()
        return self._engine.judge(what, prompt, answers)

    def _answer(self, prompt: str | Sequence[Any], **settings: Any) -> Iterator[AnswerPiece]:
        """Returns the pieces of one answer. Raises an error about the prompt at once, not with the first piece."""
        check_prompt(prompt)
        conversation = self.conversation(**settings)
        try:
            conversation.feed(prompt)
        except BaseException:
            conversation.close()
            raise

        def pieces() -> Iterator[AnswerPiece]:
            with conversation:
                yield from conversation

        return pieces()


def behaviour_prompts(bundle: Bundle) -> list[AskedRow]:
    """Returns three prompts of kinds that are never trained on, with the base model's answers.

    None are returned if the bundle has no such answers, no tokenizer or no plan for answers.
    """
    from bespoke.data.behaviour import asked_rows  # here: it imports the tokenizer's library

    manifest = bundle.manifest
    if manifest.data.behaviour is None or manifest.generation is None:
        return []
    asked = asked_rows(bundle.mapped(manifest.data.behaviour), manifest.text, bundle.read, _ASKED)
    return [row for row in asked if len(row.prompt) < manifest.context_length]
