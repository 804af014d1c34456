# SPDX-License-Identifier: Apache-2.0
"""Golden vectors as data: what a bundle says that its plans must compute, and how close a runtime has to come.

One safetensors file: `document` (uint8, the JSON of `GoldenDocument`), `tokens` int32 [R, n + 1] and `mask` uint8 [R, n + 1] (a
batch as the rows of an example are: position t predicts token t + 1, counted where mask[t + 1] is 1), and for each piece of the
adapter `gradient.<piece>` float32: the gradient's elements at `places`. For each array that a method asks for `array.<name>`, int32
or float32 [R, n]. All of it is about one adapter: the bundle's initial A, and
B from the noise counter times `b_scale`, because with B = 0 every gradient of A is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from bespoke.config import Settings, expected_of
from bespoke.errors import BundleError
from bespoke.format.json_strict import dumps_canonical, loads_strict, shown_json
from bespoke.plan.kinds import ARRAY_PREFIX, array_name
from bespoke.rules.noise import Stream, noise, philox

__all__ = [
    "GOLDEN_VERSION",
    "MAX_ELEMENTS",
    "MAX_TEXTS",
    "Golden",
    "GoldenDocument",
    "GoldenText",
    "GradientGolden",
    "GradientSource",
    "Known",
    "MethodGolden",
    "PieceGolden",
    "filled_adapter",
    "places",
    "read_golden",
]

GOLDEN_VERSION = 1
MAX_ELEMENTS = 4096  # of a gradient
MAX_DOCUMENT_BYTES = 16 * 2**20
MAX_TEXTS = 500


class Known(Settings):
    """A number, and by how much another may differ from it."""

    value: float
    tolerance: float = Field(ge=0)

    def holds(self, got: float) -> bool:
        """False for a NaN too."""
        return abs(got - self.value) <= self.tolerance


class GradientGolden(Settings):
    """Norm of a gradient, and `tolerance`: the largest norm of the difference of its elements in `gradient.<piece>`."""

    norm: Known
    tolerance: float = Field(ge=0)


class PieceGolden(Settings):
    """One piece of the adapter. `gradient` is null where no method of the bundle yields gradients, and where it is not trained."""

    name: str
    block: int = Field(ge=0, lt=2**16, description="with `tensor`: the piece's place in the noise counter")
    tensor: int = Field(ge=0, lt=2**16)
    gradient: GradientGolden | None


class GradientSource(Settings):
    """Where a runtime finds the gradient of `<piece>` after the first step.

    accumulator: the step value `<piece><suffix>`, divided by `divisor`; moment: the state `<piece><suffix>`, divided by it, the
    state having been zero; difference: a step of its own with `divisor` as learning rate, (old - new) / divisor.
    """

    kind: Literal["accumulator", "moment", "difference"]
    suffix: str = Field(max_length=32)
    divisor: float = Field(gt=0)


class MethodGolden(Settings):
    """The first steps of a method from the golden adapter, on the golden batch. Empty lists: not known without the method. Of one
    that promises nothing only the first loss is known."""

    name: str
    learning_rates: list[float] = Field(max_length=3, description="of each step; the schedule must give them")
    micro_batches: int = Field(ge=1, description="how often the batch is given in a step")
    losses: list[Known] = Field(max_length=3, description="what each step emits as `loss`")
    recorded: list[list[Known]] = Field(max_length=3, description="of each step, the first values that it records")
    trained: list[str] = Field(description="pieces that a step stores")
    gradient: GradientSource | None
    moved: list[list[Known]] = Field(
        max_length=3, description="after each step, how far each trained piece is from its start"
    )


class GoldenText(Settings):
    """A user's words and their tokens."""

    text: str
    ids: list[Annotated[int, Field(ge=0)]]


class GoldenDocument(Settings):
    """Everything but the tensors."""

    version: int
    seed: int = Field(ge=0, lt=2**63, description="of every counter")
    b_scale: float = Field(gt=0)
    loss: Known = Field(description="mean over the counted positions of the batch, at the golden adapter")
    next_token_loss: Known = Field(description="of the last position of the first row, by prefill and decode")
    pieces: list[PieceGolden]
    methods: list[MethodGolden]
    texts: list[GoldenText] = Field(max_length=MAX_TEXTS)


class Golden(Settings):
    """The document with its tensors."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    document: GoldenDocument
    tokens: np.ndarray
    mask: np.ndarray
    gradients: dict[str, np.ndarray]
    batch_arrays: dict[str, np.ndarray]

    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the file."""
        text = dumps_canonical(self.document.model_dump(mode="json"))
        return {
            "document": np.frombuffer(text, np.uint8),
            "tokens": self.tokens,
            "mask": self.mask,
            **{f"gradient.{name}": elements for name, elements in self.gradients.items()},
            **{f"{ARRAY_PREFIX}{name}": array for name, array in self.batch_arrays.items()},
        }


def read_golden(
    arrays: Mapping[str, np.ndarray], subject: str, shapes: Mapping[str, tuple[int, ...]], vocab_size: int
) -> Golden:
    """Checks the file against itself, the adapter's shapes and the vocabulary. Raises BundleError for what does not fit."""
    for name, dtype, dimensions in (("document", "uint8", 1), ("tokens", "int32", 2), ("mask", "uint8", 2)):
        array = arrays.get(name)
        if array is None or array.dtype.name != dtype or array.ndim != dimensions:
            raise _refused(subject, f"no {dtype} tensor '{name}' of {dimensions} dimensions", "one")
    raw = loads_strict(arrays["document"].tobytes(), subject=subject, error=BundleError, max_bytes=MAX_DOCUMENT_BYTES)
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != GOLDEN_VERSION:
        raise _refused(subject, f"golden vectors of version {shown_json(version)}", str(GOLDEN_VERSION))
    try:
        document = GoldenDocument.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _refused(f"{subject}, {where}", shown_json(first.get("input"), 100), expected_of(first)) from None
    tokens, mask = arrays["tokens"], arrays["mask"]
    if tokens.shape != mask.shape or tokens.shape[1] < 2 or not mask[:, 1:].any():
        raise _refused(subject, f"tokens {list(tokens.shape)}, mask {list(mask.shape)}", "a batch with a counted token")
    if mask.max() > 1:
        raise _refused(subject, "a mask of other values than 0 and 1", "0 or 1 for each token")
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise _refused(subject, f"tokens from {tokens.min()} to {tokens.max()}", f"0 to {vocab_size - 1}")
    named = [piece.name for piece in document.pieces]
    if sorted(named) != sorted(shapes):
        raise _refused(subject, f"gradients of {len(named)} pieces", f"of the {len(shapes)} pieces of the adapter")
    gradients = {}
    for name in (piece.name for piece in document.pieces if piece.gradient is not None):
        elements, size = arrays.get(f"gradient.{name}"), min(math.prod(shapes[name]), MAX_ELEMENTS)
        if elements is None or elements.dtype.name != "float32" or elements.shape != (size,):
            raise _refused(f"{subject}, tensor 'gradient.{name}'", "none, or another shape", f"float32 [{size}]")
        gradients[name] = elements
    for method in document.methods:
        _check_method(method, f"{subject}, method '{method.name}'", set(named), set(gradients))
    batch_arrays = _batch_arrays(arrays, subject, (tokens.shape[0], tokens.shape[1] - 1), vocab_size)
    return Golden(document=document, tokens=tokens, mask=mask, gradients=gradients, batch_arrays=batch_arrays)


def _batch_arrays(
    arrays: Mapping[str, np.ndarray], subject: str, shape: tuple[int, int], vocab_size: int
) -> dict[str, np.ndarray]:
    by_name = {name: array for full, array in arrays.items() if (name := array_name(full)) is not None}
    for name, array in by_name.items():
        where = f"{subject}, tensor '{ARRAY_PREFIX}{name}'"
        if array.dtype.name not in ("int32", "float32") or array.shape != shape:
            raise _refused(where, f"{array.dtype.name} {list(array.shape)}", f"int32 or float32 {list(shape)}")
        if array.dtype == np.int32 and (array.min() < 0 or array.max() >= vocab_size):
            raise _refused(where, f"tokens from {array.min()} to {array.max()}", f"0 to {vocab_size - 1}")
        if not np.isfinite(array).all():
            raise _refused(where, "NaN or infinity", "finite numbers")
    return by_name


def _check_method(method: MethodGolden, subject: str, pieces: set[str], with_gradient: set[str]) -> None:
    steps = len(method.learning_rates)
    if max(len(method.losses), len(method.recorded), len(method.moved)) > steps:
        raise _refused(subject, "more results than learning rates", f"at most {steps}")
    if not set(method.trained) <= pieces or any(len(row) != len(method.trained) for row in method.moved):
        raise _refused(subject, "trained pieces that do not fit", "pieces of the adapter, and a distance for each")
    if method.gradient is not None and not set(method.trained) <= with_gradient:
        raise _refused(subject, "no gradient of a piece that it trains", "one for each")


def _refused(subject: str, got: str, expected: str) -> BundleError:
    return BundleError(subject, got=got, expected=expected, next_step="Get the bundle again from where it was built")


def places(piece: PieceGolden, size: int, seed: int) -> np.ndarray:
    """int64 indices of the elements that are compared: all of them, in order, where there are at most MAX_ELEMENTS.

    Else word 0 of counter (j, block << 16 | tensor, GOLDEN_PLACE, 0) modulo size, for j = 0, 1, ...; one may come twice.
    """
    if size <= MAX_ELEMENTS:
        return np.arange(size)
    words = philox(0, MAX_ELEMENTS, (piece.block << 16 | piece.tensor, Stream.GOLDEN_PLACE, 0), seed)[0]
    return words.astype(np.int64) % size


def filled_adapter(initial: Mapping[str, np.ndarray], document: GoldenDocument) -> dict[str, np.ndarray]:
    """The golden adapter, float32: `initial` with each B replaced by noise (step 0, query 0) times b_scale."""
    filled: dict[str, Any] = {}
    for piece in document.pieces:
        start = initial[piece.name]
        if piece.name.endswith("lora_B"):
            drawn = noise(start.shape, seed=document.seed, step=0, query=0, block=piece.block, tensor=piece.tensor)
            filled[piece.name] = drawn * np.float32(document.b_scale)
        else:
            filled[piece.name] = np.array(start, np.float32)
    return filled
