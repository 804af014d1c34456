# SPDX-License-Identifier: Apache-2.0
"""Apps and AARs made by bindings/kotlin/tools, for the tests to look at: three smallest ones, and the sample."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.kotlin.maven import BINDING, SAMPLE, dependency

TOOLS = BINDING / "tools"
SMALLEST = REPOSITORY / "tests" / "kotlin" / "smallest_app"
ANDROID = "org.robolectric:android-all:15-robolectric-13954326"
R8 = "com.android.tools:r8:8.7.18"
# Which modules an app uses.
MODULES = {
    "learning": ("core", "android"),
    "downloading": ("core", "delivery"),
    "together": ("core", "android", "federation"),
    "notes": ("core", "android"),
}


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def tool(name: str, *arguments: object) -> str:
    return run(sys.executable, TOOLS / name, *arguments)


def classpath(module: Path, kind: str = "classpath") -> list[Path]:
    """What a compiled module ships with; `test-classpath`: what it is tested with. Its own classes are the first."""
    return [
        module / "target" / "classes",
        *map(Path, (module / "target" / kind).read_text(encoding="utf-8").split(os.pathsep)),
    ]


def rules_of(app: str) -> Iterator[Path]:
    """Those that its libraries bring along, as Gradle finds them: our modules', and in each AAR."""
    yield from (BINDING / part / "consumer-rules.pro" for part in MODULES[app])
    for module in (BINDING / "androidx", SAMPLE / "material")[: 2 if app == "notes" else 1]:
        yield from sorted((module / "target" / "exploded").glob("*/proguard.txt"))


class Workshop:
    """What apps are packed with, once everything is compiled."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self._linked: dict[str, list[Path]] = {}
        self.android, self.r8 = dependency(ANDROID, work), dependency(R8, work)

    def module(self, name: str) -> Path:
        """Where the app's merged manifest and its resources lie, in target/android."""
        return SAMPLE if name == "notes" else self.work / name

    def app(self, name: str, libraries: Mapping[str, Path], assets: Path, rules: Iterable[Path] | None = None) -> Path:
        """An APK of the app; `rules` in the place of those that its libraries bring along."""
        path = self.linked(name)
        apk = self.work / f"{name}.apk"
        rules = rules_of(name) if rules is None else rules
        tool(
            "apk.py",
            apk,
            "--module",
            self.module(name),
            "--classpath",
            ":".join(map(str, path)),
            "--android",
            self.android,
            "--r8",
            self.r8,
            "--assets",
            assets,
            *(word for rule in rules for word in ("--rules", rule)),
            *(word for abi, folder in libraries.items() for word in ("--lib", f"{abi}={folder}")),
        )
        return apk

    def manifest(self, name: str) -> Path:
        """The app's manifest, merged with those of its libraries."""
        self.linked(name)
        return self.module(name) / "target" / "android" / "AndroidManifest.xml"

    def linked(self, name: str) -> list[Path]:
        """The class path of the app, once it is compiled and its resources are linked. Maven has done it for the sample."""
        if name not in self._linked:
            self._linked[name] = classpath(SAMPLE) if name == "notes" else self._smallest(name)
        return self._linked[name]

    def _smallest(self, name: str) -> list[Path]:
        module, used = self.module(name), MODULES[name]
        classes = module / "classes"
        classes.mkdir(parents=True)
        path = classpath(BINDING / used[-1])
        listed = os.pathsep.join(map(str, [self.android, *path]))
        run("javac", "-nowarn", "--release", "17", "-classpath", listed, "-d", classes, SMALLEST / name / "App.java")
        manifests = [BINDING / part / "src" / "main" / "AndroidManifest.xml" for part in used]
        tool("link.py", module, SMALLEST / "AndroidManifest.xml", self.android, *manifests)
        return [module / "target" / "android" / "r-classes", classes, *path]
