# SPDX-License-Identifier: Apache-2.0
"""The public API of the Kotlin modules is documented, as Dokka sees it. Of what is written from the schemas, the classes are: what
each field means stands on the pages of the reports, once for all languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING, COMPILED, mvn

pytestmark = [pytest.mark.kotlin, pytest.mark.usefixtures("compiled")]
WRITTEN = ("Records.kt", "Example.kt")


def test_what_is_public_is_documented() -> None:
    said = mvn(
        "test-compile",
        *COMPILED,
        "org.jetbrains.dokka:dokka-maven-plugin:dokka",
        "-pl",
        "core,androidx,android,federation",
        quiet=False,
    )
    undocumented = re.findall(r"Undocumented: dev\.bespoke(?:\.android|\.federation)?/(\S+)", said)
    generated = {name for file in WRITTEN for name in classes_of(BINDING / "core/src/main/kotlin/dev/bespoke" / file)}
    assert [
        one for one in undocumented if member_of(one) not in generated and not one.endswith("/last/#/")
    ] == []  # overrides
    assert all(
        (BINDING / module / "target" / "dokka" / "index.html").exists() for module in ("core", "android", "federation")
    )


def classes_of(file: Path) -> list[str]:
    return re.findall(
        r"^ *(?:sealed interface|(?:data|enum) class) (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE
    )


def member_of(path: str) -> str:
    """The class of a field or of an entry: "Run/step/#/" and "Split.TRAIN/" are members, "Run/" is not."""
    parts = [part for part in re.split(r"[/.]", path) if part and not part.startswith("#")]
    return parts[-2] if len(parts) > 1 else ""
