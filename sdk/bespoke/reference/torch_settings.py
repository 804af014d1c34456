# SPDX-License-Identifier: Apache-2.0
"""Torch's settings while this runtime computes: those that it was tested with, whatever the app has set.

An app that shares its process with this runtime sets torch up for its own models: tf32 products, bfloat16 as default type, a
default device, autocast. These settings affect every product in the process, and the golden vectors allow none of them. So each
call that computes gives torch the settings of a new process, with products in full fp32. Then it restores the app's settings.

Some settings belong to the calling thread, others to the whole process. If several threads compute, the first call saves the
process's settings and the last one restores them. Otherwise a call could restore what another call had set. Meanwhile other
threads of the app compute with our settings.

torch stores fp32 precision twice. The functions before torch 2.9 are `set_float32_matmul_precision` and `allow_tf32`. Since
then there is `fp32_precision` for each backend and operator, where "none" means the backend's value, and for a backend the
general value. The old functions raise if the two differ. Torch is pinned below its next minor version, and this module uses
torch's own table of the new settings, because the public attribute of mkldnn sets the general value instead of its own.
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
    """A setting: how it is read and written, and its value while this runtime computes."""

    get: Callable[[], Any]
    put: Callable[[Any], None]
    ours: Any


def _pair(put: Callable[..., None]) -> Callable[[Any], None]:
    return lambda value: put(*value)


# The settings of the process, without the precision of fp32.
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
    """Computes with the settings of this module and `threads` threads within the context. None leaves torch's number."""
    with _process.ours(), ExitStack() as of_thread:
        _set_thread(of_thread)
        with limited(threads):
            yield


def each_computed(pieces: Iterator[Piece], threads: int | None) -> Iterator[Piece]:
    """Yields `pieces`, each computed within `computing`. Between two pieces the caller has its own settings."""
    while True:
        try:
            with computing(threads):
                piece = next(pieces)
        except StopIteration:
            return
        yield piece


# ---- settings of the calling thread ------------------------------------------------------------------------------------


def _set_thread(stack: ExitStack) -> None:
    if torch.is_inference_mode_enabled():  # a later call could not write to tensors that were created in it
        stack.enter_context(torch.inference_mode(False))
    stack.enter_context(
        torch.enable_grad()
    )  # a build differentiates; code that does not need gradients turns it off itself
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    if torch.get_default_device().type != "cpu":
        stack.enter_context(torch.device("cpu"))
    if sys.float_info.min / 2 == 0 and torch.set_flush_denormal(False):  # torch does not say how it is set
        stack.callback(torch.set_flush_denormal, True)


# ---- settings of the process -------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """The app's settings."""

    switches: list[Any]
    precisions: dict[tuple[str, str], str]
    matmul: str  # from the old function


class _Process:
    """The settings of the process, which concurrent calls share."""

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
        _set_precision(*place, "none")  # so that places that inherit it report their own value
    own = {place: _get_precision(*place) for place in (*_MATMUL, *_OTHERS)}
    _set_precision(*_GENERAL, "ieee")
    # An unset convolution reports tf32 until the general value is set. Once set itself, it cannot be restored to unset.
    precisions |= {place: own[place] for place in own if place in _MATMUL or _get_precision(*place) != "ieee"}
    for place in precisions.keys() & own.keys():
        _set_precision(*place, "ieee")

    matmul = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    return _Kept(switches, precisions, matmul)


def _restore(kept: _Kept) -> None:
    torch.set_float32_matmul_precision(kept.matmul)
    for place, precision in kept.precisions.items():
        _set_precision(*place, precision)  # after the old function, which changes two of these
    for switch, value in zip(_SWITCHES, kept.switches, strict=True):
        switch.put(value)


_process = _Process()
