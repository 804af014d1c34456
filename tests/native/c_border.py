# SPDX-License-Identifier: Apache-2.0
"""Checks of the program c_border."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

import pytest

from bespoke.bundle.signature import generate_key, sign_bundle
from bespoke.bundle.stored_zip import write_zip
from tests.native.conftest import SOURCE

CODE = "".join(path.read_text() for path in sorted((SOURCE / "tests").glob("c_border*.c")))
CHECKS = re.findall(r"^ +CHECK\((\w+)\),$", CODE, re.MULTILINE)


@pytest.fixture(scope="module")
def signed(tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A bundle with a signature, what it can be known by, and the same bundle as one zip."""
    bundle = shutil.copytree(tiny_core_bundle, tmp_path_factory.mktemp("signed") / "bundle")
    private, public = generate_key()
    sign_bundle(bundle, private)
    archive = bundle.with_name("bundle.zip")
    write_zip(archive, [(str(path.relative_to(bundle)), path) for path in sorted(bundle.rglob("*")) if path.is_file()])
    pin = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    return bundle, {"ZIP": str(archive), "PIN": pin, "KEY": public.hex()}
