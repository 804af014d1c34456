# SPDX-License-Identifier: Apache-2.0
"""What Kotlin alone is tested with: libbespoke_jni on the installed core, a program in C, the docs' Kotlin, a federation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.native.federation_devices import PRIVATE, with_federation
from tests.support.federation_edge import PYTHON
from tests.support.phone_fixture import NOTES, core_folder

REPOSITORY = Path(__file__).resolve().parents[2]
# Pages whose Kotlin needs another module than core, and what it imports. Other pages are compiled in core.
MODULES_OF_PAGES = {"use_android": "android", "add_to_a_chat_app": "android", "learn_together": "federation"}
IMPORTS = {
    "core": (),
    "android": ("android.content.Context", "dev.bespoke.android.*"),
    "federation": ("android.content.Context", "dev.bespoke.android.*", "dev.bespoke.federation.*"),
}


def build_native(out: Path) -> None:
    core = core_folder()
    sources = REPOSITORY / "bindings" / "kotlin" / "core"
    work = out / "native"
    java = Path(shutil.which("javac") or "javac").resolve().parents[1]
    environment = {**os.environ, "JAVA_HOME": str(java)}
    configure = ["cmake", "-S", sources, "-B", work, "-DCMAKE_BUILD_TYPE=Release", f"-DBESPOKE_CORE={core}"]
    subprocess.run(configure, check=True, env=environment, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", work], check=True, env=environment, stdout=subprocess.DEVNULL)


def write_pages(binding: Path) -> int:
    """The Kotlin of the docs as files that the tests of its module compile; how many blocks there were."""
    blocks = 0
    for module in IMPORTS:
        shutil.rmtree(binding / module / "target" / "pages", ignore_errors=True)
        (binding / module / "target" / "pages").mkdir(parents=True)
    for page in sorted((REPOSITORY / "docs").rglob("*.md")):
        found = re.findall(r"^```kotlin\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if found:
            module = MODULES_OF_PAGES.get(page.stem, "core")
            imports = ["dev.bespoke.*", "kotlinx.coroutines.*", "kotlinx.coroutines.flow.*", *IMPORTS[module]]
            head = "".join(f"import {name}\n" for name in imports)
            text = f"package pages.{page.stem}\n\n{head}\n" + "\n".join(found)
            (binding / module / "target" / "pages" / f"{page.stem}.kt").write_text(text, encoding="utf-8")
        blocks += len(found)
    return blocks


def prepare_federation(exact: Path, out: Path) -> None:
    """Writes together.bundle, whose devices send noised numbers, the key of its server, and how the server is started."""
    with_federation(exact, out / "together.bundle", clip=1.0, noise=1.0, budget=1000.0)
    (out / "leader.pem").write_bytes(PRIVATE)
    (out / "server.txt").write_text(str(PYTHON))
    shutil.copy(REPOSITORY / "bindings" / "schema" / "signed_request_vectors.json", out)


def compile_client(source: Path, out: Path) -> Path:
    """A program in C on the installed core."""
    core, program = core_folder(), out / source.stem
    include, lib = [f"-I{core / 'include'}", f"-I{REPOSITORY / 'tests' / 'support'}"], core / "lib"
    link = [f"-L{lib}", "-lbespoke_core", f"-Wl,-rpath,{lib}"]
    subprocess.run(["cc", "-O2", source, *include, *link, "-o", program], check=True)
    return program


def what_c_takes(bundle: Path, out: Path) -> None:
    """Writes added.json: the bytes that training takes at most, over what the process held before, in a program in C."""
    program, states = compile_client(Path(__file__).with_name("added_memory.c"), out), out / "c"
    shutil.rmtree(states, ignore_errors=True)
    states.mkdir()
    examples = [json.dumps({"text": note}) for note in NOTES]
    done = subprocess.run([program, bundle, states, *examples], check=True, capture_output=True, text=True)
    memory = json.loads(done.stdout)["memory"]
    (out / "added.json").write_text(json.dumps(memory["peak_bytes"] - memory["idle_bytes"]))
