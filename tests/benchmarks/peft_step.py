# SPDX-License-Identifier: Apache-2.0
"""Child process: the same steps with transformers and peft, gradient checkpointing. Idle is: imports done, no model open.

    python -m tests.benchmarks.peft_step '{"model": ..., "sequence_length": 256, "steps": 5, "rank": 8, "alpha": 16.0}'

"dtype" ("float32" by default) is that of the base; "update" is "adamw" or "sgd"; "paced" asks before each step.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.benchmarks.footprint import Phases


def main(settings: dict[str, Any]) -> None:
    import peft
    import torch
    import transformers

    phases = Phases()
    phases.idle()
    phases.enter("load")
    dtype = getattr(torch, settings.get("dtype", "float32"))
    base = transformers.AutoModelForCausalLM.from_pretrained(settings["model"], dtype=dtype)
    lora = peft.LoraConfig(
        r=settings["rank"], lora_alpha=settings["alpha"], target_modules="all-linear", task_type="CAUSAL_LM"
    )
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    base.config.use_cache = False
    model = peft.get_peft_model(base, lora).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rule = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[settings.get("update", "adamw")]
    optimizer = rule(trained, lr=settings["learning_rate"], weight_decay=0.0)
    torch.manual_seed(0)
    tokens = torch.randint(0, base.config.vocab_size, (1, settings["sequence_length"] + 1))
    phases.enter("steps")
    losses, seconds, cpu = [], [], []
    for _ in range(settings["steps"]):
        if settings.get("paced") and not phases.enter("turn"):
            break
        began = time.perf_counter()
        # every position is trained on, as with us
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits[0].float(), tokens[0, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del logits
        losses.append(loss.item())
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time())
    phases.report(
        {
            "losses": losses,
            "step_seconds": seconds[1:],
            "cpu_seconds_a_step": (cpu[-1] - cpu[0]) / max(1, len(cpu) - 1),
            "trained": sum(parameter.numel() for parameter in trained),
            "threads": torch.get_num_threads(),
        }
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
