# SPDX-License-Identifier: Apache-2.0
"""A process that forks while it has the model open. A handle belongs to the process that opened it: in the child every use of it is
refused, and the child may be refused the state, too."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bespoke import PersonalModel
from bespoke.conversation import Conversation
from tests.stress.acting import Acting

CHILD_SECONDS = 80.0
INHERITED: dict[str, Any] = {"fork": True, "inherited": True}


def use_over_fork(acting: Acting, model: PersonalModel) -> None:
    acting.add(model, fork=True)
    conversation = (
        acting.do("conversation", lambda: model.conversation(max_tokens=4), fork=True).value
        if acting.chance.random() < 0.3
        else None
    )
    child = acting.forked()
    if acting.chance.random() < 0.5:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                in_the_child(child, model, conversation)
                status = 0
            finally:
                os._exit(status)
    else:
        process = multiprocessing.get_context("fork").Process(target=in_the_child, args=(child, model, conversation))
        process.start()
        assert process.pid is not None
        pid = process.pid
    if acting.chance.random() < 0.5:
        acting.do("close", model.close, fork=True)
        own = acting.opened()
        if own is None:
            acting.do("wait for the child", partial(wait, pid), int, fork=True)
            return
        model = own
    for _ in range(2):
        acting.add(model, fork=True)
    acting.do("wait for the child", partial(wait, pid), int, fork=True)
    acting.forget(model, acting.example()[0], fork=True)  # which nobody has added
    acting.do("close", model.close, fork=True)


def in_the_child(acting: Acting, model: PersonalModel, conversation: Conversation | None) -> None:
    """Several uses of what was inherited, and then the same of a model of its own."""
    uses: list[Callable[[], object]] = [
        partial(acting.add, model, acting.example(), **INHERITED),
        partial(acting.add, model, acting.example(), **INHERITED),
        partial(acting.listed, model, **INHERITED),
        partial(acting.forget, model, acting.example()[0], **INHERITED),
        partial(acting.generate, model, **INHERITED),
        partial(acting.do, "versions", model.versions, lambda found: [one.id for one in found], **INHERITED),
        partial(acting.train, model, **INHERITED),
    ]
    if conversation is not None:
        uses.append(partial(acting.do, "feed", lambda: conversation.feed("the cat "), **INHERITED))
    for use in acting.chance.sample(uses, 4):
        use()
        acting.pause(0.1)
    if acting.chance.random() < 0.3:
        acting.do("close", model.close, **INHERITED)
    call = partial(PersonalModel.open, acting.places.bundles / acting.bundle, acting.places.state, engine="executorch")
    own = acting.do("open", call, fork=True).value
    if own is not None:
        for _ in range(acting.chance.randint(1, 4)):
            acting.add(own, fork=True)
        acting.do("close", own.close, fork=True)


def wait(pid: int) -> int:
    """Exit status of a child; one that hangs is killed, and that is an error."""
    deadline = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGABRT)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the forked child hung for {CHILD_SECONDS} s")
