# SPDX-License-Identifier: Apache-2.0
"""The error of a process that has no free file descriptor, wherever in a verb this happens."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from bespoke.errors import Unavailable

__all__ = ["no_free_descriptor", "opens_files"]

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def opens_files(verb: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Decorator of a verb: raises Unavailable if the verb, or an import in it, has no free descriptor."""

    @wraps(verb)
    def called(*arguments: Arguments.args, **options: Arguments.kwargs) -> Returned:
        try:
            return verb(*arguments, **options)
        except OSError as problem:
            refusal = no_free_descriptor(problem)
            if refusal is None:
                raise
            raise refusal from problem

    return called


def no_free_descriptor(problem: OSError) -> Unavailable | None:
    """The error to raise for `problem`; None if its cause is no lack of descriptors."""
    if problem.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    here = problem.errno == errno.EMFILE
    return Unavailable(
        "this process" if here else "this machine",
        got="no descriptor for one more file",
        expected=f"a free one of the {most} that the process may have" if here else "a free one",
        next_step="Close files that are open, or raise the limit (ulimit -n), and call again; nothing was lost",
    )
