# SPDX-License-Identifier: Apache-2.0
"""Bank customers' questions with their labels (banking77), as prompts and completions."""

from __future__ import annotations

import csv
from pathlib import Path

LABELS = ("age_limit", "change_pin", "exchange_rate", "lost_or_stolen_card", "passcode_forgotten", "top_up_limits")


def by_label(data_folder: Path, split: str) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {label: [] for label in LABELS}
    with (data_folder / "classification" / "banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["category"] in texts:
                texts[row["category"]].append(row["text"])
    return texts


def labelled(text: str, label: str) -> dict[str, str]:
    return {"prompt": f"{text}\nLabel:", "completion": f" {label}"}
