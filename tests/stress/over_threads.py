# SPDX-License-Identifier: Apache-2.0
"""One model used by several threads at a time; conversations that are used when the thread that opened them has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from bespoke import PersonalModel
from tests.stress.acting import Acting


def use_from_threads(acting: Acting, model: PersonalModel) -> None:
    if acting.chance.random() < 0.4:
        outlive_the_thread(acting, model)
    else:
        all_at_once(acting, model)


def all_at_once(acting: Acting, model: PersonalModel) -> None:
    threads: dict[str, Any] = {"threads": True}
    kept = acting.add(model, **threads)
    works: list[Callable[[], object]] = [
        partial(acting.add, model, acting.example(), **threads),
        partial(acting.add, model, acting.example(), **threads),
        partial(acting.listed, model, **threads),
        partial(acting.generate, model, **threads),
        partial(acting.generate, model, **threads),
        partial(acting.do, "versions", model.versions, lambda found: [one.id for one in found], **threads),
    ]
    if kept.value is not None:
        works.append(partial(acting.forget, model, kept.value.id, **threads))
    if acting.chance.random() < 0.3:
        works.append(partial(acting.train, model, **threads))
    in_threads(*acting.chance.sample(works, 5))


def outlive_the_thread(acting: Acting, model: PersonalModel) -> None:
    """A conversation is opened, fed and asked for a token in one thread after the other, none of which outlives its work."""
    ask = partial(acting.do, threads=True)
    opened = []
    in_threads(lambda: opened.append(ask("conversation", lambda: model.conversation(max_tokens=6))))
    conversation = opened[0].value
    if conversation is None:
        return
    in_threads(lambda: opened.append(ask("feed", lambda: conversation.feed("the cat "))))
    if opened[1].error is None:
        for _ in range(3):
            in_threads(lambda: ask("next", lambda: next(conversation, None) or "the end"))
    ask("close conversation", conversation.close)
    in_threads(partial(acting.generate, model, threads=True))
    acting.generate(model, threads=True)


def in_threads(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
