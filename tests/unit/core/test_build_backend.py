# SPDX-License-Identifier: Apache-2.0
"""The build backend: where it finds ExecuTorch, and what it does where the core cannot be compiled."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.core.finding import SYSTEM_PACKAGES
from tests.conftest import REPOSITORY

NO_PACKAGE = """
CMake Error at cmake/executorch.cmake:10 (find_package):
  By not providing "Findexecutorch.cmake" in CMAKE_MODULE_PATH this project
  has asked CMake to find a package configuration file provided by
  "executorch", but CMake did not find one.

-- Configuring incomplete, errors occurred!
"""
NO_COMPILER = """
CMake Error at /usr/share/cmake-3.25/Modules/CMakeDetermineCXXCompiler.cmake:48 (message):
  Could not find compiler set in environment variable CC:

  gcc.
"""
COMPILER = "[3/50] Building\n/src/train/trainer.cpp:12:3: error: 'nosuch' was not declared in this scope\n   12 |   nosuch();\n"

Build = Callable[[str, dict[str, Any]], str]


class Scikit:
    """Stands for scikit-build-core; what it was asked for is kept."""

    def __init__(self, says: str | None) -> None:
        self.says = says
        self.asked: list[dict[str, Any]] = []

    def build(self, folder: str, settings: dict[str, Any]) -> str:
        self.asked.append(settings)
        if self.says is not None and settings.get("wheel.cmake") != "false":
            subprocess.run(["echo", self.says], check=True)  # as CMake does: not through Python's stdout
            raise SystemExit(1)
        return "wheel.whl"


def backend(scikit: Scikit, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    build = types.ModuleType("scikit_build_core.build")
    for name in ("build_wheel", "build_editable"):
        setattr(build, name, scikit.build)
    build.build_sdist = build.get_requires_for_build_sdist = lambda *_: ""  # type: ignore[attr-defined]
    package = types.ModuleType("scikit_build_core")
    package.build = build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "scikit_build_core", package)
    spec = importlib.util.spec_from_file_location("bespoke_build", REPOSITORY / "tools" / "bespoke_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_executorch_cmake", lambda: Path("/executorch/share/cmake"))
    monkeypatch.setattr(module, "_installed", set)  # no MLX
    return module


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BESPOKE_REQUIRE_CORE", raising=False)


@pytest.mark.parametrize("verb", ["build_wheel", "build_editable"])
def test_the_core_is_compiled_against_executorch(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scikit = Scikit(None)
    assert getattr(backend(scikit, monkeypatch), verb)("out") == "wheel.whl"
    assert scikit.asked == [
        {"cmake.define.executorch_DIR": "/executorch/share/cmake", "cmake.define.BESPOKE_MLX": "OFF"}
    ]


def test_the_engine_for_mlx_is_built_where_mlx_is_installed_in_our_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scikit = Scikit(None)
    module = backend(scikit, monkeypatch)
    monkeypatch.setattr(module, "_installed", lambda: {tmp_path})
    (tmp_path / "mlx" / "include").mkdir(parents=True)
    assert module._mlx() == "OFF"
    (tmp_path / f"mlx-{module.MLX}.dist-info").mkdir()
    module.build_editable("out")
    assert scikit.asked[0]["cmake.define.BESPOKE_MLX"] == str(tmp_path / "mlx")


def test_a_variable_is_blamed_only_where_the_user_has_set_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = backend(Scikit(NO_COMPILER), monkeypatch)
    monkeypatch.delenv("CC", raising=False)  # scikit-build-core sets it from what Python was built with
    module.build_wheel("out")
    assert (tmp_path / "build" / "not_built").read_text() == "No C++ compiler was found\n"
    monkeypatch.setenv("CC", "gcc")
    module.build_wheel("out")
    assert "environment variable CC: gcc" in (tmp_path / "build" / "not_built").read_text()


@pytest.mark.parametrize(
    ("log", "reason"),
    [(NO_PACKAGE, '"executorch", but CMake did not find one'), (COMPILER, "'nosuch' was not declared")],
)
def test_what_cannot_be_compiled_is_left_out_and_the_reason_kept(
    log: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    scikit = Scikit(log)
    assert backend(scikit, monkeypatch).build_wheel("out", {"cmake.build-type": "Debug"}) == "wheel.whl"
    said = capfd.readouterr().out
    assert log.strip() in said  # pip -v shows all of it
    assert "WARNING: the device core was not compiled" in said
    assert scikit.asked[1]["wheel.cmake"] == "false"
    assert scikit.asked[1]["wheel.force-include.build/not_built"] == "bespoke/core/not_built.txt"
    assert "cmake.build-type" not in scikit.asked[1]
    assert reason in (tmp_path / "build" / "not_built").read_text()


def test_where_the_core_is_required_its_failure_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESPOKE_REQUIRE_CORE", "1")
    scikit = Scikit(NO_PACKAGE)
    with pytest.raises(SystemExit) as failed:
        backend(scikit, monkeypatch).build_wheel("out")
    assert len(scikit.asked) == 1
    assert "Findexecutorch.cmake" in str(failed.value)
    assert "BESPOKE_REQUIRE_CORE" in str(failed.value)
    assert SYSTEM_PACKAGES in str(failed.value)


def test_the_same_packages_are_named_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backend(Scikit(None), monkeypatch).SYSTEM_PACKAGES == SYSTEM_PACKAGES
    for page in ("README.md", "docs/how_to/use_the_device_core.md"):
        assert SYSTEM_PACKAGES in (REPOSITORY / page).read_text(encoding="utf-8")


def test_without_the_core_executorch_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scikit = Scikit(NO_PACKAGE)
    module = backend(scikit, monkeypatch)
    monkeypatch.setattr(module, "_executorch_cmake", lambda: pytest.fail("looked for executorch"))
    module.build_editable("out", {"wheel.cmake": "false"})
    assert scikit.asked == [{"wheel.cmake": "false"}]


def test_the_version_is_that_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    version = backend(Scikit(None), monkeypatch).EXECUTORCH
    assert f'executorch = ["executorch=={version}"]' in (REPOSITORY / "pyproject.toml").read_text()
    assert f"executorch=={version}\n" in (REPOSITORY / "constraints.txt").read_text()
    mlx = backend(Scikit(None), monkeypatch).MLX
    assert f"mlx[cpu]=={mlx};" in (REPOSITORY / "pyproject.toml").read_text()
    assert f"mlx=={mlx}\n" in (REPOSITORY / "constraints.txt").read_text()
