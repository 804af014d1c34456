# SPDX-License-Identifier: Apache-2.0
"""Reports of training and evaluation: their fields with units, and tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

ComputedBy = Literal[
    "core", "torch", "gpu", "gpu_interpreter"
]  # the last: kernels of a GPU in an interpreter, on the processor
Factors = Literal["both", "B"]
StoppedBecause = Literal[
    "finished", "steps_done", "stop_requested", "example_forgotten", "diverged", "deadline", "no_better"
]
# The user's examples that the gate judges: held-out ones, or trained ones if none are held out.
JudgedOn = Literal["validation", "train"]
# Why a run was not accepted. "luck": its gain may be chance. "too_small": the gain is not chance, but too small to be useful.
# "withdrawn": an example was forgotten meanwhile, or the adapter was rolled back.
RefusedBecause = Literal[
    "diverged",
    "nothing_to_judge_by",
    "no_better",
    "luck",
    "too_small",
    "general_worse",
    "withdrawn",
    "behaviour_worse",
    "answers_endless",
    "answers_empty",
    "answers_copied",
]
# Why the gate checked no answers: the bundle has no plan for answers, no such plan fits the memory limit, or the base has too few
# short answers.
UncheckedBecause = Literal["no_plan", "no_room", "few_answers"]
Phase = Literal[
    "open", "judge", "step", "commit", "decode", "store"
]  # reported when it begins; "step": when a step ends
Stage = Literal["forward", "head", "backward", "update"]  # the calls of a step by their purpose
STAGES: tuple[str, ...] = get_args(Stage)
_UNFINISHED = ("steps_done", "stop_requested", "deadline")  # the next call continues the run


@dataclass(frozen=True)
class Progress:
    """The progress of a call of `train`."""

    phase: Phase
    step: int  # steps of the run that are done
    steps: int  # planned steps of the run; 0 before there is a run
    loss: float | None  # nats a token, of the step that has just ended; None in other phases
    footprint_bytes: int  # memory of the process that computes, as the system counts it


Listener = Callable[[Progress], None]


@dataclass(frozen=True)
class Evaluation:
    """Means over the unmasked tokens of some examples."""

    loss: float  # nats per token
    perplexity: float
    accuracy: float  # share of tokens that the most likely next token predicts
    tokens: int
    examples: int
    runtime: ComputedBy = "torch"
    base_loss: float | None = None  # nats per token, of the base model; only where its own answers are looked at

    def __str__(self) -> str:
        base = "" if self.base_loss is None else f" (the base model: {self.base_loss:.4f})"
        return _table(
            ("loss", f"{self.loss:.4f} nats a token{base}"),
            ("perplexity", f"{self.perplexity:.2f}"),
            ("accuracy", f"{self.accuracy:.1%} of the next tokens"),
            ("looked at", f"{self.tokens} tokens of {self.examples} examples"),
            ("runtime", self.runtime),
        )


@dataclass(frozen=True)
class AnswerPair:
    """The answers to a prompt: the base model's, and that of the adapter that answers."""

    prompt: str
    base: str
    now: str


@dataclass(frozen=True)
class BehaviourReport:
    """What the adapter that answers does with prompts of kinds that it was never trained on."""

    evaluation: Evaluation  # on the base model's answers, with the base's own loss
    answers: tuple[AnswerPair, ...]

    def __str__(self) -> str:
        pairs = (("question", pair.prompt, "base", pair.base, "now", pair.now) for pair in self.answers)
        tables = [_table(*zip(pair[::2], map(_one_line, pair[1::2]), strict=True)) for pair in pairs]
        return "\n\n".join([str(self.evaluation), *tables])


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a call of `train`, in bytes.

    `peak_bytes` is anonymous memory: on the core that of the whole process, on torch what training added to the idle process.
    Mapped and file pages are not part of it. `planned_for_bytes` is the bundle's budget that the plans in use were compiled for.
    `limit_bytes` is the limit that was set.
    """

    idle_bytes: int
    estimate_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    mapped_dirty_bytes: int
    file_bytes: int
    planned_for_bytes: int | None = None
    enforced_by: str = "none"  # the system's mechanism that holds the limit: cgroup2, cgroup1 or rlimit_data


@dataclass(frozen=True)
class JudgedStep:
    """A judged step of a run. Its loss is on the held-out examples that choose the best step, not on the gate's."""

    step: int
    loss: float  # nats per token


@dataclass(frozen=True)
class TrainReport:
    """The report of a call of `train`."""

    method: str
    run: int
    steps: int
    total_steps: int
    tokens: int
    losses: tuple[float, ...]
    rejected_steps: int
    validation_loss_before: float | None
    validation_loss: float | None
    general_loss_before: float | None
    general_loss: float | None
    judged_on: JudgedOn | None
    accepted: bool | None  # the gate's verdict; None while the run has not ended and is not judged
    stopped_because: StoppedBecause
    memory: MemoryReport
    step_peak_bytes: tuple[int, ...]  # for each step, on top of the idle process; includes an abandoned last step
    bytes_written: int
    seconds: float
    judged_tokens: int = 0  # tokens of the held-out rows that the gate judged, a sample if there are many
    judged_of_tokens: int = 0  # tokens of all the held-out rows
    judged_examples: int = 0  # the user's examples that the gate judged
    gain: float | None = None  # nats a token by which the loss on the user's examples fell
    least_gain: float | None = None  # the gain that rules out chance
    useful_gain: float | None = None  # the gain that is useful: a share of the loss before (Training.useful_gain)
    refused_because: RefusedBecause | None = None
    judgements: tuple[JudgedStep, ...] = ()  # of the whole run so far
    best_step: int | None = (
        None  # the judged step with the lowest loss, which the gate judges; None: it judges the last step
    )
    runtime: ComputedBy = "torch"
    run_bytes_written: int = 0  # by the run so far to files of its state: slots, best steps, the accepted adapter
    bytes_read: int = 0  # read from storage, that is, not from the page cache
    step_seconds: tuple[float, ...] = ()
    seconds_by_stage: dict[str, float] = field(default_factory=dict)  # STAGES -> seconds in the calls of the steps
    longest_instruction_seconds: float = 0.0  # a stop may have to wait for it, and then for a commit
    longest_commit_seconds: float = 0.0
    # Bytes at each step's peak: anonymous, shmem, swap, file. Only the core reports them.
    memory_columns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    trains: Factors = "both"  # the trained factors of the adapter: A and B, or B alone
    # Of the bundle's behaviour rows, the base model's answers to other prompts: nats a token of the base and of the new adapter.
    behaviour_loss_base: float | None = None
    behaviour_loss: float | None = None
    behaviour_tokens: int = 0  # tokens of the behaviour rows that were judged, a sample if there are many
    # What the gate multiplied the learned change of the weights by, so that answers to other questions stay within the tolerance.
    # None: all of it was kept.
    adapter_scale: float | None = None
    checked_answers: int = 0  # answers of the new adapter that were checked
    answer_tokens: float | None = None  # mean length of those answers
    base_answer_tokens: float | None = None  # mean length of the base's answers to the same prompts
    first_tokens_kept: float | None = None  # share of the first tokens that are equal to the base's
    answers_unchecked_because: UncheckedBecause | None = None

    @property
    def peak_bytes(self) -> int:
        return self.memory.peak_bytes

    @property
    def judged(self) -> bool:
        """Whether the gate has compared the new adapter with the one that answers. It does so when a run ends."""
        return self.accepted is not None

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values, which `bespoke train --format json` prints."""
        return {**asdict(self), "peak_bytes": self.peak_bytes}

    def __str__(self) -> str:
        """The table that `bespoke train` prints."""
        return _table(*self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        memory = self.memory
        rows = [
            (
                "run",
                f"{self.run}, method {self.method}{', B alone' if self.trains == 'B' else ''}, runtime {self.runtime}",
            ),
            ("steps", f"{self.steps} ({self.total_steps} of the run so far), {self.tokens} tokens, {self._pace()}"),
            ("loss", self._training_loss()),
        ]
        if self.judgements:
            rows.append(("best step", f"{self.best_step}, of {len(self.judgements)} judged"))
        if self.judged_on is not None:
            rows.append(
                (f"{self.judged_on} loss", _change(self.validation_loss_before, self.validation_loss) + self._judged())
            )
        if self.general_loss_before is not None:
            rows.append(("general loss", _change(self.general_loss_before, self.general_loss)))
        if self.behaviour_loss_base is not None:
            rows.append(("behaviour", self._behaviour()))
        rows += [("accepted", self._verdict()), ("stopped because", self.stopped_because)]
        if (spent := sum(self.seconds_by_stage.values())) > 0:
            rows.append(("share", ", ".join(f"{stage} {s / spent:.0%}" for stage, s in self.seconds_by_stage.items())))
        planned_for = memory.planned_for_bytes
        by = f" by the plans for {megabytes(planned_for)}" if planned_for not in (None, memory.limit_bytes) else ""
        over = (
            "of the whole process"
            if self.runtime == "core"
            else f"over an idle process of {megabytes(memory.idle_bytes)}"
        )
        rows += [
            (
                "memory",
                f"peak {megabytes(memory.peak_bytes)}, estimate {megabytes(memory.estimate_bytes)}{by}, "
                f"limit {megabytes(memory.limit_bytes)} (enforced by {memory.enforced_by}); {over}",
            ),
            ("mapped", f"dirty {megabytes(memory.mapped_dirty_bytes)}, file pages {megabytes(memory.file_bytes)}"),
        ]

        if self.memory_columns.get("anonymous"):
            rows.append(
                ("at steps' peaks", ", ".join(_range(name, column) for name, column in self.memory_columns.items()))
            )
        written = (
            f"written {megabytes(self.bytes_written)} (files of the run so far {megabytes(self.run_bytes_written)})"
        )
        rows.append(("disk", f"{written}, read {megabytes(self.bytes_read)}"))
        return rows

    def _pace(self) -> str:
        if not self.step_seconds:
            return f"{self.seconds:.1f} s"
        steps = sorted(self.step_seconds)
        return (
            f"{self.seconds:.1f} s; a step {steps[len(steps) // 2]:.3g} s (median; {steps[0]:.3g} to {steps[-1]:.3g})"
        )

    def _training_loss(self) -> str:
        losses = f"{self.losses[0]:.4f} -> {self.losses[-1]:.4f}" if self.losses else "no step was made"
        return losses + (f", {self.rejected_steps} steps rejected" if self.rejected_steps else "")

    @property
    def why_refused(self) -> str | None:
        """The reason for a refusal in words, None if nothing was refused."""
        match self.refused_because:
            case None:
                return None
            case "diverged":
                return "the loss was no number in three steps in a row"
            case "nothing_to_judge_by":
                return "there is no example and no text of the bundle's to judge it by"
            case "no_better":
                return f"the {self.judged_on} loss is not better"
            case "luck":
                return f"the {self.judged_on} loss is better by {self.gain:.4f}, and luck alone may make {self.least_gain:.4f}"
            case "too_small":
                return f"{self._gained()}, and less than {self.useful_gain:.2g} is of no use"
            case "general_worse":
                before, after = self.general_loss_before or 0.0, self.general_loss
                change = (
                    f"{after / before - 1:.1%} worse"
                    if after is not None and before and after > before
                    else "not better"
                )
                return f"the loss on the bundle's own texts is {change}"
            case "withdrawn":
                return "an example was forgotten meanwhile, or the adapter rolled back"
            case "behaviour_worse":
                return f"answers to other questions became much worse ({self._behaviour_losses()})"
            case "answers_endless":
                return "answers to other questions do not end any more"
            case "answers_empty":
                return "answers to other questions are empty"
            case "answers_copied":
                return "answers to other questions repeat what was learned"

    def _behaviour(self) -> str:
        """The judgement of the adapter's answers to other questions, in words."""
        words = f"answers to other questions: {self._behaviour_losses()}, on {self.behaviour_tokens} tokens"
        if self.checked_answers:
            return (
                f"{words}; {self.checked_answers} answers checked, {self.answer_tokens:.0f} tokens long"
                f" (the base's {self.base_answer_tokens:.0f}), {self.first_tokens_kept:.0%} of their first tokens as the base's"
            )
        match self.answers_unchecked_because:
            case None:
                return words
            case "no_plan":
                return f"{words}; answers were not checked: the bundle has no plan for answers"
            case "no_room":
                return f"{words}; answers were not checked: the bundle's plans for answers do not fit the memory limit"
            case "few_answers":
                return f"{words}; answers were not checked: the base has too few short answers"

    def _behaviour_losses(self) -> str:
        new = "none" if self.behaviour_loss is None else f"{self.behaviour_loss:.3f}"
        return f"{new} nats a token, the base's own {self.behaviour_loss_base:.3f}"

    def _gained(self) -> str:
        """The gain in words, on the loss that decides. Without an example that is the general loss."""
        if self.judged_on is not None:
            return f"the {self.judged_on} loss is better by {self.gain:.2g}"
        gain = (self.general_loss_before or 0.0) - (self.general_loss or 0.0)
        return f"the loss on the bundle's own texts is better by {gain:.2g}"

    def _judged(self) -> str:
        """What the gate's judgement rests on, and the part of the gain that may be chance."""
        of = f" of {self.judged_of_tokens}" if self.judged_tokens < self.judged_of_tokens else ""
        luck = "" if self.least_gain is None else f", of which luck may be {self.least_gain:.4f}"
        gain = "" if self.gain is None else f" (better by {self.gain:.4f}{luck})" if self.gain > 0 else " (no better)"
        return f"{gain}, on {self.judged_tokens}{of} tokens of {self.judged_examples} examples"

    def _verdict(self) -> str:
        """The gate's verdict in words."""
        if self.adapter_scale is not None:
            share = f"yes, with {self.adapter_scale:.0%} of the change that was learned"
            return f"{share}: all of it made answers to other questions much worse"
        if self.accepted:
            return "yes"
        if self.judged:
            return f"no: {self.why_refused}; the adapter before it answers"
        if self.stopped_because in _UNFINISHED:
            return "not judged yet: train again to go on; meanwhile the adapter before it answers"
        return "not judged: an example was forgotten, which ended the run; the adapter before it answers"


def megabytes(size: int | None) -> str:
    return "none" if size is None else f"{size / 1e6:.1f} MB"


def _table(*rows: tuple[str, str]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:<{width}}{value}" for name, value in rows)


def _one_line(text: str) -> str:
    return " ".join(text.split()) or "(nothing)"


def _range(name: str, column: Sequence[int]) -> str:
    least, most = min(column) / 1e6, max(column) / 1e6
    return f"{name} {most:.1f} MB" if most - least < 0.05 else f"{name} {least:.1f} to {most:.1f} MB"


def _change(before: float | None, after: float | None) -> str:
    return " -> ".join("none" if loss is None else f"{loss:.4f}" for loss in (before, after))
