# SPDX-License-Identifier: Apache-2.0
"""Chats that are written as WhatsApp writes them on phones of many languages, and read back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import read_examples
from bespoke.data.reading.exports.kinds import read_export
from bespoke.errors import ConfigError, DataError

LRM = "\u200e"
Stamp = Callable[[datetime], str]


def half(when: datetime, morning: str, afternoon: str) -> str:
    return morning if when.hour < 12 else afternoon


@dataclass(frozen=True)
class Phone:
    """`order`: whether its dates have the day, the month or the year first."""

    name: str
    order: str
    header: Stamp  # all in front of the name
    marks_files: bool = False  # iOS puts U+200E in front of what is its own


def hour12(when: datetime) -> int:
    return when.hour % 12 or 12


PHONES = [
    Phone("Android, US", "month", lambda w: f"{w.month}/{w.day}/{w:%y}, {hour12(w)}:{w:%M} {half(w, 'AM', 'PM')} - "),
    Phone(
        "Android, US, narrow space",
        "month",
        lambda w: f"{w.month}/{w.day}/{w:%y}, {hour12(w)}:{w:%M}\u202f{half(w, 'AM', 'PM')} - ",
    ),
    Phone("Android, UK", "day", lambda w: f"{w:%d/%m/%Y, %H:%M} - "),
    Phone("Android, Germany", "day", lambda w: f"{w:%d.%m.%y, %H:%M} - "),
    Phone("Android, India", "day", lambda w: f"{w:%d/%m/%y}, {hour12(w)}:{w:%M} {half(w, 'am', 'pm')} - "),
    Phone("Android, Spain", "day", lambda w: f"{w.day}/{w.month}/{w:%y}, {w.hour}:{w:%M} - "),
    Phone("Android, Mexico", "day", lambda w: f"{w:%d/%m/%y}, {hour12(w)}:{w:%M}\xa0{half(w, 'a. m.', 'p. m.')} - "),
    Phone(
        "Android, Colombia",
        "day",
        lambda w: f"{w.day}/{w.month}/{w:%Y}, {hour12(w)}:{w:%M} {half(w, 'a.m.', 'p.m.')} - ",
    ),
    Phone("Android, Brazil", "day", lambda w: f"{w:%d/%m/%Y %H:%M} - "),
    Phone("Android, Netherlands", "day", lambda w: f"{w:%d-%m-%Y %H:%M} - "),
    Phone("Android, Sweden", "year", lambda w: f"{w:%Y-%m-%d %H:%M} - "),
    Phone("Android, Finland", "day", lambda w: f"{w.day}.{w.month}.{w:%Y} klo {w.hour}.{w:%M} - "),
    Phone(
        "Android, China", "year", lambda w: f"{w.year}/{w.month}/{w.day} {half(w, '上午', '下午')}{hour12(w)}:{w:%M} - "
    ),
    Phone("Android, Japan", "year", lambda w: f"{w:%Y/%m/%d} {w.hour}:{w:%M} - "),
    Phone("iOS, Germany", "day", lambda w: f"[{w:%d.%m.%y, %H:%M:%S}] ", True),
    Phone(
        "iOS, US",
        "month",
        lambda w: f"[{w.month}/{w.day}/{w:%y}, {hour12(w)}:{w:%M:%S}\u202f{half(w, 'AM', 'PM')}] ",
        True,
    ),
    Phone("iOS, France", "day", lambda w: f"[{w:%d/%m/%Y %H:%M:%S}] ", True),
    Phone(
        "iOS, Australia",
        "day",
        lambda w: f"[{w.day}/{w.month}/{w:%Y}, {hour12(w)}:{w:%M:%S} {half(w, 'am', 'pm')}] ",
        True,
    ),
    Phone(
        "iOS, Korea",
        "year",
        lambda w: f"[{w.year}. {w.month}. {w.day}. {half(w, '오전', '오후')} {hour12(w)}:{w:%M:%S}] ",
        True,
    ),
    Phone("iOS, Japan", "year", lambda w: f"[{w:%Y/%m/%d} {w.hour}:{w:%M:%S}] ", True),
    Phone("iOS, Sweden", "year", lambda w: f"[{w:%Y-%m-%d, %H:%M:%S}] ", True),
]
BY_NAME = {phone.name: phone for phone in PHONES}
ME, OTHERS = "Jonas", ("Mia 🦊", "Dr. O'Hara-Łąka", "+49 170 1234567")
WORDS = (
    "Soup with leeks.",
    "ok",
    "at 9:15 - or later",
    "see: this, and: that",
    "two\nlines",
    "gap\n\nafter",
    "[not a date] x",
    "<3",
    "50/50",
    "שלום",
    "10/12",
)


def read(path: Path, me: str | None = ME) -> tuple[list[dict[str, Any]], Counter[str]]:
    left_out: Counter[str] = Counter()
    found = [one for _, one in read_export(path, "whatsapp", me, left_out)]
    return found, +left_out


def expected(chat: list[tuple[datetime, str, str]]) -> list[dict[str, Any]]:
    """Turns and pauses written out in another way than the product's: by a walk over pairs of neighbours."""
    parts: list[list[tuple[str, str]]] = []
    last: tuple[datetime, str] | None = None
    for when, writer, text in chat:
        role = "assistant" if writer == ME else "user"
        late = last is not None and when - last[0] > timedelta(hours=4)
        if last is None or (late and not (role == "assistant" and last[1] == "user")):
            parts.append([])
        last = (when, role)
        if parts[-1] or role == "user":
            parts[-1].append((role, text))
    found = []
    for part in parts:
        if all(role == "user" for role, _ in part):
            continue
        turns: list[dict[str, Any]] = []
        for role, text in part:
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += f"\n{text}"
            else:
                turns.append({"role": role, "content": text})
        found.append({"messages": turns})
    return found


@pytest.mark.parametrize("phone", PHONES, ids=lambda phone: phone.name)
@pytest.mark.parametrize("seed", range(6))
def test_a_chat_of_any_phone_comes_back(tmp_path: Path, phone: Phone, seed: int) -> None:
    chance = random.Random(seed)
    when = datetime(2023, 12, 20, 9, 15) + timedelta(minutes=chance.randrange(10_000))
    chat, lines, files, notices = [], [], 0, 0
    for _ in range(80):
        when += timedelta(minutes=chance.choice([0, 1, 7, 90, 300, 2000]))
        stamp = phone.header(when)
        if chance.random() < 0.1:
            name = chance.choice((ME, *OTHERS))
            lines.append(
                f"{LRM}{stamp}{name}: {LRM}Bild weggelassen" if phone.marks_files else f"{stamp}{name}: <Media omitted>"
            )
            files += 1
        if chance.random() < 0.05:
            lines.append(f"{stamp}{OTHERS[0]}: {LRM}قام بتغيير" if phone.marks_files else f"{stamp}Mia lisäsi sinut")
            notices += 1
        writer, text = chance.choice((ME, ME, *OTHERS)), chance.choice(WORDS)
        chat.append((when, writer, text))
        mark = LRM if phone.marks_files and chance.random() < 0.3 else ""
        lines.append(f"{mark}{stamp}{writer}: {text}")
    path = tmp_path / "_chat.txt"
    path.write_text(("\r\n" if phone.marks_files else "\n").join(lines), encoding="utf-8", newline="")
    found, left_out = read(path)
    assert found == expected(chat)
    assert (left_out["images and other files"], left_out["notices of the app"]) == (files, notices)
    with pytest.raises(DataError, match=r"an export of WhatsApp.*bespoke read _chat\.txt --as whatsapp --me NAME"):
        list(read_examples(path))


@pytest.mark.parametrize(
    ("phone", "days", "order"),
    [
        (
            "Android, UK",
            [(2, 1), (3, 1), (4, 1)],
            "day",
        ),  # as months they go forward too, a month each: the day is first
        ("Android, US", [(31, 1), (1, 2)], "month"),  # 31 is no month
        ("Android, US", [(9, 1), (10, 1), (1, 2), (2, 2)], "month"),  # days first, time would go back
        ("iOS, US", [(1, 3), (12, 3), (1, 4)], "month"),
    ],
)
def test_the_order_of_dates_is_decided_over_the_file(
    tmp_path: Path, phone: str, days: list[tuple[int, int]], order: str
) -> None:
    """Seen by the pauses: two messages of a day are one conversation, those of two days are two."""
    assert BY_NAME[phone].order == order
    lines = []
    for day, month in days:
        evening = datetime(2023, month, day, 23, 50)
        for when, writer in (
            (evening, OTHERS[0]),
            (evening + timedelta(minutes=5), ME),
            (evening + timedelta(minutes=20), OTHERS[0]),
        ):
            lines.append(f"{BY_NAME[phone].header(when)}{writer}: {when:%d}")
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    found, _ = read(tmp_path / "a.txt")
    # The last of an evening is after midnight, so it is one with the day before only where the date is understood.
    assert len(found[0]["messages"]) == 3
    assert found[0]["messages"][2]["content"].startswith(f"{days[0][0] % 31 + 1:02}")


NOTHING = [
    "This message was deleted",
    "You deleted this message",
    "Diese Nachricht wurde gelöscht.",
    "Se eliminó este mensaje",
    "Ce message a été supprimé",
    "Mensagem apagada",
    "<Media omitted>",
    "<Medien ausgeschlossen>",
    "<Multimedia omitido>",
    "<Médias omis>",
    "<Arquivo de mídia oculto>",
    "image omitted",
    "GIF omitted",
    "video weggelassen",
    "IMG-20231231-WA0001.jpg (file attached)",
    "STK-20231231-WA0001.webp (bestand bijgevoegd)",
    f"{LRM}image omitted",
    f"{LRM}<attached: 00000001-PHOTO-2023.jpg>",
    f"{LRM}<Anhang: 00000001-PHOTO.jpg>",
    f"{LRM}Verpasster Anruf",
    "report.pdf (file attached)",
    "null",
    "Missed voice call",
    "",
    "Messages and calls are end-to-end encrypted. No one outside of this chat can read them.",
]
KEPT = [
    ("photo (file attached)", "photo (file attached)"),
    ("I was added to the list", "I was added to the list"),
    ("<b>", "<b>"),
    ("I joined using a link, he changed the subject to: x", "I joined using a link, he changed the subject to: x"),
    ("is it end-to-end encrypted?", "is it end-to-end encrypted?"),
    ("I have omitted the image", "I have omitted the image"),
    ("IMG-20231231-WA0001.jpg (file attached)\nThe boat", "The boat"),
    (f"The boat {LRM}<attached: 1-PHOTO.jpg>", "The boat"),
    (f"Late. {LRM}<This message was edited>", "Late."),
    ("Late. <This message was edited>", "Late."),
    (f"Spät. {LRM}<Diese Nachricht wurde bearbeitet.>", "Spät."),
    ("@\u2068Mia\u2069 hi", "@Mia hi"),
    ("a: b: c", "a: b: c"),
    ("x\n12/31/23, 9:15 PM - Mia: quoted", "x\n12/31/23, 9:15 PM - Mia: quoted"),
]


@pytest.mark.parametrize("text", NOTHING)
def test_what_the_app_writes_is_left_out_and_counted(tmp_path: Path, text: str) -> None:
    stamp = "[31.12.23, 21:15:03] "
    lines = [f"{stamp}{OTHERS[0]}: Where?", f"{stamp}{ME}: Here.", f"{stamp}{ME}: {text}", f"{stamp}{ME}: There."]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    found, left_out = read(tmp_path / "a.txt")
    assert [turn["content"] for turn in found[0]["messages"]] == ["Where?", "Here.\nThere."]
    assert sum(left_out.values()) == 1


@pytest.mark.parametrize(("text", "kept"), KEPT)
def test_words_of_people_are_kept(tmp_path: Path, text: str, kept: str) -> None:
    stamp = "[31.12.23, 21:15:03] "
    (tmp_path / "a.txt").write_text(f"{stamp}{OTHERS[0]}: Where?\n{stamp}{ME}: {text}\n", encoding="utf-8")
    found, _ = read(tmp_path / "a.txt")
    assert found[0]["messages"][1]["content"] == kept


@pytest.mark.parametrize(
    "notice",
    [
        'Mia changed the subject to "Party: at 8"',
        "Mia changed the group name from “Old: x” to “New: y”",
        "Jonas created group “A: b”",
        "Mia joined using this group's invite link",
        "Vous avez été ajouté",
    ],
)
def test_notices_without_a_sender_are_left_out(tmp_path: Path, notice: str) -> None:
    stamp = "12/31/23, 9:15 PM - "
    lines = [f"{stamp}{notice}", f"{stamp}Mia: Where?", f"{stamp}{ME}: Here."]
    (tmp_path / "a.txt").write_text("\n".join(["", "WhatsApp Chat with Mia", *lines]), encoding="utf-8")
    found, left_out = read(tmp_path / "a.txt")
    assert [turn["content"] for turn in found[0]["messages"]] == ["Where?", "Here."]
    assert left_out == {"notices of the app": 1, "lines before the first message": 1}


def test_me_is_named_as_a_person_would_and_else_the_names_are_listed(tmp_path: Path) -> None:
    stamp = "31.12.23, 21:15 - "
    names = ["~\u202fMia 🦊", "\u202a+49 170 1234567\u202c", "Zoe\u0308", *(f"Guest {number}" for number in range(40))]
    lines = [f"{stamp}{name}: hi" for name in ("Ann", *names) for _ in range(2)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    for me in ("Zoë", "zoë", "Mia 🦊", "+49\xa0170 1234567", "Guest 3"):
        assert "assistant" in str(read(tmp_path / "a.txt", me)[0])
    for wrong in (None, "Mia", "", "x" * 10**6):
        with pytest.raises(ConfigError) as caught:
            read(tmp_path / "a.txt", wrong)
        assert "'Ann', 'Mia 🦊', '+49 170 1234567'" in caught.value.expected
        assert "and 32 more" in caught.value.expected
        assert len(str(caught.value)) < 2000


def test_a_chat_is_one_text_where_that_is_asked_for_and_a_diary_is_no_chat(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    chat = "31.12.23, 21:15 - Mia: Where?\n31.12.23, 21:16 - Jonas: Here.\n"
    path.write_text(chat, encoding="utf-8")
    with pytest.raises(DataError, match=r"to learn it as one text, name the format text"):
        list(read_examples(path))
    assert list(read_examples(path, "text")) == [(1, {"text": chat})]
    for diary in ("31.12.23, 21:15 - late again\n1.1.24, 9:00 - up\n", "Dear diary\n" + chat, "12:15 lunch: soup\n"):
        path.write_text(diary, encoding="utf-8")
        assert list(read_examples(path)) == [(1, {"text": diary})]


def test_a_file_of_no_chat_is_refused(tmp_path: Path) -> None:
    for content in ("", "Dear diary\n", "12/31/23\n", "99/99/99, 9:15 PM - Mia: hi", "31.12.23, 25:15 - Mia: hi"):
        (tmp_path / "a.txt").write_text(content, encoding="utf-8")
        with pytest.raises(DataError, match="expected a chat as WhatsApp exports it"):
            read(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_text("12/31/23, 9:15 PM - Jonas: alone\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"no conversation with an answer \(1 messages of the assistant's side"):
        read(tmp_path / "a.txt")
