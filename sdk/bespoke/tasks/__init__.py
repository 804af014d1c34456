# SPDX-License-Identifier: Apache-2.0
"""Tasks: rows with right answers, read from a file. A model is trained on one task and evaluated on another.

train, test = read_task("labels", "train.csv"), read_task("labels", "test.csv")
for example in train.examples(chat=model.has_turns):
    model.examples.add(example)
...
print(model.evaluate(test))
"""

from __future__ import annotations

from bespoke.tasks.judging import TaskReport, WrongRow, judge
from bespoke.tasks.task import Task, TaskKind, TaskRow, read_task

__all__ = ["Task", "TaskKind", "TaskReport", "TaskRow", "WrongRow", "judge", "read_task"]
