# SPDX-License-Identifier: Apache-2.0
"""link.py MODULE MANIFEST ANDROID_ALL.jar [LIBRARY_MANIFEST | EXPLODED ...]: an app's resources as Gradle and aapt2 make them.

In MODULE/target/android: AndroidManifest.xml (merged), resources.apk, gen (R classes as Java), r-classes (compiled),
manifest-rules.pro (R8 keeps what the manifest names), and the file that tells Robolectric where they are. The libraries are those
that explode.py has opened for the binding and in the folders that are named, and the manifests that are named.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from framework import main as write_framework
from manifests import merged, package_of
from unchanged import digest, is_unchanged

BINDING = Path(__file__).resolve().parents[1]
MIN_SDK, TARGET_SDK = "26", "36"


def main(module: Path, manifest: Path, android: Path, libraries: list[Path]) -> None:
    out = module / "target" / "android"
    opened = [BINDING / "androidx" / "target" / "exploded", *filter(Path.is_dir, libraries)]
    exploded = [library for folder in opened for library in sorted(filter(Path.is_dir, folder.iterdir()))]
    own = [
        *sorted(Path(__file__).parent.glob("*.py")),
        manifest,
        *filter(Path.is_file, libraries),
        module / "src" / "main" / "res",
    ]
    of_libraries = [folder / part for folder in exploded for part in ("AndroidManifest.xml", "R.txt", "res")]
    inputs = f"{android} {digest([*filter(Path.exists, [*own, *of_libraries])])}"
    if is_unchanged(out / "inputs.sha256", inputs):
        return
    shutil.rmtree(out, ignore_errors=True)
    for name in ("compiled", "gen", "r-classes", "assets", "robolectric/com/android/tools"):
        (out / name).mkdir(parents=True)
    framework = BINDING / "androidx" / "target" / "framework.apk"
    if not framework.exists():
        write_framework(str(android), str(framework))
    named = list(filter(Path.is_file, libraries))
    whole = merged(manifest, [*named, *(folder / "AndroidManifest.xml" for folder in exploded)])
    whole.write(out / "AndroidManifest.xml", encoding="utf-8", xml_declaration=True)
    # An R class for each library that has resources: each of them lists all of the app's.
    packages = [*named, *(folder / "AndroidManifest.xml" for folder in exploded if (folder / "R.txt").stat().st_size)]
    resources = [folder / "res" for folder in exploded] + [module / "src" / "main" / "res"]
    for number, folder in enumerate(filter(Path.is_dir, resources)):
        _run("aapt2", "compile", "--dir", folder, "-o", out / "compiled" / f"{number:03}.zip")
    versions = [
        "--min-sdk-version",
        MIN_SDK,
        "--target-sdk-version",
        TARGET_SDK,
        "--version-code",
        "1",
        "--version-name",
        "0.1.0",
    ]
    _run(
        "aapt2",
        "link",
        "-I",
        framework,
        "--manifest",
        out / "AndroidManifest.xml",
        "-o",
        out / "resources.apk",
        "--java",
        out / "gen",
        "--extra-packages",
        ":".join(map(package_of, packages)),
        "--auto-add-overlay",
        *versions,
        "--proguard",
        out / "manifest-rules.pro",
        # Each as an overlay of those before it: libraries name the same styleable, and the app's values win.
        *(part for compiled in sorted((out / "compiled").iterdir()) for part in ("-R", compiled)),
    )
    _run("javac", "-nowarn", "--release", "17", "-d", out / "r-classes", *sorted((out / "gen").rglob("*.java")))
    (out / "robolectric" / "com" / "android" / "tools" / "test_config.properties").write_text(
        f"android_merged_manifest={out / 'AndroidManifest.xml'}\n"
        f"android_resource_apk={out / 'resources.apk'}\n"
        f"android_merged_assets={out / 'assets'}\n"
        f"android_custom_package={package_of(manifest)}\n",
        encoding="utf-8",
    )
    (out / "inputs.sha256").write_text(inputs, encoding="utf-8")


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), libraries=list(map(Path, sys.argv[4:])))
