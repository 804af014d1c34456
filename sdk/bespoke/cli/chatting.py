# SPDX-License-Identifier: Apache-2.0
"""`bespoke chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bespoke.cli.answering import answer_options
from bespoke.cli.output import PATH, Trust, need_state, state_option, trust_options, typed
from bespoke.errors import ConfigError, DataError, GenerationError

if TYPE_CHECKING:
    from bespoke.conversation import Conversation
    from bespoke.personal_model import PersonalModel

KEPT = 4  # messages that a conversation keeps when it gets too long
Messages = list[dict[str, str]]


@click.command(short_help="Talk with what was learned.")
@click.argument("bundle", type=PATH)
@state_option
@click.option("--system", metavar="TEXT", help="A system message to begin with.")
@answer_options(max_tokens=512, temperature=0.7)
@trust_options
def chat(bundle: Path, state: Path, system: str | None, trust: Trust, **settings: Any) -> None:
    """Talk with the adapter that answers. Each line is a message.

    /new begins another conversation. /quit or the end of the input ends the chat. Ctrl-C stops an answer.

    \b
    bespoke chat chat.bundle --state alice
    """
    from bespoke.personal_model import PersonalModel

    need_state(bundle, state, trust)
    start = [{"role": "system", "content": system}] if system else []
    with PersonalModel.open(bundle, state, **trust) as model:
        if not model.has_turns:
            raise ConfigError(
                str(bundle),
                got="a model without a chat template",
                expected="one with chat turns",
                next_step="Let it go on with a text: bespoke generate",
            )
        chat = Chat(model, start, settings)
        for line in _lines():
            if line == "/new":
                chat.begin()
            elif line:
                try:
                    chat.ask(line)
                except (DataError, GenerationError) as error:  # the conversation continues without this message
                    click.echo(f"({error})", err=True)


class Chat:
    """A chat of any length. It keeps the last messages when a conversation no longer fits in the context."""

    def __init__(self, model: PersonalModel, start: Messages, settings: dict[str, Any]) -> None:
        self._model, self._start, self._settings = model, start, settings
        self._conversation: Conversation | None = None
        self.begin()

    def begin(self, kept: Messages | None = None) -> None:
        """Begins another conversation with the start messages and those that are kept."""
        if self._conversation is not None:
            self._conversation.close()
        self._conversation = self._model.conversation(**self._settings)
        self._messages = [*self._start, *(kept or [])]
        self._new = list(self._messages)  # what the conversation has not been fed yet

    def ask(self, question: str) -> None:
        """Prints the answer to a question."""
        message = {"role": "user", "content": question}
        text = self._answer([*self._new, message])
        if text is None:
            click.echo("(The conversation became too long: it goes on with its last messages.)", err=True)
            self.begin([kept for kept in self._messages if kept["role"] != "system"][-KEPT:])
            text = self._answer([*self._new, message]) or ""

        self._messages += [message, {"role": "assistant", "content": text}]
        self._new = []

    def _answer(self, messages: Messages) -> str | None:
        """Prints and returns the answer to messages. None: it did not fit in the context."""
        assert self._conversation is not None
        text = ""
        try:
            for piece in self._conversation.feed(messages):
                text += piece.text
                click.echo(piece.text, nl=False)
        except KeyboardInterrupt:  # the part of the answer that was printed stays in the conversation
            pass

        if self._conversation.stopped_because == "context_full" and not text:
            return None
        click.echo()
        return text


def _next_line() -> str:
    line = typed(sys.stdin.readline)
    if not line:
        raise EOFError
    return line


def _lines() -> Iterator[str]:
    """Yields the lines that the user types, with a prompt on a terminal, until /quit or the end of the input."""
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401  (gives `input` editing and a history)
    while True:
        try:
            line = (input("> ") if terminal else _next_line()).strip()
        except EOFError:
            if terminal:
                click.echo()
            return
        if line == "/quit":
            return
        yield line
