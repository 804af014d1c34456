# SPDX-License-Identifier: Apache-2.0
"""Reads the turns in a text that a chat template rendered: `<|im_start|>user\\nHello<|im_end|>`, `[INST] Hello [/INST]`.

Training data often holds whole conversations as text, with the template's own tokens. As plain text these tokens would be tokenized
character by character, and the model would learn to write them. So at build time such a row is read as the turns that it holds. It
is refused if there is not exactly one way to read it. On a device a text stays a text, and no words of a user make a turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from bespoke.data.marks import Marks
from bespoke.data.text import Tokenizer
from bespoke.data.turns import ROLES, Role, Turns
from bespoke.errors import DataError

__all__ = ["TurnReader"]

_SHOWN = 60  # characters


class TurnReader:
    """Reads the turns of one template. The template's markers must be protected already (`protect_markers`)."""

    def __init__(self, tokenizer: Tokenizer, turns: Turns) -> None:
        self._turns = turns
        names = tokenizer.special_tokens
        self._bos = names.get("bos_token") if names.get("bos_token") != names.get("eos_token") else None
        self._eos = names.get("eos_token")
        in_template = [token for text in turns.markers() for token in tokenizer.added_tokens_in(text) if token.strip()]
        tokens = {*in_template, *filter(None, (self._bos, self._eos))}
        self._marks = sorted({*tokens, *Marks(tokenizer, turns).texts()}, key=len, reverse=True)
        self._headers = self._find_headers()

    def read(self, example: Mapping[str, Any], subject: str) -> Mapping[str, Any]:
        """The messages that the example's text holds, or `example` itself if it holds none.

        DataError for a text with the template's tokens that is not a conversation as the template writes it.
        """
        text = example.get("text")
        if not isinstance(text, str) or not any(mark in text for mark in self._marks):
            return example

        if self._eos and text.rstrip().endswith(self._eos):
            plain = text.rstrip()[: -len(self._eos)]
            plain = plain.removeprefix(self._bos) if self._bos else plain
            if not any(mark in plain for mark in self._marks):  # a plain text with bos and eos, which it gets anyway
                return {**example, "text": plain}

        messages = self._messages(text)
        if messages is None:
            mark = next(mark for mark in self._marks if mark in text)
            at = max(0, text.index(mark) - _SHOWN // 2)
            raise DataError(
                f"{subject}.text",
                got=f"the chat template's own {mark!r} where it makes no turn: {text[at : at + _SHOWN]!r}",
                expected="a whole conversation as the template writes it, or words alone",
                next_step='Give the conversation as {"messages": [...]}, or leave these tokens out',
            )
        return {"messages": messages}

    def _messages(self, text: str) -> list[dict[str, str]] | None:
        """The conversation that the template writes as `text`, None if there is none."""
        text = text.replace(self._bos, "") if self._bos else text
        places = [(match.start(), match.end(), match.group()) for match in self._headers[0].finditer(text)]
        if not places or text[: places[0][0]].strip():
            return None

        messages = []
        for (_, begin, header), (end, _, _) in pairwise([*places, (len(text), 0, "")]):
            role = self._headers[1][header]
            content = text[begin:end].strip()
            content = content.removesuffix(self._turns.ending(role).strip()).strip()
            if any(mark in content for mark in self._marks):
                return None
            messages.append({"role": role, "content": content})

        try:
            written = "".join(piece.text for piece in self._turns.render(messages))
        except DataError:  # an order that the template does not know
            return None
        return messages if self._is_written(text, written, self._turns.ending(messages[-1]["role"])) else None  # type: ignore[arg-type]

    def _is_written(self, text: str, written: str, ending: str) -> bool:
        """Whether `written`, the template's text, equals `text`.

        White space, bos and the last ending do not count. `written` may begin with a system message that the template adds itself.
        """

        def packed(words: str) -> str:
            without = words.replace(self._bos, "") if self._bos else words
            return "".join(without.split()).removesuffix("".join(ending.split()))

        return packed(written).endswith(packed(text))

    def _find_headers(self) -> tuple[re.Pattern[str], dict[str, Role]]:
        """A pattern for the header of any message, and the role of each header."""
        roles: dict[str, Role] = {}
        for glue in self._turns.glue:
            if glue.next not in ROLES:
                continue
            ending = self._turns.ending(glue.previous) if glue.previous in ROLES else ""
            # The ending of a question may be the whole header of its answer: ` [/INST]`.
            header = glue.text[len(ending) :] if glue.text[len(ending) :].strip() else glue.text
            header = (header.replace(self._bos, "") if self._bos else header).strip()
            if header:
                roles.setdefault(header, glue.next)
        longest_first = sorted(roles, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)"), roles
