# SPDX-License-Identifier: Apache-2.0
"""Makes calls of the SDK and of the command line in a process of its own: one that waits for ever can be ended, and none takes a
test's memory with it.

argv: the bundle, a model's folder, a folder to work in, with `state`. stdin: one call a line, in JSON: Python over the names below.
stdout: a JSON line for each: `raised`, the class of what it raised and whether it is ours, and `said`, what a person reads of it.
"""

# ruff: noqa: F401  (names for the calls)

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke import Budget, Lora, Personalizer, PersonalModel, Training, cli, install
from bespoke.bundle.archive import pack
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import generate_key, sign_bundle
from bespoke.data.files import read_examples
from bespoke.data.prepare import prepare
from bespoke.data.text import Tokenizer
from bespoke.errors import BespokeError
from bespoke.exports.gguf_base import export_base
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.families import read_config
from bespoke.plot import check_path
from bespoke.tasks import read_task

MOST_MEMORY = 16 * 2**30  # a device that is read without end stops here, at the latest
bundle, model_folder, place = (Path(one) for one in sys.argv[1:4])
state = place / "state"
LONG = "x" * (9_000_000 if os.environ.get("BESPOKE_FULL") == "1" else 300_000)
HOSTILE = (
    "a\x1b[2Jb\nc\u202ed\0e\ud800f"  # clears a screen, begins a line, turns the direction of writing; half of a pair
)


class Ended(Exception):
    """A command line that ended with an error."""


def opened(**options: Any) -> PersonalModel:
    return PersonalModel.open(bundle, state, **options)


def command(*words: object) -> str:
    """A command line; its stderr, as the error where it has one."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run([str(word) for word in words])
    if code:
        raise Ended(err.getvalue())
    return out.getvalue()


def read(rows: Any) -> list[Any]:
    return list(rows)


def without_descriptors(call: Callable[[], Any], left: int = 0) -> Any:
    """The call, while this process may open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    limit, free = 0, left
    while free or limit in used:
        free -= limit not in used
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        return call()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answered(call: str) -> dict[str, Any]:
    try:
        found = eval(call, globals())
    except (BespokeError, Ended) as error:
        return {"raised": type(error).__name__, "ours": True, "said": str(error)}
    except BaseException as error:
        return {"raised": type(error).__name__, "ours": False, "said": repr(error)[:2000]}
    return {"raised": None, "ours": True, "said": found if isinstance(found, str) else ""}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    model = opened()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), file=answers, flush=True)
