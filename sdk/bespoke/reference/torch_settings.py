# SPDX-License-Identifier: Apache-2.0
"""Torch's settings while this runtime computes: those that it was tested with, whatever the app has set.

An app that shares its process with this runtime sets torch up for its own models: tf32 products, bfloat16 as default type, a
default device, autocast. All of that reaches every product that is computed in the process, and the golden vectors allow none of
it. So each call that computes sets torch as a new process has it, with products in full fp32, and puts the app's settings back.

Some settings are the calling thread's, others the whole process's. Of the latter the first of several calls keeps the app's values
and the last one restores them: calls in several threads would otherwise restore what another one had set. Meanwhile other threads
of the app compute with ours.

fp32 precision is stored twice: by the functions before torch 2.9 (`set_float32_matmul_precision`, `allow_tf32`), and by backend and
operator since (`fp32_precision`), where "none" means that of the backend, and for a backend the general one. The old functions
raise where the two differ. Torch is pinned below its next minor version, and its own table of the new settings is used
here: the public attribute of mkldnn sets the general value instead of its own.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import torch

from bespoke.reference.threads import limited

__all__ = ["computing", "each_computed"]

Piece = TypeVar("Piece")

_GENERAL = ("generic", "all")
_BACKENDS = (("cuda", "all"), ("mkldnn", "all"))
_MATMUL = (("cuda", "matmul"), ("mkldnn", "matmul"))
_OTHERS = (("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "conv"), ("mkldnn", "rnn"))
_get_precision, _set_precision = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter


class _Switch(NamedTuple):
    get: Callable[[], Any]
    put: Callable[[Any], None]
    ours: Any


def _pair(put: Callable[..., None]) -> Callable[[Any], None]:
    return lambda value: put(*value)


# Process-wide, apart from the precision of fp32.
_SWITCHES = (
    _Switch(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    _Switch(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (False, False),
    ),
    _Switch(
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
        _pair(torch._C._set_cublas_allow_fp16_reduced_precision_reduction),
        (False, True),
    ),
    _Switch(
        torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
        _pair(torch._C._set_cublas_allow_bf16_reduced_precision_reduction),
        (False, True),
    ),
    _Switch(torch._C._get_cublas_allow_fp16_accumulation, torch._C._set_cublas_allow_fp16_accumulation, False),
    _Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled, True),
    _Switch(torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled, True),
    _Switch(torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark, False),
)


@contextmanager
def computing(threads: int | None) -> Iterator[None]:
    """Computes with the settings of this module and so many threads; None: as many as torch has."""
    with _process.ours(), ExitStack() as of_thread:
        _set_thread(of_thread)
        with limited(threads):
            yield


def each_computed(pieces: Iterator[Piece], threads: int | None) -> Iterator[Piece]:
    """`pieces`, each of them made within `computing`; between two of them the caller has its own settings."""
    while True:
        try:
            with computing(threads):
                piece = next(pieces)
        except StopIteration:
            return
        yield piece


# ---- of the calling thread ---------------------------------------------------------------------------------------------


def _set_thread(stack: ExitStack) -> None:
    if torch.is_inference_mode_enabled():  # what is made in it and kept could not be written to by a later call
        stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.enable_grad())  # build differentiates; what only computes turns it off itself
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    if torch.get_default_device().type != "cpu":
        stack.enter_context(torch.device("cpu"))
    if sys.float_info.min / 2 == 0 and torch.set_flush_denormal(False):  # torch does not say how it is set
        stack.callback(torch.set_flush_denormal, True)


# ---- of the process ----------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """What the app has set."""

    switches: list[Any]
    precisions: dict[tuple[str, str], str]
    matmul: str  # by the old function


class _Process:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0
        self._kept: _Kept | None = None

    @contextmanager
    def ours(self) -> Iterator[None]:
        with self._lock:
            if self._calls == 0:
                self._kept = _keep_and_set()
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if self._calls == 0 and self._kept is not None:
                    _restore(self._kept)


def _keep_and_set() -> _Kept:
    switches = [switch.get() for switch in _SWITCHES]
    for switch in _SWITCHES:
        switch.put(switch.ours)
    precisions = {}
    for place in (_GENERAL, *_BACKENDS):
        precisions[place] = _get_precision(*place)
        _set_precision(*place, "none")  # so that those that inherit it say what they have themselves
    own = {place: _get_precision(*place) for place in (*_MATMUL, *_OTHERS)}
    _set_precision(*_GENERAL, "ieee")
    # A convolution that nobody has set says tf32 until the general one is set, and cannot be put back to that once it was set.
    precisions |= {place: own[place] for place in own if place in _MATMUL or _get_precision(*place) != "ieee"}
    for place in precisions.keys() & own.keys():
        _set_precision(*place, "ieee")
    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return _Kept(switches, precisions, matmul)


def _restore(kept: _Kept) -> None:
    torch.set_float32_matmul_precision(kept.matmul)
    for place, precision in kept.precisions.items():
        _set_precision(*place, precision)  # last: the old function changes two of these
    for switch, value in zip(_SWITCHES, kept.switches, strict=True):
        switch.put(value)


_process = _Process()
