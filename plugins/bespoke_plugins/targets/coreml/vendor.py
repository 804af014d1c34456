# SPDX-License-Identifier: Apache-2.0
"""Imports coremltools quietly and only in the version whose internals the target uses."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from bespoke.contracts import quiet_imports
from bespoke.errors import MissingDependency

VERSION = "9.0"
_SUBJECT = "Target 'coreml'"


@cache
def load_coremltools() -> None:
    """Raises MissingDependency if it is not installed in this version."""
    try:
        installed = version("coremltools")
    except PackageNotFoundError:
        raise MissingDependency.of(_SUBJECT, "coremltools", "coreml") from None
    if installed != VERSION:
        raise MissingDependency(
            _SUBJECT,
            got=f"coremltools {installed}",
            expected=f"coremltools {VERSION}: another one writes other bytes",
            next_step=f"pip install 'coremltools=={VERSION}', which is what 'bespoke-sdk[coreml]' asks for",
        )
    try:
        with quiet_imports("coremltools"):
            import coremltools.converters.mil.backend.mil.load  # noqa: F401
    except ImportError as problem:
        raise MissingDependency(
            _SUBJECT,
            got=f"coremltools {installed}, which does not import: {problem}",
            expected="one that does",
            next_step=f"pip install --force-reinstall 'coremltools=={VERSION}'",
        ) from problem
