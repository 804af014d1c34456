# SPDX-License-Identifier: Apache-2.0
"""The Gradle build that apps take says what the Maven build says that the tests run: Gradle itself does not run here."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bespoke.version import __version__
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.kotlin
BINDING = REPOSITORY / "bindings" / "kotlin"
MODULES = ("core", "android", "delivery", "federation")
POM = "{http://maven.apache.org/POM/4.0.0}"
ANDROID = "{http://schemas.android.com/apk/res/android}"
CATALOG = tomllib.loads((BINDING / "gradle" / "libs.versions.toml").read_text(encoding="utf-8"))
VERSIONS = CATALOG["versions"]
# What Maven has in the place of a Gradle dependency: the jars of multiplatform libraries, and the flat list of androidx.
OF_ANDROIDX = {"androidx.work:work-runtime", "org.jetbrains.kotlinx:kotlinx-coroutines-android"}


def pom(folder: str) -> ElementTree.Element:
    return ElementTree.parse(BINDING / folder / "pom.xml").getroot()


def script(path: str) -> str:
    return (BINDING / path).read_text(encoding="utf-8")


def properties() -> dict[str, str]:
    (found,) = pom(".").findall(f"{POM}properties")
    return {one.tag.removeprefix(POM): (one.text or "").strip() for one in found}


def maven_dependencies(folder: str) -> set[str]:
    """group:name of what ships; of the modules' own the name."""
    found = set()
    for one in pom(folder).findall(f"{POM}dependencies/{POM}dependency"):
        group, name, scope = (one.findtext(f"{POM}{tag}") or "" for tag in ("groupId", "artifactId", "scope"))
        if scope not in ("test", "provided") and name != "kotlin-stdlib":  # which the Kotlin plugin adds
            found.add(name if group == "dev.bespoke" else f"{group}:{name.removesuffix('-jvm')}")
    return found


def gradle_dependencies(module: str) -> set[str]:
    block = script(f"{module}/build.gradle.kts").split("\ndependencies {", 1)[1]
    libraries = {name.replace("-", "."): one["module"] for name, one in CATALOG["libraries"].items()}
    own = set(re.findall(r'project\(":([a-z-]+)"\)', block))
    return own | {libraries[name] for name in re.findall(r"\(libs\.([a-z.]+)\)", block)}


def test_versions_agree() -> None:
    maven = properties()
    assert VERSIONS["kotlin"] == maven["kotlin.version"]
    assert VERSIONS["coroutines"] == maven["coroutines.version"]
    assert VERSIONS["serialization"] == maven["serialization.version"]
    assert VERSIONS["okhttp"] == maven["okhttp.version"]
    assert VERSIONS["jvm"] == maven["kotlin.compiler.jvmTarget"] == maven["maven.compiler.release"]
    work = next(
        one for one in pom("androidx").iter(f"{POM}artifactItem") if one.findtext(f"{POM}artifactId") == "work-runtime"
    )
    assert VERSIONS["work"] == work.findtext(f"{POM}version")
    assert VERSIONS["bespoke"] == pom(".").findtext(f"{POM}version") == __version__


def test_every_version_in_the_catalog_is_one_that_somebody_asks_for() -> None:
    asked = {one["version"]["ref"] for kind in ("libraries", "plugins") for one in CATALOG[kind].values()}
    scripts = "".join(path.read_text(encoding="utf-8") for path in BINDING.rglob("*.gradle.kts"))
    asked |= {name.replace(".", "-") for name in re.findall(r"libs\.versions\.([a-z.]+)\.get\(\)", scripts)}
    assert asked == set(VERSIONS)


@pytest.mark.parametrize("module", MODULES)
def test_ids_and_dependencies_agree(module: str) -> None:
    artifact = pom(module).findtext(f"{POM}artifactId")
    assert f'project(":{artifact}").projectDir = file("{module}")' in script("settings.gradle.kts")
    assert f'":{artifact}"' in script("settings.gradle.kts").split("include(", 1)[1].split(")", 1)[0]
    assert f'group = "{pom(".").findtext(f"{POM}groupId")}"' in script("build.gradle.kts")
    maven = maven_dependencies(module)
    if "bespoke-androidx" in maven:
        maven = maven - {"bespoke-androidx"} | OF_ANDROIDX
    assert gradle_dependencies(module) == maven


@pytest.mark.parametrize("module", MODULES)
def test_systems_and_packages_agree(module: str) -> None:
    text, manifest = script(f"{module}/build.gradle.kts"), BINDING / module / "src" / "main" / "AndroidManifest.xml"
    root = ElementTree.parse(manifest).getroot()
    assert f'namespace = "{root.get("package")}"' in text
    (sdk,) = root.findall("uses-sdk")
    assert sdk.get(ANDROID + "minSdkVersion") == VERSIONS["min-sdk"]
    assert sdk.get(ANDROID + "targetSdkVersion") == VERSIONS["target-sdk"]
    for name in (
        "compileSdk = libs.versions.compile",
        "minSdk = libs.versions.min",
        "targetSdk = libs.versions.target",
    ):
        assert f"{name}.sdk.get().toInt()" in text
    assert (VERSIONS["min-sdk"], VERSIONS["compile-sdk"], VERSIONS["target-sdk"]) == ("26", "36", "36")


def test_the_tools_pack_for_the_same_systems() -> None:
    assert f'MIN_SDK, TARGET_SDK = "{VERSIONS["min-sdk"]}", "{VERSIONS["target-sdk"]}"' in script("tools/link.py")
    assert f'MIN_SDK = "{VERSIONS["min-sdk"]}"' in script("tools/apk.py")


@pytest.mark.parametrize("module", MODULES)
def test_sources_rules_and_warnings_agree(module: str) -> None:
    text = script(f"{module}/build.gradle.kts")
    sources = pom(".").findtext(f"{POM}build/{POM}sourceDirectory")
    assert f'.kotlin.srcDir("{sources}")' in text
    assert (BINDING / module / str(sources)).is_dir()
    assert 'consumerProguardFiles("consumer-rules.pro")' in text
    assert (BINDING / module / "consumer-rules.pro").is_file()
    maven = (BINDING / module / "pom.xml").read_text(encoding="utf-8")
    assert "<arg>-Werror</arg>" in maven
    assert "allWarningsAsErrors = true" in text
    assert ("kotlinx-serialization</plugin>" in maven) == ("libs.plugins.kotlin.serialization" in text)


def test_internet_is_asked_for_by_delivery_and_federation_alone() -> None:
    asks = {
        module
        for module in MODULES
        if "android.permission.INTERNET" in script(f"{module}/src/main/AndroidManifest.xml")
    }
    assert asks == {"delivery", "federation"}


def test_every_module_of_maven_is_one_of_gradle_or_stands_for_what_gradle_has_by_itself() -> None:
    modules = {one.text for one in pom(".").findall(f"{POM}modules/{POM}module")}
    samples = {
        one for one in modules if one and one.startswith("../")
    }  # Maven alone builds the sample, with what it is tested by
    assert modules - samples - {"androidx"} == set(MODULES)
    assert {path.parent.name for path in Path(BINDING).glob("*/build.gradle.kts")} == set(MODULES)
