# SPDX-License-Identifier: Apache-2.0
"""Apps and AARs made by bindings/kotlin/tools, for the tests to look at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.kotlin.maven import BINDING, LIBRARIES, dependency, mvn

TOOLS = BINDING / "tools"
APPS = REPOSITORY / "tests" / "kotlin" / "smallest_app"
ANDROID = "org.robolectric:android-all:15-robolectric-13954326"
R8 = "com.android.tools:r8:8.7.18"
MODULES = {"learning": ("core", "android"), "downloading": ("core", "delivery")}  # which an app uses


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def tool(name: str, *arguments: object) -> str:
    return run(sys.executable, TOOLS / name, *arguments)


class Workshop:
    """The modules, compiled; and what apps are packed with."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.android, self.r8 = dependency(ANDROID, work), dependency(R8, work)
        mvn("compile", "dependency:build-classpath", *LIBRARIES, "-Dmdep.outputFile=target/classpath", "-DincludeScope=runtime")

    def classpath(self, module: str) -> list[Path]:
        listed = (BINDING / module / "target" / "classpath").read_text(encoding="utf-8")
        return [BINDING / module / "target" / "classes", *map(Path, listed.split(os.pathsep))]

    def app(self, name: str, libraries: Mapping[str, Path], assets: Path, rules: Sequence[Path] | None = None) -> Path:
        """An APK of the app; its merged manifest lies in work/NAME/target/android."""
        module, used = self.work / name, MODULES[name]
        shutil.rmtree(module, ignore_errors=True)
        classes = module / "classes"
        classes.mkdir(parents=True)
        path = self.classpath(used[-1])
        listed = os.pathsep.join(map(str, [self.android, *path]))
        run("javac", "-nowarn", "--release", "17", "-classpath", listed, "-d", classes, APPS / name / "App.java")
        manifests = [BINDING / part / "src" / "main" / "AndroidManifest.xml" for part in used]
        tool("link.py", module, APPS / "AndroidManifest.xml", self.android, *manifests)
        if rules is None:
            rules = [BINDING / part / "consumer-rules.pro" for part in used]
        apk = module / "app.apk"
        tool(
            "apk.py", apk, "--module", module, "--classpath", ":".join(map(str, [classes, *path])), "--android", self.android,
            "--r8", self.r8, "--assets", assets, *(word for rule in rules for word in ("--rules", rule)),
            *(word for abi, folder in libraries.items() for word in ("--lib", f"{abi}={folder}")),
        )  # fmt: skip
        return apk
