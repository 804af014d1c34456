# SPDX-License-Identifier: Apache-2.0
"""Personalizer: the developer's calls at build time. Model, methods and budget go in, a bundle comes out.

The constructor resolves and checks the settings and reports all problems at once. `build` writes the bundle; `estimate` says what
it will take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bespoke import arguments
from bespoke.arguments import TrainOn
from bespoke.compiler.request import AUTO, BuildArguments, BuildListener
from bespoke.compiler.resolve import Named, resolve
from bespoke.config import Budget, Federation, Lora, Training
from bespoke.system.descriptors import opens_files

if TYPE_CHECKING:
    from bespoke.compiler.build_report import BuildReport
    from bespoke.compiler.estimate import BuildEstimate, Dial

__all__ = ["Personalizer"]

DIAL_MB = (64, 96, 128, 192, 256, 384, 512)


class Personalizer:
    """The ingredients of a bundle: a model, methods that train it, targets that run it, and a memory budget.

    Args:
        model: Hugging Face folder, hub id or GGUF file.
        optimizers: Methods: a name, several, or name -> options. An option that is a field of `Training` overrides it for that
            method. The first is the default of `train`. An empty list builds a bundle that answers and does not train.
        targets: Targets, in the same form. Every bundle runs on torch. Add "executorch" for the device core of a phone.
        tokenizer: Folder or hub id of the tokenizer and the chat template. None: the model's own.
        context: Most tokens of a conversation, which is the number of rows of the KV cache. None: 1024, or what the model can if
            that is less. Raise it for long conversations; the cache counts against the budget.
        draft_tokens: Most tokens that an answer guesses at once from what the prompt and the answer have said before, 0 to 7. The
            answer is the same, and text that repeats itself comes faster. Measure it on the phone: how many are worth guessing
            depends on the processor.
        data: JSONL, .json, CSV, .txt or .md that ships to all users: general text against forgetting, or labels. "auto": none but
            what `rehearsal` adds. None: no general set and no rehearsal, so the gate cannot refuse an adapter that forgets.
        data_format: Shape of the rows of `data`, or sharegpt, alpaca, chatgpt, claude. None: the first row decides.
        fields: Columns of `data`, such as {"prompt": "question", "completion": "answer"}. "{a} {b}" joins two columns.
        encoding: Encoding of `data`, such as "cp1252". None: UTF-8, or UTF-16 with a byte order mark.
        lora: Shape of the adapter. None: `Lora()`.
        training: Settings of a run. None: `Training()`.
        budget: Memory limit of training. None: no limit, and the fastest plan.
        rehearsal: Whether the base model answers the SDK's everyday prompts at build. Runs then train on some of these answers
            along with the user's examples, and the gate judges by the others. Without it, a model that learns from a user forgets
            how to answer anything else, and the gate has only plain texts to notice.
        text: Whether the bundle has a tokenizer. Set it to False for a model whose tokenizer bespoke cannot run: the bundle takes
            token ids then.
        train_on: Whose messages are learned from: "assistant", "user" ("write like me") or "all".
        licence: Terms of the base model. Give it if the model's folder does not name them.
        template_date: Date that a chat template prints, as YYYY-MM-DD, for templates that ask for the date.
        federation: What users learn together, each on their own device. Methods that can: `zgr`, and `mesp` and `mebp` with
            `federated_directions`. None: every device learns for itself.
        signing_key: Private ed25519 key in PEM, which signs the manifest. Your app asks for the public half.

    Raises a ConfigError that lists all problems of the arguments.
    """

    def __init__(
        self,
        model: str | Path,
        optimizers: Named = "mesp",
        targets: Named = "torch",
        *,
        tokenizer: str | Path | None = None,
        context: int | None = None,
        draft_tokens: int = 0,
        data: str | Path | None = AUTO,
        data_format: str | None = None,
        fields: Mapping[str, str] | None = None,
        encoding: str | None = None,
        lora: Lora | None = None,
        training: Training | None = None,
        budget: Budget | None = None,
        rehearsal: bool = True,
        text: bool = True,
        train_on: TrainOn = "assistant",
        licence: str | None = None,
        template_date: str | None = None,
        federation: Federation | None = None,
        signing_key: bytes | None = None,
    ) -> None:
        self.request = resolve(
            optimizers,
            targets,
            BuildArguments(
                model=model,
                tokenizer=tokenizer,
                context=context,
                draft_tokens=draft_tokens,
                data=Path(data) if isinstance(data, str) and data != AUTO else data,
                data_format=data_format,
                fields=dict(fields) if isinstance(fields, Mapping) and fields else fields or None,
                encoding=encoding,
                lora=lora or Lora(),
                training=training or Training(),
                budget=budget or Budget(),
                rehearsal=rehearsal,
                text=text,
                train_on=train_on,
                licence=licence,
                template_date=template_date,
                federation=federation,
                signing_key=signing_key,
            ),
        )

    @opens_files
    def estimate(self) -> BuildEstimate:
        """Returns peak memory, work and bundle size of `build`. Refuses what `build` refuses, and leaves nothing behind."""
        from bespoke.compiler.bundle import estimate

        return estimate(self.request)

    @opens_files
    def dial(self, budgets_mb: Sequence[float] = DIAL_MB) -> Dial:
        """Returns the fastest plan within each budget, for every method and sequence length. `print` it for a table.

        The target measures the peaks of the smallest and the largest budget. Those between are close to its measure.
        """
        from bespoke.compiler.bundle import dial

        return dial(self.request, [Budget(memory_mb=budget).memory_bytes or 0 for budget in budgets_mb])

    def build(self, out: str | Path, progress: BuildListener | None = None) -> Path:
        """Writes the bundle into folder `out`, whole or not at all, and returns the folder. Same input, same bytes.

        Issues a BuildWarning for each thing in the model's files that the build changes or ignores.
        """
        return self.build_with_report(out, progress)[0]

    @opens_files
    def build_with_report(self, out: str | Path, progress: BuildListener | None = None) -> tuple[Path, BuildReport]:
        """Builds like `build`. Also reports how the rows of `data` were used and what quantization cost the weights."""
        from bespoke.bundle.signature import public_key_of
        from bespoke.compiler.bundle import build

        if self.request.signing_key is not None:
            public_key_of(self.request.signing_key)  # refuses an invalid key before the work, not after
        return build(self.request, arguments.folder("out", out), progress or (lambda stage, done, total: None))
