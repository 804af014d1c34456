# SPDX-License-Identifier: Apache-2.0
"""The prompt templates of the 14 tasks by which P-RGE and MobiZO judge (two versions of one work, arXiv 2409.15520); most come from
MeZO (arXiv 2305.17333).

    TEMPLATES["sst2"].row(1, {"text": "a fine film", "label": 1})

gives a row of `bespoke.tasks`. Columns have the names that GLUE and SuperGLUE give them where they give one; label words
stand in the order of the labels 0, 1, ... None of the papers' data sets can be had where this is developed: rows of these columns,
from wherever, will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bespoke.tasks import Task, TaskKind, TaskRow

YES_NO = ("Yes", "No")  # entailment, equivalence: label 0 is yes in GLUE's RTE and QNLI
NO_YES = ("No", "Yes")


@dataclass(frozen=True)
class Template:
    """`prompt`: with columns in braces. `words`: what each label is said as; none: the columns of `options` are said, of which the
    column `label` counts the right one from 0; neither: one of the texts in the column `answers`."""

    prompt: str
    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def kind(self) -> TaskKind:
        return "labels" if self.words else "choice" if self.options else "answers"

    def row(self, number: int, columns: Mapping[str, Any]) -> TaskRow:
        prompt = self.prompt.format_map(columns)
        options = self.words or tuple(option.format_map(columns) for option in self.options)
        right = (options[columns["label"]],) if options else tuple(columns["answers"])
        return TaskRow(number, prompt, right, options)

    def task(self, rows: Sequence[Mapping[str, Any]]) -> Task:
        return Task(self.kind, tuple(self.row(number, columns) for number, columns in enumerate(rows, 1)))


TEMPLATES: dict[str, Template] = {
    "sst2": Template("{text} It was", ("terrible", "great")),
    "rte": Template('{premise} Does this mean that "{hypothesis}" is true? Yes or No?', YES_NO),
    "mrpc": Template(
        "Do the following two sentences mean the same thing? Yes or No? Sentence 1: {sentence1} Sentence 2: {sentence2}",
        NO_YES,
    ),
    "qqp": Template(
        "Are these two questions asking the same thing? Yes or No? Question 1: {question1} Question 2: {question2}",
        NO_YES,
    ),
    "qnli": Template(
        "Does this sentence answer the question? Yes or No? Sentence 1: {question} Sentence 2: {sentence}", YES_NO
    ),
    "wnli": Template(
        "Given the first sentence, is the second sentence true? Yes or No? Sentence 1: {sentence1} Sentence 2: {sentence2}",
        NO_YES,
    ),
    "boolq": Template("{passage} {question}?", NO_YES),
    "wsc": Template('{text} In the previous sentence, does the pronoun "{span2_text}" refer to {span1_text}?', NO_YES),
    "wic": Template(
        'Does the word "{word}" have the same meaning in these two sentences? {sentence1} {sentence2} Yes, No?', NO_YES
    ),
    "multirc": Template(
        '{paragraph} Question: {question} I found this answer "{answer}". Is that correct? Yes or No?', NO_YES
    ),
    "copa": Template(
        "{premise} {conjunction}", options=("{choice1}", "{choice2}")
    ),  # so, because: by what is asked for
    "winogrande": Template("{context}", options=("{option1} {rest}", "{option2} {rest}")),
    "arc": Template(
        "Pick the most correct option to answer the following question: {question} Options: {op1}, {op2}, {op3}, {op4} Answer:",
        options=("{op1}", "{op2}", "{op3}", "{op4}"),
    ),
    "squad": Template("Title: {title} Context: {context} Question: {question} Answer:"),
}
