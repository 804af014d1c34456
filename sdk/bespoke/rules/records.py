# SPDX-License-Identifier: Apache-2.0
"""What the user's model says of what it keeps (examples, runs, versions) and of its answers. Every language has these records, in
JSON where they pass through the C API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "validation"]
AdapterFormat = Literal["peft", "mlx", "gguf"]
AnswerEnd = Literal["stop_token", "stop_text", "max_tokens", "context_full"]


@dataclass(frozen=True)
class AddedExample:
    """`created` is False where the same id with the same content was there already.

    `truncated_tokens`: how many tokens are in none of its rows, which are at most as long as the bundle's longest sequence, or only
    as context where they were to be trained on; `truncated_trained_tokens`: how many of them were to be trained on, so that not
    even what is learned is whole.
    `unused_keys`: how often the example has a key that says nothing here; one of its messages is named `messages.name`. Of more
    than 32 different ones, the others are counted together as "...".
    """

    id: str
    split: Split
    created: bool
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0
    unused_keys: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ExampleInfo:
    """An example as stored. `rows` counts its token rows (windows), `tokens` and `trained_tokens` sum over them."""

    id: str
    split: Split
    json: dict[str, Any]
    tokens: int
    trained_tokens: int
    rows: int
    added_at: str


@dataclass(frozen=True)
class Forgotten:
    """`example`: it was there. `accepted_deleted`: adapters that had seen it. `run_stopped`: an unfinished run had."""

    example: bool
    accepted_deleted: int
    run_stopped: bool


@dataclass(frozen=True)
class Run:
    """A training run. `step` and `cursor` are those of the last commit, by slot or by journal."""

    id: int
    method: str
    seed: int
    settings: dict[str, Any]
    steps: int
    started_from: int | None
    example_ids: tuple[str, ...]
    step: int
    cursor: dict[str, Any]
    ended_because: str | None
    started_at: str
    ended_at: str | None


@dataclass(frozen=True)
class Version:
    """An accepted adapter. `run_id` is None and `source` set where it was imported.

    `other_text`: it was trained with another chat template or tokenizer than the bundle has now, so it does not answer. The next
    run starts from it and is judged against what answers.
    """

    id: int
    run_id: int | None
    step: int
    metrics: dict[str, Any]
    accepted_at: str
    source: str | None = None
    other_text: bool = False


@dataclass(frozen=True)
class PlannedTraining:
    """What training takes with a method by its plans for one budget.

    memory_bytes: the budget that they were made for; None: the bundle was built without one
    peak_bytes:   of their estimates: anonymous memory over the idle process
    replayable:   a step follows from a few numbers, as with methods that run forward passes only, which take the least memory
    """

    method: str
    memory_bytes: int | None
    peak_bytes: int
    replayable: bool


@dataclass(frozen=True)
class AnswerPiece:
    """What an answer grew by: a token, and the text that it completes.

    text:    whole characters, or nothing; what may be the beginning of a stop text comes with a later piece
    token:   None where one was chosen that ends answers
    tokens:  of the answer so far
    stopped_because: of the last piece: the model ended its turn ("stop_token"), a stop text stands behind the text, the answer has
             as many tokens as were asked for, or the context has no room for another
    """

    text: str
    token: int | None
    tokens: int
    stopped_because: AnswerEnd | None


@dataclass(frozen=True)
class Score:
    """How likely an answer to a prompt is: the natural logarithm of its probability, over its tokens and what ends it."""

    log_probability: float
    tokens: int


@dataclass(frozen=True)
class Classification:
    """The likeliest of some labels, and the natural logarithm of its probability as the whole answer."""

    label: str
    log_probability: float
