# SPDX-License-Identifier: Apache-2.0
"""Records of a user's model: examples, runs, versions and answers. Every language has them; through the C API they pass as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Split = Literal["train", "validation"]
AdapterFormat = Literal["peft", "mlx", "gguf"]
AnswerEnd = Literal["stop_token", "stop_text", "max_tokens", "context_full"]


@dataclass(frozen=True)
class AddedExample:
    """An added example.

    created:                  False if the state already had an example with this id and content
    truncated_tokens:         tokens that did not fit: rows are at most as long as the bundle's longest sequence. It also counts
                              tokens that were to be trained on and are only context.
    truncated_trained_tokens: those of them that were to be trained on, so the example is not learned whole
    unused_keys:              keys that have no effect, with their counts. A key of a message is named `messages.name`. If there
                              are more than 32 different ones, the rest is counted together as "...".
    """

    id: str
    split: Split
    created: bool
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0
    unused_keys: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ExampleInfo:
    """A stored example. `rows` counts its rows of tokens (windows). `tokens` and `trained_tokens` are sums over them."""

    id: str
    split: Split
    json: dict[str, Any]
    tokens: int
    trained_tokens: int
    rows: int
    added_at: str


@dataclass(frozen=True)
class Forgotten:
    """What forgetting an example did.

    example:          whether the state had the example
    accepted_deleted: deleted versions, whose runs had seen it
    run_stopped:      whether an unfinished run had seen it and was stopped
    numbers_dropped:  rounds of federated learning whose numbers it had entered and that no server has confirmed: they are dropped
    rounds:           all rounds that it had entered. What was sent of them cannot be recalled.
    """

    example: bool
    accepted_deleted: int
    run_stopped: bool
    numbers_dropped: int = 0
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """A training run. `step` and `cursor` are those of the last commit, in a slot or in the journal."""

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
    """An accepted adapter. An imported one has a `source` and no `run_id`.

    `other_text` says that it was trained with another chat template or tokenizer than the bundle has now, so it does not answer.
    The next run starts from it and is compared with the adapter that answers.
    """

    id: int
    run_id: int | None
    step: int
    metrics: dict[str, Any]
    accepted_at: str
    source: str | None = None
    other_text: bool = False


@dataclass(frozen=True)
class Description:
    """What the open bundle is.

    model:          name of the base model, as it was built
    licence:        SPDX id or name of the weights' licence
    context_length: tokens of a conversation, answers included
    methods:        names of the methods that can train it, the default first
    targets:        names of the devices that it was compiled for
    takes_text:     whether it has a tokenizer. Otherwise prompts and examples are token ids.
    takes_messages: whether it has a chat template
    answers:        whether it has a plan for answers
    memory_bytes:   the budget that it was built for; None if it was built without one
    """

    model: str
    licence: str
    context_length: int
    methods: tuple[str, ...]
    targets: tuple[str, ...]
    takes_text: bool
    takes_messages: bool
    answers: bool
    memory_bytes: int | None


@dataclass(frozen=True)
class PlannedTraining:
    """The memory that training with a method takes, by its plans for one budget.

    memory_bytes: the budget that the plans were compiled for; None if the bundle was built without one
    peak_bytes:   the largest estimate of the plans: anonymous memory on top of the idle process
    replayable:   whether a step follows from a few numbers. That holds for methods with forward passes only, which take the least
                  memory.
    """

    method: str
    memory_bytes: int | None
    peak_bytes: int
    replayable: bool


@dataclass(frozen=True)
class AnswerPiece:
    """A piece of an answer: a token and the text that it completes.

    text:            whole characters, or nothing. Text that may begin a stop text comes with a later piece.
    token:           None if the chosen token ends answers
    tokens:          tokens of the answer so far
    stopped_because: set in the last piece. The model ended its turn ("stop_token"), a stop text follows ("stop_text"), the answer
                     has the requested number of tokens ("max_tokens"), or the context is full ("context_full").
    """

    text: str
    token: int | None
    tokens: int
    stopped_because: AnswerEnd | None


@dataclass(frozen=True)
class Score:
    """The natural logarithm of an answer's probability after a prompt. It includes the end of the answer."""

    log_probability: float
    tokens: int


@dataclass(frozen=True)
class Classification:
    """The most likely label, and the natural logarithm of its probability as the whole answer."""

    label: str
    log_probability: float


FederationStep = Literal["ask", "fetch", "take_part", "wait", "done"]
NotMeasured = Literal["not_asked", "measured_before", "no_examples", "budget_spent", "not_finite", "another_adapter"]


@dataclass(frozen=True)
class FederationStatus:
    """What the user takes part in, and what it has cost.

    task:          name of what is learned together; None if the bundle has no federation
    joined:        whether the user has given consent
    round:         last round that the shared adapter has followed
    rounds_sent:   rounds of which numbers were made to be sent
    pending:       rounds whose numbers no server has confirmed yet
    spent:         what these rounds have cost (rho of zero-concentrated differential privacy)
    budget:        most that may be spent; None: no limit, because there is no noise
    epsilon_spent: epsilon that follows from `spent` at a delta of 1e-5; None without noise, which promises nothing
    explanation:   what leaves the device, in words for the user
    """

    task: str | None
    joined: bool
    round: int
    rounds_sent: int
    pending: int
    spent: float
    budget: float | None
    epsilon_spent: float | None
    explanation: str


@dataclass(frozen=True)
class FederationRequest:
    """What the app does next for the federation.

    step:         "ask": post `body` to the server; "fetch": get `size` bytes of the file `sha256` from `offset` on; "take_part":
                  call that verb; "wait": ask again after `wait_seconds`; "done": the task has ended
    task:         name of the federation
    body:         the document to post, JSON (device_document); empty for other steps
    sha256:       the file to fetch; empty for other steps
    offset, size: bytes of the file that are wanted
    wait_seconds: 0 for other steps
    """

    step: FederationStep
    task: str
    body: str
    sha256: str
    offset: int
    size: int
    wait_seconds: float


@dataclass(frozen=True)
class FederationReport:
    """What taking part has done.

    round:                the round that the shared adapter has followed now
    followed:             rounds followed in this call
    measured:             round whose numbers were made in this call, or None
    numbers:              how many
    not_measured_because: why none was made
    differs:              whether the adapter was not the server's after a round. The next request asks for a snapshot.
    seconds:              duration of the call
    """

    round: int
    followed: int
    measured: int | None
    numbers: int
    not_measured_because: NotMeasured | None
    differs: bool
    seconds: float
