# SPDX-License-Identifier: Apache-2.0
"""The core's store in a process of its own (bindings/native/tests/state_lab.cpp)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tests.native.lab_process import answer_of, end, error_of

BASE = hashlib.sha256(b"a base model").hexdigest()
SHAPES = {
    "block_00.q_proj.lora_A": (2, 6),
    "block_00.q_proj.lora_B": (5, 2),
    "block_01.down_proj.lora_A": (2, 9),
    "block_01.down_proj.lora_B": (6, 2),
}


class CoreState:
    """Actions of one process on one state. What the core refuses is raised as the Python error of that name."""

    def __init__(self, program: Path, preload: Path | None = None) -> None:
        environment = dict(os.environ, **({} if preload is None else {"LD_PRELOAD": str(preload)}))
        self.retokenize: Callable[[str], Any] = (
            json.loads
        )  # what is answered for an example's JSON in a reset for a new base
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def act(self, what: str, **values: Any) -> Any:
        """EOFError where the process dies of it."""
        self._say({"do": what, **values})
        answer = answer_of(self.process)
        while "retokenize" in answer:
            self._say(self.retokenize(answer["retokenize"]))
            answer = answer_of(self.process)
        if "error" not in answer:
            return answer["value"]
        error = error_of(answer)
        assert str(error) == answer["text"]
        raise error

    def _say(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def open(self, folder: Path, base: str = BASE, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> Self:
        self.act("open", folder=str(folder), base=base, adapter={name: list(shape) for name, shape in shapes.items()})
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self.process)


def given(tensors: Mapping[str, np.ndarray], place: Path) -> dict[str, Any]:
    """Tensors as an action takes them: their numbers in a file."""
    path = place / "given.bin"
    path.write_bytes(b"".join(tensors[name].tobytes() for name in sorted(tensors)))
    return {"tensors": {name: list(tensor.shape) for name, tensor in tensors.items()}, "data": str(path)}


def as_text(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def bits_of(values: Sequence[float]) -> list[int]:
    bits: list[int] = np.array(values, np.float32).view(np.uint32).tolist()
    return bits
