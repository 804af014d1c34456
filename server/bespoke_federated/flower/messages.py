# SPDX-License-Identifier: Apache-2.0
"""Orders and answers in Flower's messages: one text of JSON each."""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict
from pydantic import ValidationError

from bespoke_federated.led.documents import Order, Refusal, Standing

__all__ = ["answer_of", "order_of", "packed"]

RECORD, TEXT = "bespoke", "document"


def packed(document: Order | Standing | Refusal) -> RecordDict:
    """A document as a message's content."""
    return RecordDict({RECORD: ConfigRecord({TEXT: document.model_dump_json()})})


def order_of(content: RecordDict) -> Order:
    """The order in a message's content."""
    return Order.model_validate_json(_text(content))


def answer_of(content: RecordDict) -> Standing | Refusal:
    """The answer in a message's content."""
    text = _text(content)
    try:
        return Standing.model_validate_json(text)
    except ValidationError:
        return Refusal.model_validate_json(text)


def _text(content: RecordDict) -> str:
    return str(content.config_records[RECORD][TEXT])
