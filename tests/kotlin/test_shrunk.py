# SPDX-License-Identifier: Apache-2.0
"""The Kotlin binding in an app that R8 shrinks and renames: its tests pass on what is left, and each of our rules is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING, dependency, mvn

pytestmark = pytest.mark.kotlin
RULES = BINDING / "core" / "consumer-rules.pro"
R8 = "com.android.tools:r8:8.7.18"
CONSOLE = "org.junit.platform:junit-platform-console-standalone:1.11.4"
# As in core/pom.xml: what the heap grows by is not taken for the training's.
RESIDENT = ("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The app: the tests themselves, which JUnit finds by name.
APP = """
-keep class dev.bespoke.PersonalModelTest { *; }
-keepattributes RuntimeVisibleAnnotations,AnnotationDefault,Signature,InnerClasses,EnclosingMethod
-dontwarn **
"""


class Shrinker:
    """The binding, its tests and all that they use as one program."""

    def __init__(self, work: Path, prepared: Path) -> None:
        self.work, self.prepared = work, prepared
        self.r8, self.console = dependency(R8, work), dependency(CONSOLE, work)
        listed = work / "classpath"
        mvn("test-compile", "dependency:build-classpath", f"-Dmdep.outputFile={listed}", "-pl", "core")
        jars = [Path(jar) for jar in listed.read_text(encoding="utf-8").split(os.pathsep)]
        target = BINDING / "core" / "target"
        self.program = [*(jars_of(target / name, work) for name in ("classes", "test-classes"))]
        self.program += [jar for jar in jars if not jar.name.startswith(("junit-", "opentest4j-", "apiguardian-"))]
        self.libraries = [jar for jar in jars if jar.name.startswith(("junit-", "opentest4j-", "apiguardian-"))]

    def shrunk(self, rules: str) -> Path:
        """The program after R8 in full mode with these rules of ours."""
        out, given = self.work / "shrunk.jar", self.work / "rules.pro"
        given.write_text(rules + APP, encoding="utf-8")
        libraries = [part for jar in self.libraries for part in ("--lib", jar)]
        home = Path(shutil.which("javac") or "javac").resolve().parents[1]
        run(
            ["java", "-cp", self.r8, "com.android.tools.r8.R8", "--classfile", "--release", "--lib", home, *libraries,
             "--pg-conf", given, "--output", out, *self.program]
        )  # fmt: skip
        return out

    def tested(self, jar: Path) -> subprocess.CompletedProcess[str]:
        command = [
            "java", *RESIDENT, f"-Djava.library.path={self.prepared / 'native'}", f"-Dbespoke.fixture={self.prepared}",
            "-jar", self.console, "execute", "--class-path", jar, "--select-class", "dev.bespoke.PersonalModelTest",
            "--disable-banner",
            "--details=summary", "--config=junit.jupiter.execution.timeout.default=20s",
            "--config=junit.jupiter.execution.timeout.thread.mode.default=SEPARATE_THREAD",
        ]  # fmt: skip
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)


def jars_of(classes: Path, work: Path) -> Path:
    jar = work / f"{classes.name}.jar"
    run(["jar", "--create", "--file", jar, "-C", classes, "."])
    return jar


def run(command: Sequence[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


@pytest.fixture(scope="module")
def shrinker(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Shrinker:
    return Shrinker(tmp_path_factory.mktemp("shrunk"), prepared)


def test_the_tests_pass_on_what_r8_leaves(shrinker: Shrinker) -> None:
    jar = shrinker.shrunk(RULES.read_text(encoding="utf-8"))
    assert jar.stat().st_size < sum(part.stat().st_size for part in shrinker.program) / 2
    done = shrinker.tested(jar)
    assert done.returncode == 0, done.stdout[-6000:]
    (passed,) = re.findall(r"\[\s*(\d+) tests successful", done.stdout)
    assert int(passed) >= 10


def rules() -> list[str]:
    return [line for line in RULES.read_text(encoding="utf-8").splitlines() if line.startswith("-keep")]


@pytest.mark.parametrize("left_out", rules())
def test_without_one_of_the_rules_they_do_not(shrinker: Shrinker, left_out: str) -> None:
    jar = shrinker.shrunk("\n".join(rule for rule in rules() if rule != left_out))
    assert shrinker.tested(jar).returncode != 0
