# SPDX-License-Identifier: Apache-2.0
"""The core's verb `encode` (bindings/native/src/tool/encode.h): a child process that encodes one example after the other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bespoke.core.finding import find
from bespoke.core.library import error_of
from bespoke.errors import BespokeError, DataError

__all__ = ["encoding"]

Ask = Callable[[Mapping[str, Any], str], dict[str, Any]]


@contextmanager
def encoding(
    tokenizer_bin: Path | None, turns: Path | None, *, train_on: str, max_length: int, vocabulary: int
) -> Iterator[Ask]:
    """Yields a function that encodes an example and returns the core's event `rows` or `untrained`.

    The function takes the example and its name in errors, and raises the core's errors. Raises MissingDependency without a core.
    """
    core = find().required("The device core, which turns data into tokens")
    request = {
        "verb": "encode",
        "tokenizer_bin": _text(tokenizer_bin),
        "turns": _text(turns),
        "train_on": train_on,
        "max_length": max_length,
        "vocabulary": vocabulary,
    }
    with subprocess.Popen(
        [core], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
    ) as child:
        try:
            _answer_to(child, json.dumps(request).encode())

            def ask(example: Mapping[str, Any], subject: str) -> dict[str, Any]:
                try:
                    line = json.dumps(
                        {"example": example, "subject": subject}, ensure_ascii=False, allow_nan=False
                    ).encode()
                except ValueError as error:
                    half = isinstance(error, UnicodeEncodeError)
                    raise DataError(
                        subject,
                        got="half of a surrogate pair" if half else "a number that is not finite",
                        expected="Unicode text, and numbers that JSON can hold",
                        next_step="Correct the row",
                    ) from None
                return _answer_to(child, line)

            yield ask
        finally:
            child.kill()  # it holds nothing that could be lost


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _answer_to(child: subprocess.Popen[bytes], line: bytes) -> dict[str, Any]:
    """Sends a line and returns the answer."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(line + b"\n")
        child.stdin.flush()
        answer = child.stdout.readline()
    except BrokenPipeError:
        answer = b""

    if not answer.endswith(b"\n"):
        raise BespokeError(
            "The device core",
            got=f"an end with status {child.wait()} while it encoded",
            expected="an answer",
            next_step="Report it with the row that it was given",
        )

    event: dict[str, Any] = json.loads(answer)
    if event["event"] == "error":
        raise error_of(event)
    return event
