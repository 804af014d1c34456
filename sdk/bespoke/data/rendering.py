# SPDX-License-Identifier: Apache-2.0
"""Renders a chat template by Jinja in a child process, with bounds on time and memory.

A template comes with a model that somebody downloads. Jinja's sandbox keeps it from files and attributes, but not from
`{{ 10 ** 10 ** 8 }}`. The system's limits on a process stop such a template. One process renders all conversations of a template.

Parent and child exchange lines of JSON. The first request has the template, the special tokens, the date and the variables. Each
later request has messages and `generate`. The child answers each request with one line: `text`, or `refused` with the template's
own words about the roles, or `got`, `expected` and `next_step` of an error.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date as Date
from importlib.util import find_spec
from typing import Any

from bespoke.errors import MissingDependency, TemplateError
from bespoke.remedies import setting

__all__ = ["NotAllowed", "Render", "refusal", "rendering"]

Render = Callable[[Sequence[tuple[str, str]], bool], str]

LARGEST_TEMPLATE = 1 << 20  # characters of the template, and of one rendered conversation
# Bounds for all conversations of a template together. Templates of the known families take less than a second and 50 MB.
MOST_SECONDS = 5
MOST_BYTES = 1 << 29  # of addresses
_SHOWN = 200  # characters of an error's text
_MISSING_TOKEN = re.compile(r"'((?:bos|eos|unk|pad)_token)' is undefined")  # in jinja2's words


class NotAllowed(Exception):
    """The template called raise_exception, since it does not know this order of roles."""


def refusal(*, got: str, expected: str, next_step: str) -> TemplateError:
    """The error for a chat template that cannot be used."""
    return TemplateError("The chat template", got=got, expected=expected, next_step=next_step)


@contextmanager
def rendering(
    template: str, special_tokens: Mapping[str, str], date: str | None, variables: Mapping[str, Any]
) -> Iterator[Render]:
    """Starts the child process and yields a function that renders (role, content) messages. The context ends the process.

    With its second argument true, the function renders a prompt: the text ends with the header of an answer.

    Templates of models that also see images read a content as a list of parts only (`message.content[0].text`). Such a template
    gets each content as a list of one text part.

    TemplateError for a text that is not a template, a template that fails, and one that exceeds the bounds above.
    """
    if find_spec("jinja2") is None:
        raise MissingDependency.of("A chat template", "jinja2", "build")
    if len(template) > LARGEST_TEMPLATE:
        raise refusal(
            got=f"{len(template)} characters",
            expected=f"at most {LARGEST_TEMPLATE}",
            next_step="Take the template from the model's own folder",
        )
    _parse_date(date)
    # -P keeps the child from importing modules out of the current folder.
    command = [sys.executable, "-P", "-m", __name__]
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
    ) as child:
        try:
            _ask(child, {"template": template, "names": {**special_tokens, **variables}, "date": date})

            def as_texts(messages: Sequence[tuple[str, str]], generate: bool) -> str:
                return _text(child, [{"role": role, "content": content} for role, content in messages], generate)

            def as_parts(messages: Sequence[tuple[str, str]], generate: bool) -> str:
                parts = [(role, [{"type": "text", "text": content}]) for role, content in messages]
                return _text(child, [{"role": role, "content": content} for role, content in parts], generate)

            yield as_parts if not _shows_content(as_texts) and _shows_content(as_parts) else as_texts
        finally:
            child.kill()  # nothing is lost: it writes no files


def _parse_date(date: str | None) -> Date | None:
    try:
        return None if date is None else Date.fromisoformat(date)
    except (ValueError, TypeError):
        raise refusal(
            got=f"date={date!r}", expected='a day such as "2024-07-26"', next_step="Write it as year-month-day"
        ) from None


def _shows_content(render: Render) -> bool:
    content = "a question"
    try:
        return content in render([("user", content)], True)
    except (NotAllowed, TemplateError):
        return False


def _text(child: subprocess.Popen[bytes], messages: list[dict[str, Any]], generate: bool) -> str:
    answer = _ask(child, {"messages": messages, "generate": generate})
    if "refused" in answer:
        raise NotAllowed(answer["refused"])
    return str(answer["text"])


def _ask(child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    line = b""
    with suppress(BrokenPipeError):
        # If an earlier request ended the child, text written now would raise when its stdin is closed.
        if child.returncode is None:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            line = child.stdout.readline()

    if not line.endswith(b"\n"):
        status = child.wait()
        slow = status in (-signal.SIGXCPU, -signal.SIGKILL)
        end = f"an end of the process that renders it, with status {status}"
        raise refusal(
            got=f"more than {MOST_SECONDS} seconds of work" if slow else end,
            expected=f"a template that renders short conversations within {MOST_SECONDS} seconds and {MOST_BYTES >> 20} MiB",
            next_step="Take the template from the model's own folder, or use prompt and completion instead of messages",
        )
    answer: dict[str, Any] = json.loads(line)
    if "got" in answer:
        raise refusal(**answer)
    return answer


# The rest of this module runs in the child.


class _Refused(Exception):
    """An error with the parts that the parent's TemplateError gets."""

    def __init__(self, **parts: str) -> None:
        self.parts = parts


def _bound_itself() -> None:
    import resource

    for what, most in (
        (resource.RLIMIT_CPU, MOST_SECONDS),
        (resource.RLIMIT_AS, MOST_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # a system that knows one of them only
            resource.setrlimit(what, (most, most))


def _compiled(template: str, date: str | None) -> Any:
    """The template in the surroundings that transformers gives it (extensions, filter and names)."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.nodes import Node
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Missing(jinja2.Undefined):
        """A name without a value. It renders as nothing, except for `eos_token`: a model would never learn to end an answer."""

        def __str__(self) -> str:
            if self._undefined_name == "eos_token":
                raise _no_such_token("eos_token")
            return super().__str__()

    class Generation(Extension):
        """Support for `{% generation %}`, which marks an answer for a loss mask. The mask is not needed, the body is rendered."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own way to name a tag

        def parse(self, parser: Parser) -> list[Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise NotAllowed(message)

    def strftime_now(form: str) -> str:
        if day is None:
            raise _Refused(
                got="a template that prints today's date",
                expected="a text that does not change from day to day",
                next_step="Freeze it with " + setting("template_date", "2024-07-26") + " (a day of your choice)",
            )
        return day.strftime(form)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    day = _parse_date(date)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols], undefined=Missing
    )
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    environment.filters["tojson"] = tojson
    try:
        return environment.from_string(template)
    except jinja2.TemplateError as error:
        raise _Refused(got=str(error)[:_SHOWN], expected="a Jinja template", next_step="Fix the template") from None


def _no_such_token(name: str) -> _Refused:
    """The error for a template that needs a special token without a value."""
    return _Refused(
        got=f"a template that writes {name}, which no file of the model names",
        expected=f"{name} in tokenizer_config.json or special_tokens_map.json, or {name}_id in generation_config.json",
        next_step=f'Add it to tokenizer_config.json, for instance "{name}": "</s>"',
    )


def _rendered(
    compiled: Any, names: Mapping[str, Any], messages: list[dict[str, Any]], generate: bool
) -> dict[str, str]:
    given = {"tools": None, "documents": None, **names}
    try:
        text = compiled.render(messages=messages, add_generation_prompt=generate, **given)
    except NotAllowed as error:
        return {"refused": str(error)[:_SHOWN]}
    except _Refused:
        raise
    except Exception as error:  # a template may raise anything
        missing = _MISSING_TOKEN.match(str(error))
        if missing is not None:
            raise _no_such_token(missing[1]) from None
        roles = " ".join(message["role"] for message in messages)
        raise _Refused(
            got=f"{type(error).__name__}: {str(error)[:_SHOWN]} for the roles {roles}",
            expected="a text",
            next_step="Fix the template, or take it from the model's own folder",
        ) from None

    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused(got="half of a surrogate pair", expected="Unicode text", next_step="Fix the template") from None
    if len(text) > LARGEST_TEMPLATE:
        raise _Refused(
            got=f"{len(text)} characters for a short conversation",
            expected=f"at most {LARGEST_TEMPLATE}",
            next_step="Take the template from the model's own folder",
        )
    return {"text": text}


def _serve() -> None:
    _bound_itself()
    compiled, names = None, {}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer: dict[str, str] = {}
        try:
            if "template" in request:
                names = request["names"]
                compiled = _compiled(request["template"], request["date"])
            else:
                answer = _rendered(compiled, names, request["messages"], request["generate"])
        except _Refused as error:
            answer = error.parts
        except Exception as error:  # Jinja's compiler folds constants and recurses, which may raise anything
            got = f"{type(error).__name__}: {str(error)[:_SHOWN]}"
            answer = {"got": got, "expected": "a Jinja template", "next_step": "Fix the template"}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
