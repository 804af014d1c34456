# SPDX-License-Identifier: Apache-2.0
"""PersonalModel: a bundle and one user's state. It takes examples, trains, accepts or refuses, answers, exports, forgets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bespoke import arguments
from bespoke.bundle.reader import Authenticated, Bundle, open_bundle
from bespoke.config import Training, settings_from
from bespoke.core import library
from bespoke.core.handle import Handle, Place, Request, reset_for_new_base
from bespoke.core.runtime import CoreRuntime, RuntimeName, chosen_runtime
from bespoke.data.encode import ExampleEncoder
from bespoke.data.example_json import example_id, example_json
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import (
    AdapterError,
    BudgetExceeded,
    ConfigError,
    DataError,
    GenerationError,
    MissingDependency,
    kind_of,
    shown,
)
from bespoke.reference.device import device_for, require_device
from bespoke.reference.exported import exported_adapter
from bespoke.rules.records import AddedExample, ExampleInfo, Forgotten, Version
from bespoke.rules.report import Evaluation, TrainReport, megabytes
from bespoke.rules.sampling import check_sampling
from bespoke.system.malloc import steady_malloc

if TYPE_CHECKING:
    from bespoke.core.in_process import InProcess
    from bespoke.reference.generate import Adapter, Answers


class Examples:
    """The user's examples. Tokenized when added, never while training."""

    def __init__(self, core: Handle) -> None:
        self._core = core

    def add(
        self, example: dict[str, Any], id: str | None = None, *, use: Literal["train"] | None = None
    ) -> AddedExample:
        """Keeps an example: {"messages": ...}, {"prompt": ..., "completion": ...}, {"text": ...} or {"tokens": ..., "mask": ...}.

        The same id with the same content changes nothing. What is longer than the bundle's longest sequence is cut, the oldest of
        the context first, and the result says by how much. With `use="train"` it is never held out to judge by: for facts that must
        be known. Raises DataError for what cannot be used or would train nothing.
        """
        if use is not None:
            arguments.one_of("use", use, ("train",))
        return self._core.add_example(example_json(example), None if id is None else example_id(id), use)

    def list(self) -> list[ExampleInfo]:
        """All examples, in the order in which they were added."""
        return self._core.examples()

    def forget(self, id: str) -> Forgotten:
        """Deletes an example at once, with every adapter that saw it; stops a run that uses it."""
        return self._core.forget(example_id(id))

    def __len__(self) -> int:
        return self._core.count_examples()


class PersonalModel:
    """Made by `open`; a context manager. Everything may raise BespokeError, and loses nothing then."""

    def __init__(self, bundle: Bundle, core: Handle, place: Place, memory_bytes: int | None, runtime: RuntimeName) -> None:
        self._bundle = bundle
        self._core = core
        self._place = place
        self._memory_bytes = memory_bytes
        self._share = 1.0
        self._child = CoreRuntime(place, memory_bytes)
        self._torch: InProcess | None = None
        self._answering_machine: Answers | None = None
        self._adapter: tuple[Version | None, Adapter] | None = None  # that answers, and its tensors
        self.runtime = runtime
        self.examples = Examples(core)

    @classmethod
    def open(
        cls, bundle: str | Path, state: str | Path, *, memory_mb: float | None = None, pin_sha256: str | None = None,
        public_key: bytes | None = None, require_authenticated: bool = False, runtime: RuntimeName | None = None,
    ) -> Self:  # fmt: skip
        """A bundle and the user's state folder, which is made where there is none.

        pin_sha256, public_key: the sha256 of manifest.json; the ed25519 key (32 bytes, or PEM) that must have signed it. A bundle
                    is code: ship it with one of them, and `require_authenticated` refuses to open it without
        memory_mb:  the limit of training, in MB of 10**6 bytes; by default the bundle's budget. With runtime "core" it is that of
                    the whole process that trains, with "torch" what training may add to this one
        runtime:    what `train` and `evaluate` run on: "core", the device core in a process of its own, or "torch". By default the
                    core, where the bundle was compiled for it
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        if memory_mb is not None:
            memory_mb = arguments.number("memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0)
        steady_malloc()
        with ExitStack() as undo:  # of what is open, where a later part fails
            opened = undo.enter_context(
                open_bundle(bundle, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated)
            )
            targets = [target.name for target in opened.manifest.targets]
            chosen = chosen_runtime(runtime, targets)
            require_device(targets)
            limit = opened.manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * 1e6)
            place = Place(bundle, state, opened.manifest_sha256, opened.public_key)  # what was opened here is what is opened there
            core = Handle(library.load(), place)  # the last: nothing is written before all else is checked
            undo.callback(core.close)
            model = cls(opened, core, place, limit, chosen)
            undo.pop_all()
            return model

    @classmethod
    def reset_for_new_base(
        cls, bundle: str | Path, state: str | Path, *, pin_sha256: str | None = None, public_key: bytes | None = None,
        require_authenticated: bool = False,
    ) -> Self:  # fmt: skip
        """Moves a state to a bundle with another base model: adapters go, examples are kept and tokenized again.

        Give the pin or the key that `open` is given: adapters go on the word of this bundle. All its files are read and their
        hashes checked before anything is deleted.
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        trust: dict[str, Any] = {"pin_sha256": pin_sha256, "public_key": public_key, "require_authenticated": require_authenticated}
        with open_bundle(bundle, **trust) as opened:
            opened.verify_files()
            reset_for_new_base(library.load(), Place(bundle, state, opened.manifest_sha256, opened.public_key))
        return cls.open(bundle, state, **trust)

    @property
    def authenticated(self) -> Authenticated:
        """What this bundle is known by: "pin" or "signature", as they were given to `open`, or "none"."""
        return self._bundle.authenticated

    @property
    def targets(self) -> tuple[str, ...]:
        """Engines that the bundle was compiled for."""
        return tuple(target.name for target in self._bundle.manifest.targets)

    def close(self) -> None:
        """Waits for the calls that run."""
        self._core.close()
        if self._torch is not None:
            self._torch.close()
        self._torch = self._answering_machine = self._adapter = None
        self._bundle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(
        self, steps: int | None = None, *, seconds: float | None = None, method: str | None = None, seed: int | None = None,
        stop: Callable[[], bool] | None = None, on_step: Callable[[int, float], None] | None = None,
        **overrides: Any,
    ) -> TrainReport:  # fmt: skip
        """Starts a run, or continues the unfinished one by at most `steps`; at the end the gate accepts or refuses.

        seconds:    a deadline, opening, commits and the gate included; a step that would not end by then is not begun
        method:     by default that of the unfinished run, else the first of the bundle; another one starts a new run
        stop:       asked 20 times a second; training then ends in a committed state
        on_step:    told (step, loss) after each step
        overrides:  fields of Training, for a run that starts here
        Raises BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where
        another process trains.
        """
        arguments.function("train.stop", stop, "a function that says whether to stop")
        arguments.function("train.on_step", on_step, "a function of a step and its loss")
        if seconds is not None:
            seconds = arguments.number("train.seconds", seconds, "more than 0", lambda length: length > 0)
        self.check_settings(steps, method=method, seed=seed, **overrides)  # before a process is started
        request = Request(steps, method, seed, overrides)
        if self.runtime == "core":
            return self._child.train(request, seconds, on_step, stop)
        self._ask_for_the_estimate(method)
        with self._on_torch("Training with the runtime 'torch'") as torch:
            return torch.train(request, seconds, on_step, stop)

    def _ask_for_the_estimate(self, method: str | None) -> None:
        """BudgetExceeded where training is to add less to this process than the plan says: what malloc kept of earlier work would
        hide it from the core."""
        run = self._core.current_run() if method is None else None
        record = self._bundle.method(method if run is None else run.method)
        estimate = max(plan.estimate.peak_bytes for plan in record.plans)
        if self._memory_bytes is not None and estimate > self._memory_bytes:
            raise BudgetExceeded(
                f"Training with '{record.name}' (estimated peak {megabytes(estimate)})", got=f"{megabytes(estimate)} to come",
                expected=f"at most {megabytes(self._memory_bytes)} over the idle process",
                next_step="Raise the memory budget, or build with shorter sequences, a lower rank or a smaller batch",
            )  # fmt: skip

    def check_settings(
        self, steps: int | None = None, *, method: str | None = None, seed: int | None = None, new_run: bool = False,
        **overrides: Any,
    ) -> None:  # fmt: skip
        """Raises the ConfigError that `train` would for these settings, and does nothing else. `new_run`: no run unfinished."""
        if method is not None and not isinstance(method, str):
            raise ConfigError("train.method", got=shown(method), expected="the name of a method", next_step="Change train.method")
        given = {name: value for name, value in (("steps", steps), ("seed", seed)) if value is not None}
        settings_from(Training, "train", {**overrides, **given})
        self._bundle.method(method)
        self._core.check_training(Request(steps, method, seed, overrides, new_run))

    def abandon_run(self) -> bool:
        """Ends the unfinished run, if there is one; what it learned is dropped unless it was accepted."""
        return self._core.abandon_run()

    def set_limit(self, memory_mb: float | None) -> None:
        """The limit from now on, also of a call that runs; None: the bundle's budget. A call keeps within the limit that it began
        with: more than that holds from the next one on."""
        if memory_mb is not None:
            memory_mb = arguments.number("memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0)
        self._core.check_open()
        self._memory_bytes = self._bundle.manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * 1e6)
        self._child.set_limit(self._memory_bytes)
        if self._torch is not None:
            self._torch.set_limit(self._memory_bytes)

    def set_pace(self, share: float) -> None:
        """The share of its time in which a call computes, from now on, also of one that runs; 1 is what a model begins with."""
        share = arguments.number("share", share, "more than 0, at most 1", lambda share: 0 < share <= 1)
        self._core.check_open()
        self._share = share
        self._child.set_pace(share)
        if self._torch is not None:
            self._torch.set_pace(share)

    # ---- answering ---------------------------------------------------------------------------------------------------

    def evaluate(self, examples: Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation") -> Evaluation:
        """Loss, perplexity and next-token accuracy of the adapter that answers, on `examples` or on the user's own of a split."""
        arguments.one_of("split", split, ("validation", "train"))
        if examples is not None and (not isinstance(examples, Sequence) or isinstance(examples, str | bytes)):
            raise DataError("examples", got=kind_of(examples), expected="a list of examples", next_step="Give them as a list")
        self._core.check_open()
        given = None if examples is None else [example_json(one, f"example {n}") for n, one in enumerate(examples, 1)]
        if self.runtime == "core":
            return self._child.evaluate(split, given)
        with self._on_torch("Evaluating with the runtime 'torch'") as torch:
            return torch.evaluate(split, given)

    def generate(
        self, prompt: str | Sequence[Any], *, max_tokens: int = 128, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int | None = None, seed: int = 0,
    ) -> Iterator[str]:  # fmt: skip
        """Pieces of the answer to messages, a text or token ids, as they come. Temperature 0 is greedy."""
        _check_prompt(prompt)
        tokenizer = self._encoder.tokenizer
        if tokenizer is None:
            raise GenerationError(
                "prompt", got="a bundle that takes token ids only", expected="a bundle with a tokenizer",
                next_step="Use generate_ids",
            )  # fmt: skip
        ids = self._encoder.prompt_ids(prompt)
        text = tokenizer.stream(ids)
        tokens = self.generate_ids(
            ids, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed
        )
        return (piece for token in tokens if (piece := text(token)))

    def generate_ids(
        self, prompt: Sequence[int], *, max_tokens: int = 128, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int | None = None, seed: int = 0,
    ) -> Iterator[int]:  # fmt: skip
        """Token ids of the answer to token ids."""
        prompt = self._encoder.token_ids(prompt)
        max_tokens = arguments.whole_number("max_tokens", max_tokens, 1, error=GenerationError)
        check_sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        self._core.check_open()
        return self._answers().generate_ids(
            prompt, self._answering(), max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed
        )

    # ---- versions ------------------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """Accepted adapters, oldest first; the last one answers."""
        return self._core.versions()

    def rollback(self) -> Version | None:
        """Back to the adapter accepted before this one; None: the base answers."""
        return self._core.rollback()

    def reset(self) -> None:
        """Forgets everything that was learned; examples stay."""
        self._core.reset()

    def export_adapter(self, folder: str | Path, format: Literal["peft"] = "peft", *, base: bool = False) -> Path:
        """The adapter that answers, as a folder that `peft.PeftModel.from_pretrained` loads onto the original model.

        Refused where the base model answers; `base` exports the bundle's initial adapter then, which changes nothing.
        """
        folder = arguments.folder("folder", folder)
        arguments.one_of("format", format, ("peft",))
        if not base and not self._core.versions():  # the core says it in words of every language
            raise AdapterError(
                "the adapter to export", got="none: no training was accepted, so the base model answers",
                expected="an accepted adapter", next_step="Train first, or ask for base=True, an adapter that changes nothing",
            )  # fmt: skip
        self._core.export_adapter(folder, format, base)
        return folder

    def import_adapter(self, folder: str | Path, *, trust_base: bool = False) -> int:
        """Takes a PEFT folder as the adapter that answers, and returns its version.

        Refused where it was trained on another base; `trust_base` takes one that does not say.
        """
        return self._core.import_adapter(arguments.folder("folder", folder), trust_base)

    # ---- pieces ----------------------------------------------------------------------------------------------------------

    @cached_property
    def _encoder(self) -> ExampleEncoder:
        self._core.check_open()
        return _encoder_of(self._bundle)

    def _answering(self) -> Adapter:
        """Tensors of the adapter that answers: the newest accepted one, else the bundle's initial one, which changes nothing."""
        versions = self._core.versions()
        newest = versions[-1] if versions else None
        if self._adapter is None or self._adapter[0] != newest:
            self._adapter = (newest, self._bundle.initial_adapter() if newest is None else self._exported())
        return self._adapter[1]

    def _exported(self) -> Adapter:
        """By way of a folder: no other reader may open the state's files in this process."""
        with tempfile.TemporaryDirectory() as folder:
            self._core.export_adapter(Path(folder) / "adapter", "peft", True)
            return exported_adapter(Path(folder) / "adapter", self._bundle.manifest)

    @contextmanager
    def _on_torch(self, what: str) -> Iterator[InProcess]:
        """Imports torch at its first use: 3 seconds and 280 MB that training on the core does without."""
        if self._torch is None:
            with _needs_torch(what):
                from bespoke.core.in_process import InProcess
            device = device_for(self.targets).type
            self._torch = InProcess(library.load(), self._place, device, self._memory_bytes)
            self._torch.set_pace(self._share)
        from bespoke.reference.threads import limited, threads_for

        config = self._bundle.manifest.model.config
        with limited(threads_for(config.hidden_size * config.intermediate_size)):
            yield self._torch

    def _answers(self) -> Answers:
        if self._answering_machine is None:
            with _needs_torch("Answering"):
                from bespoke.reference.generate import Answers
            self._answering_machine = Answers(self._bundle)
        return self._answering_machine


@contextmanager
def _needs_torch(what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependency.of(what, "torch", "torch") from None


def _encoder_of(bundle: Bundle) -> ExampleEncoder:
    text, lengths = bundle.manifest.text, bundle.manifest.sequence_lengths
    tokenizer = None
    if text.tokenizer is not None:
        config = None if text.tokenizer_config is None else bundle.read(text.tokenizer_config)
        tokenizer = Tokenizer.from_bytes(bundle.read(text.tokenizer), config, text.tokenizer)
    turns = None if text.turns is None else Turns.from_bytes(bundle.read(text.turns), text.turns)
    return ExampleEncoder(tokenizer, turns, text.train_on, max(lengths), vocab_size=text.vocab_size)


def _check_prompt(prompt: Any) -> None:
    listed = isinstance(prompt, Sequence | np.ndarray) and not isinstance(prompt, str | bytes)
    if isinstance(prompt, str) or (listed and len(prompt)):
        return
    raise GenerationError(
        "prompt", got="an empty list" if listed else kind_of(prompt), expected="text, messages or token ids",
        next_step="Give one of them",
    )  # fmt: skip
