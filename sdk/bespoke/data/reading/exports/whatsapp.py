# SPDX-License-Identifier: Apache-2.0
"""The text file that WhatsApp writes of a chat.

    12/31/23, 9:15 PM - Name: text      Android
    [31.12.23, 21:15:03] Name: text     iOS

A line that begins like no message goes on with the one before it. Dates are in the order of the phone's language, and the whole
file decides which: a number over 12 is no month; else the order in which time goes backwards least often, the day in front of
the month where both do as often.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bespoke.data.reading.exports.names import Written, as_conversations
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
_APP = "\u200e"  # in front of a text: the app's own
_ORDERS = ((2, 1, 0), (2, 0, 1), (0, 1, 2))  # places of year, month and day: day first, month first, year first
NOTICES, DELETIONS, FILES = "notices of the app", "deleted messages", "images and other files"
EMPTY, BEGINNING = "messages without words", "lines before the first message"


class _Stamp(NamedTuple):
    """The three numbers of a date as they stand, and the second of the day."""

    date: tuple[int, int, int]
    seconds: int


def begins_like_whatsapp(lines: Iterable[str]) -> bool:
    """Whether the first of the lines that is not empty is one of WhatsApp, and a message with its writer is among them."""
    written = [line for line in lines if line.strip()]
    for style in (_ANDROID, _IOS):
        headers = [_header(line, style) for line in written]
        if headers and headers[0] is not None:
            return any(header is not None and ": " in header[1] for header in headers)
    return False


def whatsapp(
    path: Path, me: str | None, left_out: Counter[str], encoding: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(1, conversation). My words are the assistant's, everybody else's the user's. DataError for a file of no such chat."""
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
        one
        for stamp, lines in messages
        if (one := _written("\n".join(lines), _seconds(stamp, order), left_out)) is not None
    ]
    writers = Counter(one.writer for one in chat)
    kept = [
        one for one in chat if writers[one.writer] > 1 or not _QUOTES & set(one.writer)
    ]  # a group renamed to "a: b"
    left_out[NOTICES] += len(chat) - len(kept)
    yield from as_conversations([kept], str(path), me, left_out)


def _messages(lines: Iterable[str], left_out: Counter[str]) -> list[tuple[_Stamp, list[str]]]:
    """(stamp, lines) of each message; the first line without the stamp."""
    found: list[tuple[_Stamp, list[str]]] = []
    style: re.Pattern[str] | None = None
    for text in lines:
        header = None
        for one in (_ANDROID, _IOS) if style is None else (style,):  # a quoted line of another phone is text
            header = _header(text, one)
            if header is not None:
                style = one
                break
        if header is not None:
            found.append((header[0], [header[1]]))
        elif found:
            found[-1][1].append(text)
        else:
            left_out[BEGINNING] += bool(text.strip())
    return found


def _header(text: str, style: re.Pattern[str]) -> tuple[_Stamp, str] | None:
    """The stamp that a line begins with, and what is behind it."""
    bare = text[:100].translate(_MARKS).translate(_SPACES)  # the stamp alone: a text keeps its marks
    found = style.match(bare)
    if found is None:
        return None
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["sec"] or 0)
    half = half_of_day(found["after"] or found["before"])
    hour = hour if half is None else hour % 12 + half
    stamp = _Stamp((int(found["first"]), int(found["second"]), int(found["third"])), hour * 3600 + minute * 60 + second)
    if hour > 23 or minute > 59 or second > 59 or all(_seconds(stamp, order) is None for order in _ORDERS):
        return None
    return stamp, _behind(text, found.start("rest"))


def _behind(text: str, length: int) -> str:
    """`text` behind so many characters that are no marks."""
    seen = 0
    for position, character in enumerate(text):
        if seen == length:
            return text[position:]
        seen += ord(character) not in _MARKS
    return ""


def _order(stamps: Sequence[_Stamp]) -> tuple[int, int, int]:
    """The order of the fewest dates that are none, then of the fewest steps back in time, then the first in the list."""

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


def _written(message: str, seconds: float | None, left_out: Counter[str]) -> Written | None:
    """A message without its stamp: a name, a colon and the text. Without a name it is a notice, in any language."""
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
    return Written(writer, text, seconds)
