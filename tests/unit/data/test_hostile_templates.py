# SPDX-License-Identifier: Apache-2.0
"""Chat templates that would take all time or memory: each ends in an error that says so, within the bounds of one process. Each is
compiled in a process of its own here, so that what it took, with its children, can be read off."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bespoke.data.rendering import LARGEST_TEMPLATE, MOST_BYTES, MOST_SECONDS
from tests.unit.data import templates

COMPILE = """
import json, resource, sys
from bespoke.data.template import compile_turns
from bespoke.errors import TemplateError
try:
    compile_turns(json.loads(sys.stdin.read()), {"bos_token": "<s>", "eos_token": "</s>"}, "2024-07-26")
    said = None
except TemplateError as error:
    said = [error.subject, error.got, error.expected, error.next_step]
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
seconds = sum(one.ru_utime + one.ru_stime for one in used)
# ru_maxrss of a process counts from its fork on, when it still was its parent: pytest, with all that it has imported.
own = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(json.dumps({"said": said, "seconds": seconds, "bytes": [1024 * own, 1024 * used[1].ru_maxrss]}))
"""
HONEST = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
OWN_BYTES = 200 << 20  # memory of the asking process: Python and its imports
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
FOR_EACH = "{% for m in messages %}{{ (messages | length + 9) ** (10 ** 9) % 7 }}{{ m.content }}{% endfor %}"
DOUBLED = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"
HOSTILE = {
    "a number of a hundred million digits": "{{ 10 ** (10 ** 8) }}",
    "a power of a power": "{{ (9 ** 9 ** 9) }}",
    "a power that no compiler folds": FOR_EACH,
    "a loop over a loop over a loop": LOOPS,
    "a range beyond the sandbox's": "{% for a in range(10 ** 9) %}{% endfor %}",
    "a word a thousand million times": "{{ 'word' * 10 ** 9 }}",
    "a word doubled again and again": DOUBLED,
    "a list that grows": "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "a long text": HONEST + "{{ 'x' * 10 ** 7 }}",
    "a macro that calls itself": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "brackets within brackets": "{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}",
    "a width of a thousand million": "{{ '%1000000000d' % 1 }}",
    "half of a character": HONEST + "{{ '\\ud800' }}",
    "slow for long conversations only": "{% if messages | length > 3 %}" + LOOPS + "{% endif %}" + HONEST,
    "a file of many megabytes": HONEST + "{# " + "x" * LARGEST_TEMPLATE + " #}",
}


def compiled(template: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], input=json.dumps(template), capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_ends_in_an_error_within_bounds(name: str) -> None:
    found = compiled(HOSTILE[name])
    assert isinstance(found["said"], list), found
    assert found["said"][0] == "The chat template"
    assert all(part and len(part) < 1000 for part in found["said"]), found
    assert isinstance(found["seconds"], float)
    assert isinstance(found["bytes"], list)
    own, child = found["bytes"]
    assert found["seconds"] < MOST_SECONDS + 3
    assert own < OWN_BYTES
    assert child < MOST_BYTES


@pytest.mark.parametrize("template", [HONEST, templates.QWEN3, templates.LLAMA32], ids=["honest", "qwen3", "llama32"])
def test_an_honest_template_takes_a_small_part_of_what_it_may(template: str) -> None:
    found = compiled(template)
    assert found["said"] is None
    assert isinstance(found["seconds"], float)
    assert found["seconds"] < MOST_SECONDS / 2
