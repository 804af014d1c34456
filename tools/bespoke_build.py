# SPDX-License-Identifier: Apache-2.0
"""Build backend of bespoke-sdk: scikit-build-core with the folders of ExecuTorch and MLX. It works without a compiler.

ExecuTorch's C++ headers and libraries come in its wheel, whose 57 dependencies a build does not need. So it is no build
requirement. An installed ExecuTorch of our version is used; otherwise the wheel alone is downloaded and cached. MLX's engine
is optional: it is built if MLX is installed in our version.

If the core cannot be compiled, the Python part is installed without it. The reason goes to bespoke/core/not_built.txt and
`bespoke doctor` shows it. With BESPOKE_REQUIRE_CORE=1 this is an error that names the packages to install.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scikit_build_core import build as scikit

EXECUTORCH = "1.5.1"  # as in pyproject.toml and constraints.txt; its C++ interface changes with every version
REQUIRE = "BESPOKE_REQUIRE_CORE"
SYSTEM_PACKAGES = "apt-get install g++"  # as in bespoke.core.finding
MLX = "0.31.1"  # as in pyproject.toml and constraints.txt
DEFINE = "cmake.define.executorch_DIR"
DEFINE_MLX = "cmake.define.BESPOKE_MLX"
NOTE = Path("build/not_built")

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    # pip downloads ExecuTorch; an isolated build has no pip of its own.
    return [*scikit.get_requires_for_build_wheel(config_settings), "pip"]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*scikit.get_requires_for_build_editable(config_settings), "pip"]


get_requires_for_build_sdist = scikit.get_requires_for_build_sdist
build_sdist = scikit.build_sdist
# No prepare_metadata_*: the metadata depend on whether the core compiles.


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    return _with_core(scikit.build_wheel, wheel_directory, config_settings)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return _with_core(scikit.build_editable, wheel_directory, config_settings)


def _with_core(build: Callable[..., str], wheel_directory: str, config_settings: Settings) -> str:
    asked = dict(config_settings or {})
    if str(asked.get("wheel.cmake", "true")).lower() == "false":
        return build(wheel_directory, asked)
    log: list[str] = []
    try:
        with _recorded(log):
            settings = dict(asked)
            settings.setdefault(DEFINE_MLX, _mlx())
            if DEFINE not in settings:
                settings[DEFINE] = str(_executorch_cmake())
            return build(wheel_directory, settings)
    except (Exception, SystemExit) as error:
        reason = _reason("".join(log), error)
        if os.environ.get(REQUIRE, "0") not in ("", "0"):
            raise SystemExit(
                f"The device core could not be compiled, and {REQUIRE} asks for it. {reason}\n"
                f"It takes a C++ compiler; on Debian: {SYSTEM_PACKAGES}"
            ) from error

    print(f"WARNING: the device core was not compiled, no user's model can be opened without it. {reason}", flush=True)
    NOTE.parent.mkdir(exist_ok=True)
    NOTE.write_text(reason + "\n", encoding="utf-8")
    without = {name: value for name, value in asked.items() if not name.startswith("cmake.")}
    return build(
        wheel_directory,
        {**without, "wheel.cmake": "false", f"wheel.force-include.{NOTE}": "bespoke/core/not_built.txt"},
    )


@contextlib.contextmanager
def _recorded(log: list[str]) -> Iterator[None]:
    """Record the output of CMake and the compiler in `log`, and print it too."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        outputs = [os.dup(1), os.dup(2)]
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, output in enumerate(outputs, 1):
                os.dup2(output, number)
                os.close(output)
            file.seek(0)
            log.append(file.read().decode("utf-8", "replace"))
            print(log[-1], flush=True)


def _reason(log: str, error: BaseException) -> str:
    """The first error of CMake or of the compiler in the log, as a line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    blamed = re.search(r"Could not find compiler set in environment variable (\w+)", plain)
    if blamed is not None and blamed[1] not in os.environ:  # scikit-build-core set it to the compiler of Python's build
        return "No C++ compiler was found"
    patterns = (
        r"CMake Error[^\n]*:\n+((?: .*\n|\n)+)",
        r"(?m)^\S*:\d+:\d+: (?:fatal )?(error: .*)$",  # the compiler
        r"(?mi)^(?:.*: )?(error: .*)$",
    )
    first = next((match for pattern in patterns if (match := re.search(pattern, plain))), None)
    words = first[1] if first else f"{type(error).__name__}: {error}"
    return " ".join(words.split())[:600]


# ---- engines ---------------------------------------------------------------------------------------------------------------


def _installed() -> set[Path]:
    """Folders of installed packages."""
    return {Path(sysconfig.get_path(name)) for name in ("platlib", "purelib")} | {Path(path) for path in sys.path}


def _mlx() -> str:
    """The folder of the package mlx, whose wheel holds headers and library, or OFF."""
    for folder in _installed():
        if (folder / f"mlx-{MLX}.dist-info").is_dir() and (folder / "mlx/include").is_dir():
            return str(folder / "mlx")
    return "OFF"


def _executorch_cmake() -> Path:
    """The folder of executorch-config.cmake."""
    for folder in _installed():
        if (folder / f"executorch-{EXECUTORCH}.dist-info").is_dir() and (
            cmake := folder / "executorch/share/cmake"
        ).is_dir():
            return cmake
    return _downloaded() / "executorch/share/cmake"


def _downloaded() -> Path:
    """The folder of ExecuTorch's unpacked wheel for this platform, downloaded once."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bespoke"
    kept = home / f"executorch-{EXECUTORCH}-{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    if kept.is_dir():
        return kept
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                folder,
                f"executorch=={EXECUTORCH}",
            ],
            check=True,
        )
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(Path(folder) / "unpacked")
        with contextlib.suppress(OSError):  # another build was faster
            os.rename(Path(folder) / "unpacked", kept)
    if not kept.is_dir():
        shutil.rmtree(kept, ignore_errors=True)
        raise RuntimeError(f"{kept} cannot be written")
    return kept
