# SPDX-License-Identifier: Apache-2.0
"""Chat templates rendered by Jinja itself."""

from __future__ import annotations

from collections.abc import Callable

from jinja2.sandbox import ImmutableSandboxedEnvironment

Messages = list[dict[str, str]]

QWEN = """{% if messages[0]['role'] == 'system' %}{{ '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{% else %}{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
{% endif %}
{% for m in messages %}{% if m.role != 'system' or not loop.first %}
{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}
{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def oracle_for(template: str, tokens: dict[str, str]) -> Callable[[Messages, bool], str]:
    """Jinja as transformers sets it up."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def raise_exception(message: str) -> None:
        raise RuntimeError(message)

    environment.globals.update(raise_exception=raise_exception, strftime_now=lambda form: "26 Jul 2024")
    compiled = environment.from_string(template)
    return lambda messages, generate: compiled.render(messages=messages, add_generation_prompt=generate, **tokens)
