# SPDX-License-Identifier: Apache-2.0
"""Every class of bespoke.errors, raised by real misuse: object, got, expected and next step are there, and say something."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke import errors
from bespoke.errors import BespokeError, ConfigError
from tests.native.misuses import MISUSES as CORE_MISUSES
from tests.support.checks import few_of
from tests.support.misuse import Misuse, Monkey, check
from tests.unit.misuses import MISUSES


def classes() -> list[type[BespokeError]]:
    """What errors.py declares, the base aside: nobody raises that itself."""
    found = [entry for entry in vars(errors).values() if isinstance(entry, type) and issubclass(entry, BespokeError)]
    return [kind for kind in found if kind is not BespokeError]


BUILT_FOR = (errors.PlanDoesNotFit, errors.BudgetExceeded)  # a model is planned, or a bundle built


@pytest.mark.parametrize(
    "misuse",
    few_of(MISUSES, [one for one in MISUSES if one.kind not in BUILT_FOR]),
    ids=lambda misuse: misuse.kind.__name__,
)
def test_an_error_says_object_got_expected_and_next_step(misuse: Misuse, tmp_path: Path, monkeypatch: Monkey) -> None:
    check(misuse, tmp_path, monkeypatch)


def test_every_class_is_raised_by_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    tested = {misuse.kind for misuse in [*MISUSES, *CORE_MISUSES]}
    assert tested == set(classes())
    with capsys.disabled():
        print(
            f"\nerror classes: {len(tested)} of {len(classes())} in errors.py raised by misuse, all four parts checked"
        )


def test_several_settings_errors_are_reported_as_one() -> None:
    problems = [
        ConfigError(f"setting {name}", got="nothing", expected="something", next_step=f"Give {name}")
        for name in ("a", "b")
    ]
    whole = ConfigError.from_problems(problems)
    assert all(str(problem) in str(whole) for problem in problems)
    assert "2 settings (setting a, setting b)" in str(whole)
    assert ConfigError.from_problems(problems[:1]) is problems[0]


# Where a bare error is raised and does not leave the SDK.
CAUGHT = {
    "bespoke/bundle/fields.py": "validators: pydantic wants ValueError, and the reader of manifests makes BundleError of it",
    "bespoke/config.py": "a validator, of which config_problems makes a ConfigError",
    "bespoke/tasks/measures.py": "inside the parser of a call, which says None of what is none",
    "bespoke/data/turns.py": "a validator; Turns.from_bytes makes BundleError of it",
    "bespoke/format/plain_file.py": "as the system's own errors of opening a file, which every caller names in its own words",
}


def test_no_bare_error_leaves_the_sdk() -> None:
    """ValueError and its like say nothing of the four parts."""
    import ast

    from tests.conftest import REPOSITORY

    bare = {
        "ValueError",
        "KeyError",
        "AssertionError",
        "RuntimeError",
        "TypeError",
        "Exception",
        "IndexError",
        "OSError",
    }
    found = set()
    for path in (REPOSITORY / "sdk").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
                if isinstance(called, ast.Name) and called.id in bare:
                    found.add(path.relative_to(REPOSITORY / "sdk").as_posix())
    assert found == CAUGHT.keys()
