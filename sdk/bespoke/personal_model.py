# SPDX-License-Identifier: Apache-2.0
"""PersonalModel: a bundle and one user's state. It takes examples, trains, accepts or refuses, answers, exports, forgets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, get_args

from bespoke import arguments
from bespoke.answering import AnsweringModel
from bespoke.bundle.reader import Authenticated, Bundle, read_bundle
from bespoke.config import LONGEST_RUN, MEGABYTE, Training, settings_from
from bespoke.conversation import Conversation, prompt_json
from bespoke.core import library
from bespoke.core.engine import Engine
from bespoke.core.handle import Handle, Place, Request, reset_for_new_base
from bespoke.corrections import corrected_text, messages_of
from bespoke.engines import engine_for
from bespoke.errors import AdapterError, ConfigError, DataError, kind_of, shown
from bespoke.examples import Examples
from bespoke.participation import Participation
from bespoke.remedies import setting
from bespoke.rules.records import AdapterFormat, AddedExample, PlannedTraining, Run, Version
from bespoke.rules.report import Progress, TrainReport
from bespoke.system.descriptors import opens_files
from bespoke.system.malloc import steady_malloc

__all__ = ["PersonalModel"]


class PersonalModel(AnsweringModel):
    """A model that learns from one user. `PersonalModel.open` opens it; it is a context manager.

    Every call may raise BespokeError. Nothing that was committed is lost then.

    Attributes:
        examples: The user's examples: add, list, forget.
        federation: The user's part in what users learn together.
    """

    def __init__(self, bundle: Bundle, core: Handle, engine: Engine, memory_bytes: int | None) -> None:
        super().__init__(bundle, core, engine)
        self._memory_bytes = memory_bytes
        self.examples = Examples(core)
        self.federation = Participation(core, engine)

    @classmethod
    def open(
        cls,
        bundle: str | Path,
        state: str | Path,
        *,
        memory_mb: float | None = None,
        pin_sha256: str | None = None,
        public_key: bytes | None = None,
        require_authenticated: bool = False,
        engine: str | None = None,
        busy_seconds: float | None = 30.0,
    ) -> Self:
        """Opens a bundle and the state of one user.

        A bundle is code. Ship it with a pin or a key, and set `require_authenticated` so that no other bundle opens.

        Args:
            bundle: The folder of the bundle.
            state: The folder of the user's state. It is made if there is none.
            memory_mb: Memory limit of training, in MB of 10**6 bytes: of the process that trains, or with `torch` of what training
                adds to this process. None: the bundle's budget. Lower it on a device with less room.
            pin_sha256: sha256 that manifest.json must have, in hexadecimal. Give it when your app knows the bundle it ships.
            public_key: ed25519 key that must have signed manifest.json, 32 bytes or PEM. Give it when bundles are updated.
            require_authenticated: Refuse to open without a pin and without a key.
            engine: What computes: `torch`, in this process, or the target whose artifacts the device core runs in a process of its
                own (`executorch`, `mlx`, or an engine of your app). None: `executorch` if the bundle was compiled for it and the
                core runs here, else `torch`.
            busy_seconds: How long each call waits, in seconds, for another process that uses the state. Then it raises
                Unavailable. None: however long it takes.
        """
        if busy_seconds is not None:
            busy_seconds = arguments.number("busy_seconds", busy_seconds, "0 or more, or None", lambda s: s >= 0)
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        if memory_mb is not None:
            memory_mb = _megabytes(memory_mb)
        steady_malloc()
        with ExitStack() as undo:  # closes what is open if a later part fails
            opened = undo.enter_context(
                read_bundle(
                    bundle, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated
                )
            )
            limit = _limit_bytes(memory_mb, opened)

            # the core and the engine must open the very bundle that was read here
            place = Place(bundle, state, opened.manifest_sha256, opened.public_key, busy_seconds)
            chosen = engine_for(engine, opened, place, limit)
            core = Handle(library.load(), place)  # last: it writes the state, after all else was checked
            undo.callback(core.close)
            model = cls(opened, core, chosen, limit)
            undo.pop_all()
            return model

    @classmethod
    def reset_for_new_base(
        cls,
        bundle: str | Path,
        state: str | Path,
        *,
        pin_sha256: str | None = None,
        public_key: bytes | None = None,
        require_authenticated: bool = False,
    ) -> Self:
        """Moves a state to a bundle with another base model. Deletes the adapters; keeps the examples and tokenizes them again.

        Every file of the bundle is read and its hash checked before anything is deleted.

        Args:
            bundle: The folder of the new bundle.
            state: The folder of the user's state.
            pin_sha256, public_key, require_authenticated: As for `open`. Give them: this call deletes adapters because the bundle
                says so.
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        trust: dict[str, Any] = {
            "pin_sha256": pin_sha256,
            "public_key": public_key,
            "require_authenticated": require_authenticated,
        }
        with read_bundle(bundle, **trust) as opened:
            opened.verify_files()
            reset_for_new_base(library.load(), Place(bundle, state, opened.manifest_sha256, opened.public_key))
        return cls.open(bundle, state, **trust)

    @property
    def authenticated(self) -> Authenticated:
        """What proved the bundle when it was opened: "pin", "signature" or "none"."""
        return self._bundle.authenticated

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the bundle was compiled for."""
        return tuple(target.name for target in self._bundle.manifest.targets)

    @property
    def engine(self) -> str:
        """What computes: "torch", or the target whose artifacts the core runs."""
        return self._engine.name

    @property
    def limit_bytes(self) -> int | None:
        """The memory limit of training, in bytes. With `torch` it limits what training adds to this process. None: no limit."""
        return self._memory_bytes

    def close(self) -> None:
        """Waits for the calls that run, and ends the open conversations. Does nothing in a fork of its process.

        Raises Busy from within a call that computes in this process, which would wait for itself.
        """
        if not self._core.is_of_this_process:
            return
        self._engine.close()
        self._core.close()
        for conversation in list(self._conversations):
            conversation.close()
        self._bundle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def correct(self, answer: Conversation | Sequence[Mapping[str, Any]], better: str) -> AddedExample:
        """Adds what the user made of an answer to the examples: `better` is right, `answer` is not.

        The example is {"prompt": what was asked, "chosen": better, "rejected": answer}. Every method learns `better`. A method
        that was built with `preferences="simpo"` also learns that it is preferred to `answer`.

        Args:
            answer: The conversation whose last answer the user corrects, or its messages up to and with that answer.
            better: The answer as it should have been.

        Raises DataError if there is no answer, or if `better` says the same.
        """
        if not isinstance(better, str):
            raise DataError(setting("better"), got=kind_of(better), expected="text", next_step="Give one string")
        if isinstance(answer, Conversation):
            example = corrected_text(answer, better, has_turns=self.has_turns)
            if example is not None:
                return self.examples.add(example)
        return self._core.correct(prompt_json(messages_of(answer)), better)

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(
        self,
        *,
        run_steps: int | None = None,
        most_steps: int | None = None,
        seconds: float | None = None,
        method: str | None = None,
        seed: int | None = None,
        stop: Callable[[], bool] | None = None,
        on_step: Callable[[int, float], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        **overrides: Any,
    ) -> TrainReport:
        """Starts a run, or continues the unfinished one. At the end the gate accepts the adapter or refuses it.

        Args:
            run_steps: Length of a new run, and of its schedule. An unfinished run refuses another length. None: `Training.steps`.
            most_steps: Most steps of this call. The next call goes on with the run. None: all that the run has left.
            seconds: Deadline, which includes opening, commits and the gate. A step that would not end by then is not begun. None:
                no deadline.
            method: The method to train with; another than the unfinished run's starts a new run. None: that one, or the first.
            seed: Seed of a new run. An unfinished run refuses another one. None: `Training.seed`.
            stop: Asked 20 times a second. Training ends in a committed state once it returns True.
            on_step: Called with (step, loss) after each step.
            on_progress: Called with a Progress, which has the memory in use, at each step and when a phase begins.
            **overrides: Fields of `Training` for a run that starts here, such as learning_rate, but not `steps`. An unfinished run
                refuses others.

        Raises BudgetExceeded if going on would pass the memory limit, and StateLocked while another process trains. What was
        committed stays.
        """
        arguments.function("train.stop", stop, "a function that says whether to stop")
        arguments.function("train.on_step", on_step, "a function of a step and its loss")
        arguments.function("train.on_progress", on_progress, "a function of a Progress")
        if seconds is not None:
            seconds = arguments.number("train.seconds", seconds, "more than 0", lambda length: length > 0)
        asked: dict[str, Any] = {
            "run_steps": _steps("run_steps", run_steps),
            "most_steps": _steps("most_steps", most_steps),
            "method": method,
            "seed": seed,
        }
        self.check_settings(**asked, **overrides)  # before a process is started
        request = Request(**asked, settings=overrides)

        def report(progress: Progress) -> None:
            if on_step is not None and progress.loss is not None:
                on_step(progress.step, progress.loss)
            if on_progress is not None:
                on_progress(progress)

        return self._engine.train(request, seconds, report, stop)

    def planned_training(self) -> list[PlannedTraining]:
        """Returns what training takes by method and budget, the largest budget first. `train` uses the first plans that fit."""
        return self._core.planned_training()

    def check_settings(
        self,
        *,
        run_steps: int | None = None,
        most_steps: int | None = None,
        method: str | None = None,
        seed: int | None = None,
        new_run: bool = False,
        **overrides: Any,
    ) -> None:
        """Raises the ConfigError that `train` would raise for these settings. Does nothing else.

        Args:
            run_steps, most_steps, method, seed, **overrides: As for `train`.
            new_run: Check for a new run, as if no run were unfinished.
        """
        if method is not None and not isinstance(method, str):
            raise ConfigError(
                setting("train.method"),
                got=shown(method),
                expected="the name of a method",
                next_step="Change " + setting("train.method"),
            )
        if "steps" in overrides:
            raise arguments.unclear_steps(overrides["steps"])
        settings_from(Training, "train", overrides if seed is None else {**overrides, "seed": seed})
        self._bundle.method(method)
        request = Request(
            run_steps=_steps("run_steps", run_steps),
            most_steps=_steps("most_steps", most_steps),
            method=method,
            seed=seed,
            settings=overrides,
            new_run=new_run,
        )
        self._core.check_training(request)

    def current_run(self) -> Run | None:
        """Returns the unfinished run, which `train` continues. None: there is none."""
        return self._core.current_run()

    def abandon_run(self) -> bool:
        """Ends the unfinished run and drops what it learned since the last accepted adapter. Returns whether there was one."""
        return self._core.abandon_run()

    def set_limit(self, memory_mb: float | None) -> None:
        """Changes the memory limit. A running call's limit can be lowered; a higher limit applies from the next call.

        Args:
            memory_mb: The new limit in MB of 10**6 bytes. None: the bundle's budget.
        """
        if memory_mb is not None:
            memory_mb = _megabytes(memory_mb)
        self._core.check_open()
        self._memory_bytes = _limit_bytes(memory_mb, self._bundle)
        self._engine.set_limit(self._memory_bytes)

    def set_pace(self, share: float) -> None:
        """Changes how much of the time a call computes, also while it runs.

        Args:
            share: More than 0, at most 1, which is the default. Lower it when the device gets hot or is in use.
        """
        share = arguments.number("share", share, "more than 0, at most 1", lambda share: 0 < share <= 1)
        self._core.check_open()
        self._engine.set_pace(share)

    # ---- versions ------------------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """Returns the accepted adapters that are kept, oldest first. The last one answers."""
        return self._core.versions()

    def rollback(self) -> Version | None:
        """Returns to the adapter accepted before the present one. None: the base model answers now."""
        return self._core.rollback()

    def reset(self) -> None:
        """Deletes everything that was learned. The examples stay."""
        self._core.reset()

    def export_adapter(self, folder: str | Path, format: AdapterFormat = "peft", *, base: bool = False) -> Path:
        """Writes the adapter that answers to a folder, for use with the original model. Returns the folder.

        Args:
            folder: Where to write it.
            format: "peft" for `peft.PeftModel.from_pretrained`, "mlx" for `mlx_lm.load(..., adapter_path=folder)`, "gguf" for an
                adapter.gguf that llama.cpp takes with `--lora` (llama, qwen2, qwen3 and gemma3_text).
            base: If no adapter was accepted, export the bundle's initial one, which changes nothing, instead of an AdapterError.
        """
        folder = arguments.folder("folder", folder)
        arguments.one_of("format", format, get_args(AdapterFormat))
        if not base and not self._core.versions():  # the core's error does not name Python's argument
            raise AdapterError(
                "the adapter to export",
                got="none: no training was accepted, so the base model answers",
                expected="an accepted adapter",
                next_step="Train first, or ask for " + setting("base", True) + ", an adapter that changes nothing",
            )
        self._core.export_adapter(folder, format, base)
        return folder

    @opens_files
    def export_merged(self, folder: str | Path, model: str | Path, *, base: bool = False) -> Path:
        """Writes the model with the adapter merged into it, as a Hugging Face folder in float16. Returns the folder.

        The weights are the bundle's, decoded from int4, because the adapter was trained on those.

        Args:
            folder: Where to write it.
            model: The folder or GGUF file that the bundle was built from. It gives configuration and tokenizer.
            base: If no adapter was accepted, export the base model instead of an AdapterError.
        """
        from bespoke.compiler.opened_model import model_folder
        from bespoke.exports.merged import write_merged
        from bespoke.reference.exported import exported_adapter

        folder = arguments.folder("folder", folder)
        model = arguments.path("model", model, "the path of a folder or GGUF file")
        manifest = self._bundle.manifest
        with tempfile.TemporaryDirectory() as place, model_folder(model) as (original, weights):
            exported = self.export_adapter(Path(place) / "adapter", base=base)
            adapter = exported_adapter(exported, manifest)
            return write_merged(self._bundle, adapter, original, weights(manifest.model.config), folder)

    def import_adapter(self, folder: str | Path, *, trust_base: bool = False) -> int:
        """Makes an adapter of PEFT or mlx-lm the adapter that answers, and returns its version.

        The adapter may have another alpha, a lower rank and fewer linears than the bundle. AdapterError names what does not fit: a
        higher rank, other linears, another kind of LoRA, another base model.

        Args:
            folder: The adapter's folder.
            trust_base: Take an adapter that does not name its base model. Set it if you know that the base is this one.
        """
        return self._core.import_adapter(arguments.folder("folder", folder), trust_base)


def _steps(name: str, steps: Any) -> int | None:
    return None if steps is None else arguments.whole_number(f"train.{name}", steps, 1, LONGEST_RUN)


def _megabytes(memory_mb: float) -> float:
    return arguments.number("memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0)


def _limit_bytes(memory_mb: float | None, bundle: Bundle) -> int | None:
    return bundle.manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * MEGABYTE)
