# SPDX-License-Identifier: Apache-2.0
"""PersonalModel: a bundle and one user's state. It takes examples, trains, accepts or refuses, answers, exports, forgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from bespoke import arguments
from bespoke.adapter.peft import export_peft, import_peft
from bespoke.bundle.reader import Authenticated, Bundle, open_bundle
from bespoke.config import Training, settings_from
from bespoke.core.runtime import CoreRuntime, RuntimeName, chosen_runtime
from bespoke.data.encode import ExampleEncoder
from bespoke.data.shapes import shape_of
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import (
    AdapterError,
    ConfigError,
    DataError,
    GenerationError,
    MissingDependency,
    StateError,
    kind_of,
    shown,
)
from bespoke.rules.report import Evaluation, TrainReport
from bespoke.rules.sampling import check_sampling
from bespoke.runtime.device import require_device
from bespoke.runtime.run_settings import settings_of_run
from bespoke.state.folder import check_apart
from bespoke.state.records import AddedExample, ExampleInfo, Forgotten, Version
from bespoke.state.store import StateStore
from bespoke.system.malloc import steady_malloc

if TYPE_CHECKING:
    from bespoke.runtime.torch_runtime import TorchRuntime

class Examples:
    """The user's examples. Tokenized when added, never while training."""

    def __init__(self, store: StateStore, encoder: ExampleEncoder) -> None:
        self._store = store
        self._encoder = encoder

    def add(self, example: dict[str, Any], id: str | None = None) -> AddedExample:
        """Keeps an example: {"messages": ...}, {"prompt": ..., "completion": ...}, {"text": ...} or {"tokens": ..., "mask": ...}.

        The same id with the same content changes nothing. What is longer than the bundle's longest sequence is cut, the oldest of
        the context first, and the result says by how much. Raises DataError for what cannot be used or would train nothing.
        """
        shape_of(example)
        self._store.check_example(example, id)  # before the work of tokenizing
        encoded = self._encoder.encode(example)
        added = self._store.add_example(example, encoded.rows, id)
        return replace(
            added, truncated_tokens=encoded.truncated_tokens, truncated_trained_tokens=encoded.truncated_trained_tokens
        )

    def list(self) -> list[ExampleInfo]:
        """All examples, in the order in which they were added."""
        return self._store.examples()

    def forget(self, id: str) -> Forgotten:
        """Deletes an example at once, with every adapter that saw it; stops a run that uses it."""
        return self._store.forget(id)

    def __len__(self) -> int:
        return len(self._store.example_ids())


class PersonalModel:
    """Made by `open`; a context manager. Everything may raise BespokeError, and loses nothing then."""

    def __init__(
        self, bundle: Bundle, store: StateStore, encoder: ExampleEncoder, memory_bytes: int | None, runtime: RuntimeName,
        core: CoreRuntime,
    ) -> None:  # fmt: skip
        self._bundle = bundle
        self._store = store
        self._encoder = encoder
        self._memory_bytes = memory_bytes
        self._core = core
        self._torch: TorchRuntime | None = None
        self._closed = False
        self.runtime = runtime
        self.examples = Examples(store, encoder)

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
        runtime:    what `train` and `evaluate` of the user's own examples run on: "core", the device core in a process of its own,
                    or "torch". By default the core, where the bundle was compiled for it and it is installed
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        if memory_mb is not None:
            memory_mb = arguments.number("memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0)
        steady_malloc()
        check_apart(state, bundle)
        with ExitStack() as undo:  # of what is open, where a later part fails
            opened = undo.enter_context(
                open_bundle(bundle, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated)
            )
            manifest, encoder = opened.manifest, _encoder(opened)
            targets = [target.name for target in manifest.targets]
            chosen = chosen_runtime(runtime, targets)
            require_device(targets)
            shapes = manifest.model.config.adapter_shapes(manifest.lora.settings)
            limit = manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * 1e6)
            core = CoreRuntime(bundle, state, opened.manifest_sha256, opened.public_key, limit)
            # The last: nothing is written before all else is checked.
            store = StateStore.open(state, base_sha256=manifest.model.base_sha256, adapter_shapes=shapes)
            undo.callback(store.close)
            model = cls(opened, store, encoder, limit, chosen, core)
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
        check_apart(state, bundle)
        with open_bundle(
            bundle, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated
        ) as opened:
            opened.verify_files()
            manifest, encoder = opened.manifest, _encoder(opened)
            StateStore.reset_for_new_base(
                state, base_sha256=manifest.model.base_sha256,
                adapter_shapes=manifest.model.config.adapter_shapes(manifest.lora.settings),
                retokenize=lambda example: encoder.encode(example).rows,
            ).close()  # fmt: skip
        return cls.open(
            bundle, state, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated
        )

    @property
    def authenticated(self) -> Authenticated:
        """What this bundle is known by: "pin" or "signature", as they were given to `open`, or "none"."""
        return self._bundle.authenticated

    @property
    def targets(self) -> tuple[str, ...]:
        """Engines that the bundle was compiled for."""
        return tuple(target.name for target in self._bundle.manifest.targets)

    def close(self) -> None:
        self._closed = True
        self._torch = None
        self._store.close()
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
        stop:       asked before every instruction (of the core: 20 times a second); training then ends in a committed state
        on_step:    told (step, loss) after each step
        overrides:  fields of Training, for a run that starts here
        Raises BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where
        another process trains.
        """
        arguments.function("train.stop", stop, "a function that says whether to stop")
        arguments.function("train.on_step", on_step, "a function of a step and its loss")
        if seconds is not None:
            seconds = arguments.number("train.seconds", seconds, "more than 0", lambda length: length > 0)
        self.check_settings(steps, method=method, seed=seed, **overrides)  # the same errors on both runtimes
        if self.runtime == "core":
            return self._core.train(steps, seconds, method, seed, stop, on_step, overrides)
        return self._on_torch("Training with the runtime 'torch'").train(
            steps, seconds, method, seed, stop, on_step, overrides
        )

    def check_settings(
        self, steps: int | None = None, *, method: str | None = None, seed: int | None = None, new_run: bool = False,
        **overrides: Any,
    ) -> None:  # fmt: skip
        """Raises the ConfigError that `train` would for these settings, and does nothing else. `new_run`: no run unfinished."""
        if method is not None and not isinstance(method, str):
            raise ConfigError("train.method", got=shown(method), expected="the name of a method", next_step="Change train.method")
        given = {name: value for name, value in (("steps", steps), ("seed", seed)) if value is not None}
        settings_from(Training, "train", {**overrides, **given})
        self._check_open()
        current = None if new_run else self._store.current_run()
        settings_of_run(self._bundle, current, steps, method, seed, overrides)

    def abandon_run(self) -> bool:
        """Ends the unfinished run, if there is one; what it learned is dropped unless it was accepted."""
        with self._store.trainer_lock("abandoning a run"):
            run = self._store.current_run()
            return run is not None and self._store.end_run(run.id, "abandoned")

    # ---- answering ---------------------------------------------------------------------------------------------------

    def evaluate(self, examples: Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation") -> Evaluation:
        """Loss, perplexity and next-token accuracy of the adapter that answers, on `examples` or on the user's own of a split."""
        arguments.one_of("split", split, ("validation", "train"))
        self._check_open()
        if examples is None and self.runtime == "core":
            return self._core.evaluate(split)
        torch = self._on_torch("Evaluating with the runtime 'torch'")
        if examples is not None:
            if not isinstance(examples, Sequence) or isinstance(examples, str | bytes):
                raise DataError("examples", got=kind_of(examples), expected="a list of examples", next_step="Give them as a list")
            encoded = [self._encoder.encode(example, f"example {number}") for number, example in enumerate(examples, 1)]
            found = torch.evaluate([row for one in encoded for row in one.rows], len(encoded))
        else:
            found = torch.evaluate_split(split)
        if found is None:
            raise DataError(
                f"examples of split '{split}'" if examples is None else "examples", got="none", expected="at least one",
                next_step="Add examples; from the fifth on, one in ten is kept for validation",
            )  # fmt: skip
        return found

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
        self._check_open()
        return self._on_torch("Answering").generate_ids(
            prompt, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed
        )

    # ---- versions ------------------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """Accepted adapters, oldest first; the last one answers."""
        return self._store.accepted()

    def rollback(self) -> Version | None:
        """Back to the adapter accepted before this one; None: the base answers."""
        with self._store.trainer_lock("rolling back"):
            return self._store.rollback()

    def reset(self) -> None:
        """Forgets everything that was learned; examples stay."""
        with self._store.trainer_lock("resetting"):
            self._store.reset()

    def export_adapter(self, folder: str | Path, format: Literal["peft"] = "peft", *, base: bool = False) -> Path:
        """The adapter that answers, as a folder that `peft.PeftModel.from_pretrained` loads onto the original model.

        Refused where the base model answers; `base` exports the bundle's initial adapter then, which changes nothing.
        """
        folder = arguments.folder("folder", folder)
        arguments.one_of("format", format, ("peft",))
        found = self._store.answering()  # once: another process may take it back meanwhile
        if found is None and not base:
            raise AdapterError(
                "the adapter to export", got="none: no training was accepted, so the base model answers",
                expected="an accepted adapter", next_step="Train first, or ask for base=True, an adapter that changes nothing",
            )  # fmt: skip
        manifest = self._bundle.manifest
        return export_peft(
            folder, self._bundle.initial_adapter() if found is None else found[1], lora=manifest.lora.settings,
            base_name=manifest.model.name, base_sha256=manifest.model.base_sha256, config=manifest.model.config,
        )  # fmt: skip

    def import_adapter(self, folder: str | Path, *, trust_base: bool = False) -> int:
        """Takes a PEFT folder as the adapter that answers, and returns its version.

        Refused where it was trained on another base; `trust_base` takes one that does not say.
        """
        folder = arguments.folder("folder", folder)
        manifest = self._bundle.manifest
        with self._store.trainer_lock("importing an adapter"):
            tensors = import_peft(
                folder, manifest.model.config, manifest.lora.settings, manifest.model.base_sha256, trust_base=trust_base
            )  # fmt: skip
            return self._store.import_version(tensors, source=folder.name)

    # ---- pieces ----------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise StateError(
                str(self._store.folder), got="a model that was closed", expected="an open one",
                next_step="Open it again with PersonalModel.open",
            )  # fmt: skip

    def _on_torch(self, what: str) -> TorchRuntime:
        """Imports torch at its first use: 3 seconds and 280 MB that training on the core does without."""
        if self._torch is None:
            try:
                from bespoke.runtime.torch_runtime import TorchRuntime
            except ModuleNotFoundError as error:
                if error.name != "torch":
                    raise
                raise MissingDependency.of(what, "torch", "torch") from None
            self._torch = TorchRuntime(self._bundle, self._store, self._memory_bytes)
        return self._torch


def _encoder(bundle: Bundle) -> ExampleEncoder:
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
