# SPDX-License-Identifier: Apache-2.0
"""PersonalModel: a bundle and one user's state. It takes examples, trains, accepts or refuses, answers, exports, forgets."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args, overload

from bespoke import arguments
from bespoke.bundle.reader import Authenticated, Bundle, open_bundle
from bespoke.config import Training, settings_from
from bespoke.core import library
from bespoke.core.answers import classification_of, scores_of
from bespoke.core.handle import Handle, Place, Request, reset_for_new_base
from bespoke.core.runtime import CoreRuntime, RuntimeName, chosen_runtime
from bespoke.data.example_json import example_json
from bespoke.data.tasks import Task, TaskReport, judge
from bespoke.engines import engine_of, require_engine
from bespoke.errors import AdapterError, ConfigError, DataError, GenerationError, MissingDependency, kind_of, shown
from bespoke.examples import Examples
from bespoke.rules.records import AdapterFormat, AnswerPiece, Classification, PlannedTraining, Run, Score, Version
from bespoke.rules.report import Evaluation, Progress, TrainReport
from bespoke.session import Session, answers_json, check_prompt, generation_of, prompt_json, token_ids
from bespoke.system.descriptors import opens_files
from bespoke.system.malloc import steady_malloc

if TYPE_CHECKING:
    from bespoke.core.in_process import InProcess


class PersonalModel:
    """Made by `open`; a context manager. Everything may raise BespokeError, and loses nothing then."""

    def __init__(
        self,
        bundle: Bundle,
        core: Handle,
        place: Place,
        memory_bytes: int | None,
        runtime: RuntimeName,
        engine: str | None,
    ) -> None:
        self._bundle = bundle
        self._core = core
        self._place = place
        self._memory_bytes = memory_bytes
        self._share = 1.0
        self._child = CoreRuntime(place, memory_bytes, engine)
        self._torch: InProcess | None = None
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self.runtime = runtime
        self.examples = Examples(core)

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
        runtime: RuntimeName | None = None,
        engine: str | None = None,
    ) -> Self:
        """A bundle and the user's state folder, which is made where there is none.

        pin_sha256, public_key: the sha256 of manifest.json; the ed25519 key (32 bytes, or PEM) that must have signed it. A bundle
                    is code: ship it with one of them, and `require_authenticated` refuses to open it without
        memory_mb:  the limit of training, in MB of 10**6 bytes; by default the bundle's budget. With runtime "core" it is that of
                    the whole process that trains, with "torch" what training may add to this one
        runtime:    what `train` and `evaluate` run on: "core", the device core in a process of its own, or "torch". By default the
                    core, where the bundle was compiled for it
        engine:     which of the bundle's targets the core runs, where it was built with that target's engine; by default its own
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        if memory_mb is not None:
            memory_mb = arguments.number(
                "memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0
            )
        steady_malloc()
        with ExitStack() as undo:  # of what is open, where a later part fails
            opened = undo.enter_context(
                open_bundle(
                    bundle, pin_sha256=pin_sha256, public_key=public_key, require_authenticated=require_authenticated
                )
            )
            targets = [target.name for target in opened.manifest.targets]
            chosen = chosen_runtime(runtime, targets, engine)
            require_engine(opened.manifest)
            limit = opened.manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * 1e6)
            place = Place(
                bundle, state, opened.manifest_sha256, opened.public_key
            )  # what was opened here is what is opened there
            core = Handle(library.load(), place)  # the last: nothing is written before all else is checked
            undo.callback(core.close)
            model = cls(opened, core, place, limit, chosen, engine)
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
        """Moves a state to a bundle with another base model: adapters go, examples are kept and tokenized again.

        Give the pin or the key that `open` is given: adapters go on the word of this bundle. All its files are read and their
        hashes checked before anything is deleted.
        """
        bundle, state = arguments.folder("bundle", bundle), arguments.folder("state", state)
        trust: dict[str, Any] = {
            "pin_sha256": pin_sha256,
            "public_key": public_key,
            "require_authenticated": require_authenticated,
        }
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

    @property
    def has_turns(self) -> bool:
        """Whether the model has chat turns: a prompt may then be messages; else it is a text to go on with."""
        return self._bundle.manifest.text.turns is not None

    @property
    def limit_bytes(self) -> int | None:
        """What training may take: of the whole process that trains with runtime "core", else of what it adds to this one."""
        return self._memory_bytes

    def close(self) -> None:
        """Waits for the calls that run, and ends the sessions that are open. Does nothing in a fork of its process."""
        if not self._core.is_of_this_process:
            return
        self._core.close()
        for session in list(self._sessions):
            session.close()
        self._child.close()
        if self._torch is not None:
            self._torch.close()
        self._torch = None
        self._bundle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(
        self,
        steps: int | None = None,
        *,
        seconds: float | None = None,
        method: str | None = None,
        seed: int | None = None,
        stop: Callable[[], bool] | None = None,
        on_step: Callable[[int, float], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        **overrides: Any,
    ) -> TrainReport:
        """Starts a run, or continues the unfinished one by at most `steps`; at the end the gate accepts or refuses.

        seconds:    a deadline, opening, commits and the gate included; a step that would not end by then is not begun
        method:     by default that of the unfinished run, else the first of the bundle; another one starts a new run
        stop:       asked 20 times a second; training then ends in a committed state
        on_step:    told (step, loss) after each step
        on_progress: told where it is, steps included: opening, judging, committing; with the memory that it takes
        overrides:  fields of Training, for a run that starts here
        Raises BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where
        another process trains.
        """
        arguments.function("train.stop", stop, "a function that says whether to stop")
        arguments.function("train.on_step", on_step, "a function of a step and its loss")
        arguments.function("train.on_progress", on_progress, "a function of a Progress")
        if seconds is not None:
            seconds = arguments.number("train.seconds", seconds, "more than 0", lambda length: length > 0)
        self.check_settings(steps, method=method, seed=seed, **overrides)  # before a process is started
        request = Request(steps, method, seed, overrides)

        def tell(progress: Progress) -> None:
            if on_step is not None and progress.loss is not None:
                on_step(progress.step, progress.loss)
            if on_progress is not None:
                on_progress(progress)

        if self.runtime == "core":
            return self._child.train(request, seconds, tell, stop)
        return self._on_torch("Training with the runtime 'torch'").train(request, seconds, tell, stop)

    def planned_training(self) -> list[PlannedTraining]:
        """What each method takes by its plans for each budget, the largest first. `train` runs by the first that have room."""
        return self._core.planned_training()

    def check_settings(
        self,
        steps: int | None = None,
        *,
        method: str | None = None,
        seed: int | None = None,
        new_run: bool = False,
        **overrides: Any,
    ) -> None:
        """Raises the ConfigError that `train` would for these settings, and does nothing else. `new_run`: no run unfinished."""
        if method is not None and not isinstance(method, str):
            raise ConfigError(
                "train.method", got=shown(method), expected="the name of a method", next_step="Change train.method"
            )
        given = {name: value for name, value in (("steps", steps), ("seed", seed)) if value is not None}
        settings_from(Training, "train", {**overrides, **given})
        self._bundle.method(method)
        self._core.check_training(Request(steps, method, seed, overrides, new_run))

    def current_run(self) -> Run | None:
        """The unfinished run, which `train` goes on with."""
        return self._core.current_run()

    def abandon_run(self) -> bool:
        """Ends the unfinished run, if there is one; what it learned is dropped unless it was accepted."""
        return self._core.abandon_run()

    def set_limit(self, memory_mb: float | None) -> None:
        """The limit from now on, also of a call that runs; None: the bundle's budget. A call keeps within the limit that it began
        with: more than that holds from the next one on."""
        if memory_mb is not None:
            memory_mb = arguments.number(
                "memory_mb", memory_mb, "MB of 10**6 bytes, more than 0", lambda size: size > 0
            )
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

    @overload
    def evaluate(self, examples: Task) -> TaskReport: ...

    @overload
    def evaluate(
        self, examples: Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation"
    ) -> Evaluation: ...

    def evaluate(
        self, examples: Task | Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation"
    ) -> Evaluation | TaskReport:
        """Loss, perplexity and next-token accuracy of the adapter that answers, on `examples` or on the user's own of a split; how
        right its answers are on a task that `bespoke.data.tasks.read_task` has read."""
        if isinstance(examples, Task):
            return judge(self, examples)
        arguments.one_of("split", split, ("validation", "train"))
        if examples is not None and (not isinstance(examples, Sequence) or isinstance(examples, str | bytes)):
            raise DataError(
                "examples", got=kind_of(examples), expected="a list of examples", next_step="Give them as a list"
            )
        self._core.check_open()
        given = None if examples is None else [example_json(one, f"example {n}") for n, one in enumerate(examples, 1)]
        if self.runtime == "core":
            return self._child.evaluate(split, given)
        return self._on_torch("Evaluating with the runtime 'torch'").evaluate(split, given)

    def session(
        self,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
        stop_texts: Sequence[str] = (),
    ) -> Session:
        """A conversation: it is fed, and answers token by token, as long as it is open.

        max_tokens:   of one answer; None: as many as the bundle's context has room for
        temperature:  0 takes the likeliest token; else a token is drawn, by `seed` and the number of tokens before
        top_p, top_k: of the likeliest tokens those that hold this share together; so many
        stop_texts:   texts that end an answer and are no part of it
        """
        generation = generation_of(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed, stop_texts=stop_texts
        )
        self._core.check_open()
        session = Session(self._answers().open_session(generation), self._core.check_open)
        self._sessions.add(session)
        return session

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
    ) -> Iterator[str]:
        """Pieces of the answer to messages, a text or token ids, as they come, with the settings of `session`."""
        if self._bundle.manifest.text.tokenizer_bin is None:
            check_prompt(prompt)
            raise GenerationError(
                "prompt",
                got="a bundle that takes token ids only",
                expected="a bundle with a tokenizer",
                next_step="Use generate_ids",
            )
        pieces = self._answer(
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            stop_texts=stop_texts,
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
        """Token ids of the answer to token ids."""
        ids = token_ids(prompt, self._bundle.manifest.text.vocab_size)
        pieces = self._answer(ids, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
        return (piece.token for piece in pieces if piece.token is not None)

    def score(self, prompt: str | Sequence[Any], answers: Sequence[str | Sequence[int]]) -> list[Score]:
        """How likely the adapter that answers finds each of `answers` to a prompt: texts or, where that is token ids, token ids.

        What several have in common is computed once.
        """
        return scores_of(self._judge("score", prompt_json(prompt), answers_json("answers", answers)))

    def classify(self, prompt: str | Sequence[Any], labels: Sequence[str]) -> Classification:
        """The likeliest of `labels` as the answer to a prompt, for the time that it takes to know which one it is."""
        return classification_of(self._judge("classify", prompt_json(prompt), answers_json("labels", labels)))

    def _judge(self, what: str, prompt: str, answers: str) -> Any:
        self._core.check_open()
        return self._answers().judge(what, prompt, answers)

    def _answers(self) -> CoreRuntime | InProcess:
        return self._child if self.runtime == "core" else self._on_torch("Answering with the runtime 'torch'")

    def _answer(self, prompt: str | Sequence[Any], **settings: Any) -> Iterator[AnswerPiece]:
        """Of a session of its own. What is wrong is said at once, and not with the first piece."""
        check_prompt(prompt)
        session = self.session(**settings)
        try:
            session.feed(prompt)
        except BaseException:
            session.close()
            raise

        def pieces() -> Iterator[AnswerPiece]:
            with session:
                yield from session

        return pieces()

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

    def export_adapter(self, folder: str | Path, format: AdapterFormat = "peft", *, base: bool = False) -> Path:
        """The adapter that answers, as a folder for the original model.

        peft:  what `peft.PeftModel.from_pretrained` loads
        mlx:   what `mlx_lm.load(..., adapter_path=folder)` loads
        gguf:  adapter.gguf, for llama.cpp's `--lora`; llama, qwen2, qwen3 and gemma3_text
        Refused where the base model answers; `base` exports the bundle's initial adapter then, which changes nothing.
        """
        folder = arguments.folder("folder", folder)
        arguments.one_of("format", format, get_args(AdapterFormat))
        if not base and not self._core.versions():  # the core says it in words of every language
            raise AdapterError(
                "the adapter to export",
                got="none: no training was accepted, so the base model answers",
                expected="an accepted adapter",
                next_step="Train first, or ask for base=True, an adapter that changes nothing",
            )
        self._core.export_adapter(folder, format, base)
        return folder

    @opens_files
    def export_merged(self, folder: str | Path, model: str | Path, *, base: bool = False) -> Path:
        """The model with the adapter that answers merged into it, as a Hugging Face folder in float16.

        Its weights are the bundle's, int4 decoded, to which the adapter belongs. `model` is the folder or GGUF file that the bundle
        was built from: it gives configuration and tokenizer. Refused where the base model answers; `base` exports that.
        """
        from bespoke.compiler.opened_model import model_folder
        from bespoke.exports.merged import write_merged
        from bespoke.reference.exported import exported_adapter

        folder, model = (
            arguments.folder("folder", folder),
            arguments.path("model", model, "the path of a folder or GGUF file"),
        )
        manifest = self._bundle.manifest
        with tempfile.TemporaryDirectory() as place, model_folder(model) as (original, weights):
            exported = self.export_adapter(Path(place) / "adapter", base=base)
            adapter = exported_adapter(exported, manifest)
            return write_merged(self._bundle, adapter, original, weights(manifest.model.config), folder)

    def import_adapter(self, folder: str | Path, *, trust_base: bool = False) -> int:
        """Takes an adapter's folder, of PEFT or of mlx-lm, as the adapter that answers, and returns its version.

        Another alpha, a lower rank and fewer linears are taken as they are meant; a higher rank, other linears and kinds of LoRA
        that compute something else are refused by name. So is one that was trained on another base; `trust_base` takes one that
        does not say which.
        """
        return self._core.import_adapter(arguments.folder("folder", folder), trust_base)

    # ---- pieces ----------------------------------------------------------------------------------------------------------

    def _on_torch(self, what: str) -> InProcess:
        """Imports torch at its first use: 3 seconds and 280 MB that training on the core does without."""
        if self._torch is None:
            with MissingDependency.unless_there(what, "torch", "torch"):
                from bespoke.core.in_process import InProcess
            from bespoke.reference.machine import threads_of
            from bespoke.reference.torch_settings import computing

            engine = engine_of(self._bundle.manifest)
            as_tested = partial(computing, threads_of(self._bundle))
            self._torch = InProcess(library.load(), self._place, engine, self._memory_bytes, as_tested)
            self._torch.set_pace(self._share)
        return self._torch
