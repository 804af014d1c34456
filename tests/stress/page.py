# SPDX-License-Identifier: Apache-2.0
"""The page, as `bespoke ui` serves it, and its browser: every button over HTTP, in any order."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.error
import urllib.request
import weakref
from functools import partial
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from bespoke.errors import BespokeError
from bespoke.ui.base import BaseModel
from bespoke.ui.desk import Desk
from bespoke.ui.server import listening, serve
from tests.stress.acting import HANG_SECONDS, Acting

TOKEN = "stress"
QUESTIONS = ("the cat ", "the dog ", "what does the cat say? ")


class Refused(BespokeError):
    """What the page says in words; the kind of the error is not among them."""


class Browser:
    """A page on a model, served by a thread of this process for as long as that lives."""

    def __init__(self, model: PersonalModel, bundle: Path, state: Path) -> None:
        socket = listening(0)
        self._address = f"http://127.0.0.1:{socket.getsockname()[1]}"
        desk = Desk(model, state, BaseModel(bundle))
        threading.Thread(target=serve, args=(desk, socket, TOKEN), daemon=True).start()

    def post(self, path: str, **fields: Any) -> Any:
        """The answer; Refused where it has an error. What is no such answer raises something else."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self._address + path, json.dumps(fields).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=HANG_SECONDS - 10) as answer:
                lines = [json.loads(line) for line in answer.read().decode().splitlines()]
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
            lines = [json.load(error)]
        for line in lines:
            if "error" in line and "done" not in line:
                raise Refused("the page", got=line["error"], expected="", next_step="")
        return lines[0].get("done", lines) if lines else []


_browsers: weakref.WeakKeyDictionary[PersonalModel, Browser] = weakref.WeakKeyDictionary()


def page_turn(acting: Acting, model: PersonalModel) -> None:
    browser = _browsers.get(model)
    if browser is None:
        browser = _browsers[model] = Browser(model, acting.places.bundles / acting.bundle, acting.places.state)
    view = acting.do("view", partial(seen, browser), lambda found: acting.some(ids_in(found)), page=True).value
    acting.chance.choice((adds, adds, forgets, asks, asks, trains, takes_back))(acting, browser, view or {})
    acting.pause(0.4)


def seen(browser: Browser) -> dict[str, Any]:
    """What the page shows, if nothing went wrong in its training."""
    view: dict[str, Any] = browser.post("/view")  # as a browser that has nothing yet
    if view["training"]["error"] is not None:
        raise Refused("the page's training", got=view["training"]["error"], expected="", next_step="")
    return view


def ids_in(view: dict[str, Any]) -> list[str]:
    return [one["id"] for one in view.get("notes", {}).get("new", ())]


def adds(acting: Acting, browser: Browser, view: dict[str, Any]) -> None:
    """The page names an example by its content, so its id is known when it has answered."""
    _, example = acting.example()
    if "text" in example:
        fields = {"prompt": "", "completion": example["text"]}
    else:
        example = {"prompt": example["prompt"].strip(), "completion": example["completion"]}
        fields = example
    acting.do(
        "add",
        lambda: browser.post("/add", **fields),
        lambda done: {"created": done["created"], "split": done["split"]},
        id=id_of(example),
        example=example,
        page=True,
    )


def id_of(example: dict[str, Any]) -> str:
    """An example without an id has the sha256 of its JSON (docs/reference)."""
    return hashlib.sha256(
        json.dumps(example, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    ).hexdigest()


def forgets(acting: Acting, browser: Browser, view: dict[str, Any]) -> None:
    ids = ids_in(view)
    if ids:
        id = acting.chance.choice(ids)
        acting.do(
            "forget",
            lambda: browser.post("/forget", id=id),
            lambda done: {"example": done["example"]},
            id=id,
            page=True,
        )


def asks(acting: Acting, browser: Browser, view: dict[str, Any]) -> None:
    question = acting.chance.choice(QUESTIONS)
    base = acting.chance.random() < 0.2
    acting.do("generate", lambda: browser.post("/ask", question=question, base=base), len, page=True)


def trains(acting: Acting, browser: Browser, view: dict[str, Any]) -> None:
    acting.do("begin training", lambda: browser.post("/train") or True, page=True)
    if acting.chance.random() < 0.3:
        acting.do("stop training", lambda: browser.post("/stop") or True, page=True)


def takes_back(acting: Acting, browser: Browser, view: dict[str, Any]) -> None:
    versions = [one["id"] for one in view.get("versions", ())]
    path = acting.chance.choice(("/rollback", "/rollback", "/reset"))
    acting.do(path.strip("/"), lambda: browser.post(path) or True, versions=versions, page=True)
