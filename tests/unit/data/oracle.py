# SPDX-License-Identifier: Apache-2.0
"""Chat templates rendered by Jinja itself."""

from __future__ import annotations

from collections.abc import Callable

from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.unit.data.conftest import Messages

TOKENS = {"bos_token": "<bos>", "eos_token": "</s>"}
Oracle = Callable[[Messages, bool], str]


def oracle_for(template: str) -> Oracle:
    """Jinja as transformers sets it up."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def raise_exception(message: str) -> None:
        raise RuntimeError(message)

    environment.globals.update(raise_exception=raise_exception, strftime_now=lambda form: "26 Jul 2024")
    compiled = environment.from_string(template)

    def render(messages: Messages, generate: bool) -> str:
        return compiled.render(messages=messages, add_generation_prompt=generate, **TOKENS)

    return render
