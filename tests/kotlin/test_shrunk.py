# SPDX-License-Identifier: Apache-2.0
"""The binding and the sample as R8 shrinks and renames them: their tests pass on what is left, and rules are needed for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING, SAMPLE, dependency
from tests.kotlin.packed import R8, classpath, rules_of, run

pytestmark = pytest.mark.kotlin
RULES = BINDING / "core" / "consumer-rules.pro"
CONSOLE = "org.junit.platform:junit-platform-console-standalone:1.11.4"
IN_THE_CONSOLE = (
    "junit-jupiter",
    "junit-platform",
    "junit-vintage",
    "opentest4j",
    "apiguardian",
)  # jars of JUnit that it holds
# As in the poms: what the heap grows by is not taken for the training's.
RESIDENT = ("-XX:+AlwaysPreTouch", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# The app of a test is the test: what JUnit and Robolectric find by name.
TESTS = """
-keep class dev.bespoke.PersonalModelTest { *; }
-keep class dev.bespoke.notes.NotesActionsTest { *; }
-keep class dev.bespoke.notes.NotesTestApp { <init>(); }
-keep @org.robolectric.annotation.Implements class * { *; }
-keepattributes RuntimeVisibleAnnotations,AnnotationDefault,Signature,InnerClasses,EnclosingMethod
-dontwarn **
"""
# What those two are made of; R8 does not take names with punctuation in them, which other tests may have.
OF_THE_CORE = ("PersonalModelTest", "Fixture")
OF_THE_SAMPLE = ("NotesActionsTest", "NotesTestApp", "Driver")
OF_THE_LIBRARY = ("TestApp", "OneJobScheduler", "HotPowerManager", "User")


Tested = subprocess.CompletedProcess[str]


class Shrinker:
    """A module, some of its tests and all that ships with it as one program. What tests need beside that stays as it is."""

    def __init__(self, work: Path, module: Path, tests: Sequence[Path]) -> None:
        self.work = work
        self.r8, self.console = dependency(R8, work), dependency(CONSOLE, work)
        ships = classpath(module)
        self.program = [
            jar_of(part, work / f"{number}.jar") if part.is_dir() else part for number, part in enumerate(ships)
        ]
        self.program += tests
        beside = [part for part in classpath(module, "test-classpath") if part not in ships and part.suffix == ".jar"]
        self.libraries = [self.console, *(part for part in beside if not part.name.startswith(IN_THE_CONSOLE))]

    def shrunk(self, rules: Iterable[str], program: Sequence[Path] | None = None) -> Path:
        """The program after R8 with these rules; `program`: a part of it, and the rest stays as it is."""
        program = self.program if program is None else program
        rest = [part for part in self.program if part not in program]
        return shrink(program, [*self.libraries, *rest], [*rules, TESTS], self.work, self.r8)

    def tested(
        self, jar: Path, prepared: Path, *more: object, flags: Sequence[str] = (), beside: Sequence[Path] = ()
    ) -> Tested:
        path = ":".join(map(str, [jar, *beside, *self.libraries]))
        command = [
            "java",
            *RESIDENT,
            *flags,
            f"-Djava.library.path={prepared / 'native'}",
            f"-Dbespoke.fixture={prepared}",
            "-cp",
            path,
            "org.junit.platform.console.ConsoleLauncher",
            "execute",
            "--disable-banner",
            "--details=tree",
            "--config=junit.jupiter.execution.timeout.default=20s",
            "--config=junit.jupiter.execution.timeout.thread.mode.default=SEPARATE_THREAD",
            *more,
        ]
        few = {
            name: value for name, value in os.environ.items() if name != "BESPOKE_FULL"
        }  # counts: R8 changes none of them
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600, cwd=SAMPLE, env=few)


def shrink(program: Sequence[Path], libraries: Iterable[Path], rules: Iterable[str], work: Path, r8: Path) -> Path:
    """What R8 in full mode leaves of jars, with the JDK and other jars as libraries."""
    out, given = work / "shrunk.jar", work / "rules.pro"
    given.write_text("\n".join(rules), encoding="utf-8")
    home = Path(shutil.which("javac") or "javac").resolve().parents[1]
    run(
        "java",
        "-Xmx2g",
        *RESIDENT[1:],
        "-cp",
        r8,
        "com.android.tools.r8.R8",
        "--classfile",
        "--release",
        "--lib",
        home,
        *(word for jar in libraries for word in ("--lib", jar)),
        "--pg-conf",
        given,
        "--output",
        out,
        *program,
    )
    return out


def jar_of(classes: Path, jar: Path, only: Sequence[str] = ()) -> Path:
    """A jar of a folder of classes; `only`: of these and what is within them."""
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*")):
            if path.is_file() and (not only or re.split(r"[.$]", path.name)[0].removesuffix("Kt") in only):
                archive.write(path, path.relative_to(classes))
    return jar


def passed(done: Tested) -> int:
    (found,) = re.findall(r"\[\s*(\d+) tests successful", done.stdout)
    return int(found)


@pytest.fixture(scope="module")
def core(compiled: int, tmp_path_factory: pytest.TempPathFactory) -> Shrinker:
    work = tmp_path_factory.mktemp("core")
    return Shrinker(
        work, BINDING / "core", [jar_of(BINDING / "core" / "target" / "test-classes", work / "tests.jar", OF_THE_CORE)]
    )


CORE = ("-Xms256m", "-Xmx256m"), ("--select-class", "dev.bespoke.PersonalModelTest")


def test_the_tests_pass_on_what_r8_leaves(core: Shrinker, prepared: Path) -> None:
    jar = core.shrunk([RULES.read_text(encoding="utf-8")])
    assert jar.stat().st_size < sum(part.stat().st_size for part in core.program) / 2
    done = core.tested(jar, prepared, *CORE[1], flags=CORE[0])
    assert done.returncode == 0, done.stdout[-6000:]
    assert passed(done) >= 10


def rules() -> list[str]:
    return [line for line in RULES.read_text(encoding="utf-8").splitlines() if line.startswith("-keep")]


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [None, *rules()])
def test_each_of_the_rules_is_needed(core: Shrinker, prepared: Path, left_out: str | None) -> None:
    """R8 takes the module and its tests alone: which rules they need does not depend on the libraries they use."""
    ours, tests = core.program[0], core.program[-1]
    jar = core.shrunk([rule for rule in rules() if rule != left_out], [ours, tests])
    rest = core.program[1:-1]
    one = "dev.bespoke.PersonalModelTest#an error has its four parts and its class"
    done = core.tested(jar, prepared, "--select-method", one, flags=CORE[0], beside=rest)
    assert (done.returncode == 0) == (left_out is None), done.stdout[-6000:]


FOUND_BY_NAME = {
    "android": {"PersonalizationWorker", "TrainingService"},
    "delivery": {"DownloadWorker"},
    "federation": {"FederationWorker"},
}


@pytest.mark.parametrize("module", FOUND_BY_NAME)
def test_what_the_system_finds_by_name_keeps_it_by_the_rules_of_its_module(
    compiled: int, tmp_path: Path, module: str
) -> None:
    ours, *others = classpath(BINDING / module)
    jar, r8 = jar_of(ours, tmp_path / "ours.jar"), dependency(R8, tmp_path)
    libraries = [jar_of(part, tmp_path / f"{i}.jar") if part.is_dir() else part for i, part in enumerate(others)]

    def names(rules: str) -> set[str]:
        with zipfile.ZipFile(shrink([jar], libraries, [rules, "-dontwarn **"], tmp_path, r8)) as left:
            return {Path(name).stem for name in left.namelist()}

    assert names((BINDING / module / "consumer-rules.pro").read_text(encoding="utf-8")) >= FOUND_BY_NAME[module]
    assert not names("") & FOUND_BY_NAME[module]


@pytest.fixture(scope="module")
def sample(compiled: int, tmp_path_factory: pytest.TempPathFactory) -> Shrinker:
    work = tmp_path_factory.mktemp("sample")
    its, library = (module / "target" / "test-classes" for module in (SAMPLE, BINDING / "android"))
    tests = [jar_of(its, work / "tests.jar", OF_THE_SAMPLE), jar_of(library, work / "library.jar", OF_THE_LIBRARY)]
    return Shrinker(work, SAMPLE, tests)


def rules_of_the_sample() -> list[str]:
    """Rules of its libraries and rules that aapt2 wrote for its manifest and layouts: an app has no others."""
    written = SAMPLE / "target" / "android" / "manifest-rules.pro"
    return [path.read_text(encoding="utf-8") for path in [written, *rules_of("notes")]]


def actions(sample: Shrinker, jar: Path, prepared: Path, *more: object, seconds: int = 60) -> Tested:
    """NotesActionsTest under Robolectric, as the sample's pom runs it."""
    robolectric = BINDING / "androidx" / "target" / "robolectric"
    where = ("-Drobolectric.offline=true", f"-Drobolectric.dependency.dir={robolectric}")
    flags = ("-Xms1g", "-Xmx1g", f"-Dbespoke.await={seconds}", *where)
    beside = [
        SAMPLE / "src" / "test" / "resources",
        SAMPLE / "target" / "android" / "robolectric",
        robolectric / "monitor.jar",
    ]
    return sample.tested(jar, prepared, *more, flags=flags, beside=beside)


@pytest.mark.slow  # R8 over the whole app, and all that its user does, under Robolectric
def test_everything_in_the_sample_works_on_what_r8_leaves(sample: Shrinker, prepared: Path) -> None:
    jar = sample.shrunk(rules_of_the_sample())
    assert jar.stat().st_size < sum(part.stat().st_size for part in sample.program) / 2
    done = actions(sample, jar, prepared, "--select-class", "dev.bespoke.notes.NotesActionsTest")
    assert done.returncode == 0, done.stdout[-6000:]
    assert passed(done) >= 8


@pytest.mark.slow  # the same again; the binding alone shows of each rule that it is needed
def test_without_the_rules_of_the_core_it_does_not(sample: Shrinker, prepared: Path) -> None:
    core = RULES.read_text(encoding="utf-8")
    jar = sample.shrunk(rule for rule in rules_of_the_sample() if rule != core)
    one = "dev.bespoke.notes.NotesActionsTest#a problem is shown and learning stays off"
    done = actions(sample, jar, prepared, "--select-method", one, seconds=10)
    assert done.returncode != 0
    assert "ClassNotFoundException: dev.bespoke.NativeFailure" in done.stderr
