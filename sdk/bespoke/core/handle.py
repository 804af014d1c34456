# SPDX-License-Identifier: Apache-2.0
"""An open model of the library: the verbs of the store, and the calls that compute in this process.

Any thread may call it. `close` waits for the calls that run and refuses later ones. It is refused from within a call. A handle
belongs to the process that opened it. A fork does not hold the locks that protect the state, so it refuses calls there, and its
`close` does nothing.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from bespoke.core.answers import Generation, Judged
from bespoke.core.library import (
    CBundle,
    CCall,
    CExample,
    CGeneration,
    COptions,
    CPiece,
    CTraining,
    Library,
    OnProgress,
    record,
    struct,
    text,
)
from bespoke.core.process import check_process
from bespoke.core.reported import progress_of, until_none
from bespoke.errors import Busy, StateError
from bespoke.remedies import verb
from bespoke.rules.records import (
    AddedExample,
    AnswerEnd,
    AnswerPiece,
    Description,
    ExampleInfo,
    Forgotten,
    PlannedTraining,
    Run,
    Version,
)
from bespoke.rules.report import Listener, Progress

__all__ = ["Handle", "Place", "Request"]

Stop = Callable[[], bool]
_ENDS: tuple[AnswerEnd, ...] = get_args(AnswerEnd)  # by their numbers in C, from 1


@dataclass(frozen=True)
class Place:
    """A bundle, what proves it, and the user's state."""

    bundle: Path
    state: Path
    pin_sha256: str
    public_key: bytes | None = None
    busy_seconds: float | None = 30.0  # how long to wait for another process; None: however long it takes

    @property
    def c_busy_seconds(self) -> float:
        """`busy_seconds` as C has it, where 0 is the default."""
        return -1.0 if self.busy_seconds is None else max(self.busy_seconds, 1e-9)

    @property
    def waiting(self) -> Any:
        """A pointer to a call that waits for other processes as long as this place says."""
        return c.pointer(struct(CCall, busy_seconds=self.c_busy_seconds))

    def structs(self, **options: Any) -> tuple[Any, Any, Any]:
        """Returns the first arguments of bespoke_open and bespoke_reset_for_new_base. Without `memory_mb` there is no limit."""
        settings = {"memory_mb": -1.0, "pin_sha256": self.pin_sha256, "public_key": self.public_key, **options}
        bundle, state = (os.fsencode(path.absolute()) for path in (self.bundle, self.state))
        return struct(CBundle, path=bundle), text(state), struct(COptions, **settings)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `train`."""

    run_steps: int | None = None
    most_steps: int | None = None
    method: str | None = None
    seed: int | None = None
    settings: Mapping[str, Any] | None = None
    new_run: bool = False  # whether to drop an unfinished run

    def struct(self) -> CTraining:
        training: CTraining = struct(
            CTraining,
            method=self.method or "",
            run_steps=self.run_steps or 0,
            most_steps=self.most_steps or 0,
            seed=self.seed or 0,
            has_seed=int(self.seed is not None),
            settings=json.dumps(dict(self.settings)) if self.settings else "",
            new_run=int(self.new_run),
        )
        return training


class Handle:
    """An open model. The constructor opens it."""

    def __init__(self, library: Library, place: Place, **options: Any) -> None:
        self.state = place.state
        self._place = place
        self._library = library
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._callers: list[int] = []  # the thread of each call that runs
        self._closed = False

        bundle, state, settings = place.structs(**options)
        model = c.c_void_p()
        library.call("bespoke_open", c.byref(bundle), state, c.byref(settings), place.waiting, c.byref(model))
        self._model = model
        self._end = weakref.finalize(self, library.plain, "bespoke_release", model)
        self._end.atexit = False  # another thread may still run a call

    @property
    def is_of_this_process(self) -> bool:
        return os.getpid() == self._process

    def close(self) -> None:
        """Raises Busy from within a call, where it would wait for itself."""
        if not self.is_of_this_process:
            return
        with self._changed:
            if threading.get_ident() in self._callers:
                raise Busy(
                    str(self.state),
                    got="its end from within one of its calls",
                    expected="calls that have ended",
                    next_step="Return from the callback, and close the model when the call has ended",
                )
            self._closed = True
            self._changed.wait_for(lambda: not self._callers)
        if self._end.detach() is not None:
            self._library.call("bespoke_close", self._model, -1.0)

    @contextmanager
    def _open(self) -> Iterator[c.c_void_p]:
        """Yields the model for a call. Raises StateError once it is closed."""
        check_process(self._process, str(self.state))  # before the lock, which a fork may have inherited locked
        with self._changed:
            if self._closed:
                raise StateError(
                    str(self.state),
                    got="a model that was closed",
                    expected="an open one",
                    next_step="Open it again with " + verb("open"),
                )
            self._callers.append(threading.get_ident())
        try:
            yield self._model
        finally:
            with self._changed:
                self._callers.remove(threading.get_ident())
                self._changed.notify_all()

    def _call(self, name: str, *arguments: Any) -> None:
        with self._open() as model:
            self._library.call(name, model, *arguments)

    def _ask(self, name: str, *arguments: Any) -> Any:
        with self._open() as model:
            return self._library.ask(name, model, *arguments)

    def check_open(self) -> None:
        with self._open():
            pass

    # ---- the store's verbs -----------------------------------------------------------------------------------------------

    def add_example(self, example: str, id: str | None, use: str | None) -> AddedExample:
        given = struct(CExample, json=example, id=id or "", use=use or "")
        return record(AddedExample, self._ask("bespoke_add_example", c.byref(given), self._place.waiting))

    def add_examples(self, examples: Sequence[tuple[str, str | None, str | None]]) -> list[AddedExample]:
        """Adds examples, each as JSON, id and use."""
        structs = [struct(CExample, json=json, id=id or "", use=use or "") for json, id, use in examples]
        pointers = (c.POINTER(CExample) * len(structs))(*map(c.pointer, structs))
        added = self._ask("bespoke_add_examples", pointers, len(structs), self._place.waiting)
        return [record(AddedExample, one) for one in added]

    def correct(self, answer: str, better: str) -> AddedExample:
        return record(AddedExample, self._ask("bespoke_correct", text(answer), text(better), self._place.waiting))

    def examples(self, after: str = "", most: int = 0) -> list[ExampleInfo]:
        return [record(ExampleInfo, example) for example in self._ask("bespoke_list_examples", text(after), most)]

    def count_examples(self) -> int:
        count = c.c_int64()
        self._call("bespoke_count_examples", c.byref(count))
        return count.value

    def forget(self, id: str) -> Forgotten:
        forgotten = self._ask("bespoke_forget_example", text(id), self._place.waiting)
        return record(Forgotten, {**forgotten, "rounds": tuple(forgotten["rounds"])})

    def current_run(self) -> Run | None:
        run = self._ask("bespoke_current_run")
        return None if run is None else record(Run, {**run, "example_ids": tuple(run["example_ids"])})

    def describe(self) -> Description:
        description = self._ask("bespoke_describe")
        lists = {name: tuple(description[name]) for name in ("methods", "targets")}
        return record(Description, {**description, **lists})

    def count_tokens(self, prompt: str) -> int:
        tokens = c.c_int64()
        self._call("bespoke_count_tokens", text(prompt), c.byref(tokens))
        return tokens.value

    def trim(self) -> None:
        self._call("bespoke_trim")

    def planned_training(self) -> list[PlannedTraining]:
        return [record(PlannedTraining, plan) for plan in self._ask("bespoke_planned_training")]

    def check_training(self, request: Request) -> None:
        self._call("bespoke_check_training", c.byref(request.struct()))

    def abandon_run(self) -> bool:
        ended = c.c_int32()
        self._call("bespoke_abandon_run", self._place.waiting, c.byref(ended))
        return bool(ended.value)

    def versions(self) -> list[Version]:
        return [record(Version, version) for version in self._ask("bespoke_list_versions")]

    def rollback(self) -> Version | None:
        version = self._ask("bespoke_rollback", self._place.waiting)
        return None if version is None else record(Version, version)

    def reset(self) -> None:
        self._call("bespoke_reset", self._place.waiting)

    def export_adapter(self, folder: Path, format: str, base: bool) -> None:
        self._call("bespoke_export_adapter", text(os.fsencode(folder)), text(format), int(base), self._place.waiting)

    def import_adapter(self, folder: Path, trust_base: bool) -> int:
        version = c.c_int64()
        self._call(
            "bespoke_import_adapter", text(os.fsencode(folder)), int(trust_base), self._place.waiting, c.byref(version)
        )
        return version.value

    # ---- calls that compute ----------------------------------------------------------------------------------------------

    def train(
        self, request: Request, seconds: float | None, on_progress: Listener | None, stop: Stop | None
    ) -> dict[str, Any]:
        """Returns the core's report."""
        given = request.struct()
        return self._computed("bespoke_train", [c.byref(given)], None, seconds, on_progress, stop)

    def evaluate(self, split: str, examples: Sequence[str] | None) -> dict[str, Any]:
        """Returns the core's report on `examples`, each a JSON text. None: on the user's examples of a split."""
        listed = "" if examples is None else f"[{','.join(examples)}]"
        return self._computed("bespoke_evaluate", [text(split), text(listed)])

    def open_conversation(self, generation: Generation) -> HandleConversation:
        return HandleConversation(self, generation)

    def judge(self, what: Judged, prompt: str, answers: str) -> Any:
        """Returns the core's JSON result."""
        return self._computed(f"bespoke_{what}", [text(prompt), text(answers)])

    def set_limit(self, memory_mb: float) -> None:
        self._call("bespoke_set_limit", memory_mb)

    def set_pace(self, share: float) -> None:
        self._call("bespoke_set_pace", share)

    def _computed(
        self,
        name: str,
        arguments: Sequence[Any],
        session: c.c_void_p | None = None,
        seconds: float | None = None,
        on_progress: Listener | None = None,
        stop: Stop | None = None,
        ask: Callable[..., Any] | None = None,
    ) -> Any:
        """Returns the result of a call of the model, or of `session` if it is given: its JSON document, or what `ask` makes of it.

        The call runs on a thread of its own, so this thread can receive an interrupt. This thread also calls the callbacks. The
        core waits while `on_progress` runs. `stop` is asked after each progress and 20 times a second.
        """
        reported: queue.SimpleQueue[Progress | None] = queue.SimpleQueue()
        heard, gone, begun, stopped = threading.Semaphore(0), threading.Event(), threading.Event(), threading.Event()
        cancel = self._library.plain("bespoke_cancel_new")

        def end() -> None:
            """A call whose token is set before it begins gives no report. So until then its first progress ends it."""
            stopped.set()
            if begun.is_set():
                self._library.plain("bespoke_cancel_set", cancel)

        def report(_: Any, progress: Any) -> int:
            begun.set()
            if on_progress is not None and not gone.is_set():  # without `on_progress`, as for a token, nobody waits
                reported.put(progress_of(progress.contents))
                heard.acquire()
            return int(stopped.is_set())

        call = struct(CCall, cancel=cancel, deadline_seconds=seconds or 0.0, progress=OnProgress(report))
        call.busy_seconds = self._place.c_busy_seconds
        try:
            with self._open() as model, ThreadPoolExecutor(1, "bespoke") as alone:
                if stop is not None and stop():
                    end()
                call_it: Callable[..., Any] = ask or self._library.ask
                done = alone.submit(call_it, name, session or model, *arguments, c.byref(call))
                done.add_done_callback(lambda _: reported.put(None))
                try:
                    for progress in until_none(reported):
                        check_process(self._process, str(self.state))  # a callback may have forked
                        if progress is not None:
                            try:
                                assert on_progress is not None
                                on_progress(progress)
                            finally:
                                heard.release()
                        if stop is not None and stop():
                            end()
                except BaseException:
                    self._library.plain("bespoke_cancel_set", cancel)
                    gone.set()
                    heard.release()  # the core may wait to report a progress
                    raise
                return done.result()
        finally:
            self._library.plain("bespoke_cancel_free", cancel)


class HandleConversation:
    """A conversation with an open model: a session of bespoke.h. It closes with its last reference, at the latest."""

    def __init__(self, core: Handle, generation: Generation) -> None:
        self._core = core
        given = {**generation.fields(), "stop_texts": json.dumps(generation.stop_texts)}
        session = c.c_void_p()
        core._call("bespoke_session_open", c.byref(struct(CGeneration, **given)), c.byref(session))
        self._session = session
        self.close = weakref.finalize(self, core._library.plain, "bespoke_session_close", session)
        self.close.atexit = False  # another thread may still run a call

    def feed(self, prompt: str) -> None:
        with self._core._open():
            self._core._library.call("bespoke_session_feed", self._session, text(prompt))

    def next(self) -> AnswerPiece:
        piece: AnswerPiece = self._core._computed("bespoke_session_next", [], self._session, ask=self._asked)
        return piece

    def _asked(self, name: str, *arguments: Any) -> AnswerPiece:
        given = c.POINTER(CPiece)()
        self._core._library.call(name, *arguments, c.byref(given))
        piece = given.contents
        return AnswerPiece(
            c.string_at(piece.text.data, piece.text.size).decode(),
            None if piece.token < 0 else piece.token,
            piece.tokens,
            _ENDS[piece.ended - 1] if piece.ended else None,
        )


def reset_for_new_base(library: Library, place: Place) -> None:
    """Moves a state to a bundle with another base model."""
    bundle, state, options = place.structs()
    library.call("bespoke_reset_for_new_base", c.byref(bundle), state, c.byref(options), place.waiting)
