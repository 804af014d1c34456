# SPDX-License-Identifier: Apache-2.0
"""Reader for the text file that WhatsApp exports of a chat.

    12/31/23, 9:15 PM - Name: text      Android
    [31.12.23, 21:15:03] Name: text     iOS

A line that does not begin like a message continues the message before it.

The phone's language sets the order of day, month and year, and the whole file decides which it is. The order with the fewest
impossible dates wins, since a number over 12 is not a month. Then the order wins in which time goes backwards least often. In a
tie the day comes before the month.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bespoke.data.reading.exports.names import NamedMessage, as_conversations
from bespoke.data.reading.exports.whatsapp_words import (
    ACTION,
    DELETED,
    EDITED,
    FILE,
    FILE_LINE,
    NOTICE,
    half_of_day,
    is_omitted,
)
from bespoke.data.reading.text_lines import MOST_BYTES, text_lines
from bespoke.errors import DataError

__all__ = ["begins_like_whatsapp", "whatsapp"]

_MARKS = dict.fromkeys([*range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF])
_SPACES = {0xA0: " ", 0x202F: " ", 0x2009: " "}
_STAMP = (
    r"(?P<first>\d{1,4})(?:[./-]|\. |年 ?)(?P<second>\d{1,2})(?:[./-]|\. |月 ?)(?P<third>\d{1,4})[.日]?,?"
    r"(?: (?:klo|kl\.|um|at|às|a las|à))?,? (?P<before>[^\d\s\[\]:/.,-]{1,12}\.? ?)?(?P<hour>\d{1,2})[:.](?P<minute>\d{2})"
    r"(?:[:.](?P<sec>\d{2}))?(?: ?(?P<after>[^\d\s\[\]:/-]{1,12}(?: ?m\.?)?))?"
)
_ANDROID = re.compile(_STAMP + r" [-–] (?P<rest>.*)", re.DOTALL)
_IOS = re.compile(r"\[" + _STAMP + r"\] (?P<rest>.*)", re.DOTALL)
_QUOTES = frozenset('"“”„«»')
_APP = "\u200e"  # before a text that the app wrote itself
_ORDERS = ((2, 1, 0), (2, 0, 1), (0, 1, 2))  # places of year, month and day: day first, month first, year first
NOTICES, DELETIONS, FILES = "notices of the app", "deleted messages", "images and other files"
EMPTY, BEGINNING = "messages without words", "lines before the first message"


class _Stamp(NamedTuple):
    """The three numbers of a date in the order of the file, and the second of the day."""

    date: tuple[int, int, int]
    seconds: int


def begins_like_whatsapp(lines: Iterable[str]) -> bool:
    """Whether the first line with text has WhatsApp's stamp, and one of the lines names a writer."""
    written = [line for line in lines if line.strip()]
    for style in (_ANDROID, _IOS):
        headers = [_header(line, style) for line in written]
        if headers and headers[0] is not None:
            return any(header is not None and ": " in header[1] for header in headers)
    return False


def whatsapp(
    path: Path, me: str | None, left_out: Counter[str], encoding: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (1, conversation). The words of `me` become the assistant's, all others the user's.

    DataError for a file without any message.
    """
    messages = _messages((line.rstrip("\r\n") for _, line in text_lines(path, encoding, MOST_BYTES)), left_out)
    if not messages:
        raise DataError(
            str(path),
            got="no line that begins with a date, a time and a name",
            expected="a chat as WhatsApp exports it",
            next_step="Check that the file is an export of WhatsApp",
        )

    order = _order([stamp for stamp, _ in messages])
    chat = [
        message
        for stamp, lines in messages
        if (message := _written("\n".join(lines), _seconds(stamp, order), left_out)) is not None
    ]

    # A notice that a group was renamed to "a: b" looks like a message of a writer with quotes in the name.
    writers = Counter(message.writer for message in chat)
    kept = [message for message in chat if writers[message.writer] > 1 or not _QUOTES & set(message.writer)]
    left_out[NOTICES] += len(chat) - len(kept)

    yield from as_conversations([kept], str(path), me, left_out)


def _messages(lines: Iterable[str], left_out: Counter[str]) -> list[tuple[_Stamp, list[str]]]:
    """(stamp, lines) of each message. The first line is without its stamp."""
    messages: list[tuple[_Stamp, list[str]]] = []
    style: re.Pattern[str] | None = None
    for text in lines:
        header = None
        # The first message decides the style: a line of the other phone's style is quoted text.
        for candidate in (_ANDROID, _IOS) if style is None else (style,):
            header = _header(text, candidate)
            if header is not None:
                style = candidate
                break

        if header is not None:
            stamp, first_line = header
            messages.append((stamp, [first_line]))
        elif messages:
            messages[-1][1].append(text)
        else:
            left_out[BEGINNING] += bool(text.strip())
    return messages


def _header(text: str, style: re.Pattern[str]) -> tuple[_Stamp, str] | None:
    """The stamp at the beginning of a line and the rest of the line, None if it has no stamp."""
    bare = text[:100].translate(_MARKS).translate(_SPACES)  # the stamp alone: a text keeps its marks
    match = style.match(bare)
    if match is None:
        return None

    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["sec"] or 0)
    half = half_of_day(match["after"] or match["before"])
    hour = hour if half is None else hour % 12 + half
    date_numbers = (int(match["first"]), int(match["second"]), int(match["third"]))
    stamp = _Stamp(date_numbers, hour * 3600 + minute * 60 + second)

    if hour > 23 or minute > 59 or second > 59 or all(_seconds(stamp, order) is None for order in _ORDERS):
        return None
    return stamp, _behind(text, match.start("rest"))


def _behind(text: str, length: int) -> str:
    """The rest of `text` after `length` characters. Marks of direction do not count."""
    seen = 0
    for position, character in enumerate(text):
        if seen == length:
            return text[position:]
        seen += ord(character) not in _MARKS
    return ""


def _order(stamps: Sequence[_Stamp]) -> tuple[int, int, int]:
    """The order with the fewest impossible dates, then the fewest steps back in time, then the first in `_ORDERS`."""

    def faults(order: tuple[int, int, int]) -> tuple[int, int]:
        times = [_seconds(stamp, order) for stamp in stamps]
        known = [time for time in times if time is not None]
        return len(times) - len(known), sum(after < before for before, after in pairwise(known))

    return min(_ORDERS, key=faults)


def _seconds(stamp: _Stamp, order: tuple[int, int, int]) -> float | None:
    year, month, day = (stamp.date[place] for place in order)
    try:
        return float(date(year + 2000 if year < 100 else year, month, day).toordinal() * 86400 + stamp.seconds)
    except ValueError:
        return None


def _written(message: str, seconds: float | None, left_out: Counter[str]) -> NamedMessage | None:
    """Splits a message without its stamp into a writer and a text; None if no words of a person are left.

    A message is a name, a colon and the text. Without a name it is a notice of the app, in any language.
    """
    head, _, more = message.partition("\n")
    name, colon, text = f"{head} ".partition(": ")
    writer = name.translate(_MARKS).translate(_SPACES).strip().removeprefix("~").strip()
    if not colon or not writer or ACTION.fullmatch(writer):
        left_out[NOTICES] += 1
        return None

    text = EDITED.sub("", f"{text[:-1]}\n{more}" if more else text[:-1])
    bare = " ".join(text.translate(_MARKS).translate(_SPACES).split())
    if bare.rstrip(".").casefold() in DELETED:
        left_out[DELETIONS] += 1
        return None
    if is_omitted(bare):
        left_out[FILES] += 1
        return None

    text, files = FILE.subn("", text)
    head, _, more = text.partition("\n")
    if FILE_LINE.fullmatch(head.strip()):
        text, files = more, files + 1
    left_out[FILES] += files

    if (text.startswith(_APP) and not files) or NOTICE.fullmatch(bare):
        left_out[NOTICES] += 1
        return None
    text = text.translate(_MARKS).strip()
    if not text:
        left_out[EMPTY] += not files
        return None
    return NamedMessage(writer, text, seconds)
