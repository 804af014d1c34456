# SPDX-License-Identifier: Apache-2.0
"""Imports point one way: the repository keeps the order of layers, and what breaks it is found by `tools/check_layers.py`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


layers = load(REPOSITORY / "tools" / "check_layers.py")

ORDER = ("errors", "plan", "ops", "model", "runtime", "compiler", "cli", "bespoke", "bespoke_plugins")
SDK = "sdk/bespoke"


def found(root: Path, files: dict[str, str]) -> dict[str, list[str]]:
    """Complaints about a tree of these files, without the kinds of which there are none."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        (path.parent / "__init__.py").touch()
    return {kind: found for kind, found in layers.check(root, ORDER).complaints.items() if found}


def test_the_repository_keeps_the_order_of_layers() -> None:
    report = layers.check(REPOSITORY)
    assert {kind: found for kind, found in report.complaints.items() if found} == {}
    assert report.files > 150
    assert report.edges > 500


def test_imports_that_point_down_are_fine(tmp_path: Path) -> None:
    files = {
        f"{SDK}/errors.py": "",
        f"{SDK}/plan/read.py": "from bespoke.errors import PlanError",
        f"{SDK}/compiler/build.py": "import bespoke.plan.read\nfrom ..errors import PlanError",
        f"{SDK}/compiler/lower.py": "import torch\nfrom bespoke.compiler import build",
        "plugins/bespoke_plugins/targets/mlx/lowering.py": "import mlx.core\nfrom bespoke.plan import read",
    }
    assert found(tmp_path, files) == {}


@pytest.mark.parametrize(
    "line",
    [
        "import bespoke.compiler.build",
        "from bespoke.compiler.build import build",
        "from bespoke.compiler import build",
        "from ..compiler import build",
        "from ..compiler.build import build",
        "try:\n    import bespoke.compiler.build\nexcept ImportError: ...",
        "class Late:\n    import bespoke.compiler.build",
    ],
)
def test_an_upward_import_is_named_in_every_form(tmp_path: Path, line: str) -> None:
    wrong = found(tmp_path, {f"{SDK}/compiler/build.py": "", f"{SDK}/model/read.py": line})
    number = 2 if "\n" in line else 1
    assert wrong == {"upward": [f"{SDK}/model/read.py:{number} -> bespoke.compiler.build  (model is below compiler)"]}


def test_a_name_that_a_package_defines_counts_for_the_package(tmp_path: Path) -> None:
    files = {
        f"{SDK}/compiler/__init__.py": "class Request: ...",
        f"{SDK}/model/read.py": "from bespoke.compiler import Request",
    }
    assert found(tmp_path, files) == {
        "upward": [f"{SDK}/model/read.py:1 -> bespoke.compiler  (model is below compiler)"]
    }


@pytest.mark.parametrize(
    "text",
    [
        "def late():\n    import bespoke.compiler.build",
        "class Late:\n    async def late(self): from bespoke.compiler import build",
        "from importlib import import_module\nHOME = {'build': 'bespoke.compiler.build'}",
    ],
)
def test_an_import_inside_a_function_counts_and_a_lazy_one_too(tmp_path: Path, text: str) -> None:
    wrong = found(tmp_path, {f"{SDK}/compiler/build.py": "", f"{SDK}/model/read.py": text})
    assert wrong == {"upward": [f"{SDK}/model/read.py:2 -> bespoke.compiler.build  (model is below compiler)"]}


@pytest.mark.parametrize("condition", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_an_import_for_the_type_checker_is_named_apart(tmp_path: Path, condition: str) -> None:
    text = f"if {condition}:\n    from bespoke.compiler.build import A\nelse:\n    from bespoke.compiler.lower import B"
    wrong = found(
        tmp_path, {f"{SDK}/compiler/build.py": "", f"{SDK}/compiler/lower.py": "", f"{SDK}/model/read.py": text}
    )
    assert wrong == {
        "upward": [f"{SDK}/model/read.py:4 -> bespoke.compiler.lower  (model is below compiler)"],
        "type-only upward": [f"{SDK}/model/read.py:2 -> bespoke.compiler.build  (model is below compiler)"],
    }


def test_a_circle_of_three_modules_of_one_package_is_named(tmp_path: Path) -> None:
    files = {
        f"{SDK}/plan/a.py": "from bespoke.plan import b, apart",
        f"{SDK}/plan/b.py": "def late():\n    from bespoke.plan.c import C",
        f"{SDK}/plan/c.py": "import bespoke.plan.a",
        f"{SDK}/plan/apart.py": "",
    }
    wrong = found(tmp_path, files)
    assert list(wrong) == ["circles of modules"]
    assert wrong["circles of modules"][0].splitlines() == [
        "3: bespoke.plan.a, bespoke.plan.b, bespoke.plan.c; the shortest is "
        "bespoke.plan.a -> bespoke.plan.b -> bespoke.plan.c -> bespoke.plan.a",
        f"    {SDK}/plan/a.py:1 -> bespoke.plan.b",
        f"    {SDK}/plan/b.py:2 -> bespoke.plan.c",
        f"    {SDK}/plan/c.py:1 -> bespoke.plan.a",
    ]


def test_a_circle_of_packages_is_found_where_no_modules_make_one(tmp_path: Path) -> None:
    files = {
        f"{SDK}/model/a.py": "import bespoke.compiler.x",
        f"{SDK}/compiler/x.py": "",
        f"{SDK}/compiler/y.py": "import bespoke.model.b",
        f"{SDK}/model/b.py": "",
    }
    wrong = found(tmp_path, files)
    assert list(wrong) == ["upward", "circles of packages"]
    assert wrong["circles of packages"][0].startswith("2: compiler, model; the shortest is ")


def test_torch_is_found_through_two_imports(tmp_path: Path) -> None:
    files = {
        f"{SDK}/plan/read.py": "import bespoke.runtime.noise",
        f"{SDK}/runtime/noise.py": "from bespoke.ops.dtypes import F32",
        f"{SDK}/ops/dtypes.py": "from torch.nn import functional",
    }
    wrong = found(tmp_path, files)
    assert wrong["across a border"][0] == (
        f"{SDK}/plan/read.py:1 -> bespoke.runtime.noise, {SDK}/runtime/noise.py:1 -> bespoke.ops.dtypes, "
        f"{SDK}/ops/dtypes.py:1 -> torch.nn  (plan must do without torch)"
    )


def test_torch_is_found_in_the_init_that_an_import_runs(tmp_path: Path) -> None:
    files = {f"{SDK}/ops/__init__.py": "import torch", f"{SDK}/ops/dtypes.py": ""}
    files[f"{SDK}/plan/read.py"] = "import bespoke.ops.dtypes"
    chain = (
        f"{SDK}/plan/read.py:1 -> bespoke.ops.dtypes, {SDK}/ops/__init__.py:1 -> torch  (plan must do without torch)"
    )
    assert chain in found(tmp_path, files)["across a border"]


def test_only_the_import_that_leaves_a_package_is_named(tmp_path: Path) -> None:
    files = {f"{SDK}/plan/read.py": "import bespoke.plan.values", f"{SDK}/plan/values.py": "import torch"}
    wrong = [f"{SDK}/plan/values.py:1 -> torch  (plan must do without torch)"]
    assert found(tmp_path, files) == {"across a border": wrong}


def test_torch_may_be_loaded_by_a_function_when_it_is_called(tmp_path: Path) -> None:
    files = {f"{SDK}/plan/read.py": "def late():\n    import torch", f"{SDK}/errors.py": "import torchvision"}
    assert found(tmp_path, files) == {}


def test_a_device_does_without_the_compiler_also_inside_functions(tmp_path: Path) -> None:
    order_broken = {
        f"{SDK}/runtime/run.py": "def late():\n    import bespoke.ops.code",
        f"{SDK}/ops/code.py": "def late():\n    from bespoke.compiler import lower",
        f"{SDK}/compiler/lower.py": "",
    }
    assert found(tmp_path, order_broken)["across a border"][0] == (
        f"{SDK}/runtime/run.py:2 -> bespoke.ops.code, {SDK}/ops/code.py:2 -> bespoke.compiler.lower  "
        "(runtime must do without bespoke.compiler)"
    )


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        (f"{SDK}/compiler/lower.py", "import executorch.exir", "a vendor's package"),
        (f"{SDK}/compiler/lower.py", "def late():\n import coremltools", "a vendor's package"),
        ("plugins/bespoke_plugins/optimizers/mesp.py", "from mlx import core", "a vendor's package"),
        ("plugins/bespoke_plugins/targets/mlx/run.py", "from executorch import runtime", "a vendor's package"),
        (f"{SDK}/compiler/lower.py", "from bespoke_plugins.optimizers import mesp", "the sdk imports no plugin"),
        (f"{SDK}/compiler/lower.py", "from bespoke.compiler import mesp", "the sdk imports no plugin"),
        (f"{SDK}/compiler/lower.py", "from bespoke.gone import build", "there is no such module"),
        ("plugins/bespoke_plugins/optimizers/mesp.py", "from bespoke.compiler import build", "not among what"),
        (f"{SDK}/ops/head.py", "from bespoke.plan import read", "not among what"),
    ],
)
def test_an_import_across_a_border_is_named(tmp_path: Path, name: str, line: str, why: str) -> None:
    files = {f"{SDK}/compiler/build.py": "", f"{SDK}/compiler/mesp.py": "", f"{SDK}/plan/read.py": ""}
    plugins = {"plugins/bespoke_plugins/optimizers/mesp.py": ""}
    wrong = found(tmp_path, files | plugins | {name: line})
    assert any(entry.startswith(f"{name}:") and f"({why}" in entry for entry in wrong["across a border"]), wrong


def test_a_package_that_the_order_lacks_is_named(tmp_path: Path) -> None:
    assert found(tmp_path, {f"{SDK}/utils/a.py": "import bespoke.utils.b", f"{SDK}/utils/b.py": ""}) == {
        "not in the order of layers": ["utils"]
    }


def test_modules_of_one_name_are_listed_and_no_error(tmp_path: Path) -> None:
    assert found(tmp_path, {f"{SDK}/plan/cost.py": "", f"{SDK}/runtime/cost.py": "", f"{SDK}/runtime/one.py": ""}) == {}
    assert layers.check(tmp_path, ORDER).same_names == ["cost: plan.cost, runtime.cost"]


def test_the_command_tells_what_is_wrong_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(tmp_path, {f"{SDK}/plan/read.py": "", f"{SDK}/compiler/build.py": "import bespoke.plan.read"})
    assert layers.main([], tmp_path) == 0
    assert "upward: 0; type-only upward: 0; circles of packages: 0" in capsys.readouterr().out
    order = tmp_path / "order.txt"
    order.write_text("compiler\nplan\nbespoke")
    assert layers.main(["--layers", str(order)], tmp_path) == 1
    printed = capsys.readouterr()
    assert "upward: 1; " in printed.out
    assert f"upward:\n  {SDK}/compiler/build.py:1 -> bespoke.plan.read  (compiler is below plan)" in printed.err
