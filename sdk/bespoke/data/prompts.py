# SPDX-License-Identifier: Apache-2.0
"""The SDK's own prompts and openings of texts, by language and kind (everyday/<language>.txt, openings/<language>.txt).

A line `# kind` or `# kind (held out)` begins a kind. Every other line is a prompt, or an opening that a model continues.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

__all__ = ["Prompt", "read_prompts"]

_HELD_OUT = " (held out)"


@dataclass(frozen=True)
class Prompt:
    """A prompt of a kind. The answers to a held-out kind are never trained on."""

    text: str
    kind: str
    held_out: bool


def read_prompts(what: Literal["everyday", "openings"], languages: Iterable[str]) -> list[Prompt]:
    """The prompts of these languages, English first. English is always among them; a language without a file has none."""
    prompts: list[Prompt] = []
    for language in dict.fromkeys(["en", *languages]):
        file = files("bespoke.data") / what / f"{language}.txt"
        if not file.is_file():
            continue
        kind, held_out = "", False
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                kind, held_out = line[2:].removesuffix(_HELD_OUT), line.endswith(_HELD_OUT)
            else:
                prompts.append(Prompt(line, kind, held_out))
    return prompts
