# SPDX-License-Identifier: Apache-2.0
"""Texts that WhatsApp itself writes into an export: notices, marks of files and of deleted messages.

The mark U+200E before such a text is the same in every language. iOS always writes it, Android writes it for files. The words
below serve exports without the mark, and Android's notices, which have no sender. They cover the languages of most users.
"""

from __future__ import annotations

import re

__all__ = ["ACTION", "DELETED", "EDITED", "FILE", "FILE_LINE", "NOTICE", "half_of_day", "is_omitted"]

_NAMED_FILE = (
    "file attached|Datei angehängt|archivo adjunto|fichier joint|arquivo anexado|file allegato|bestand bijgevoegd|"
    "bifogad fil|plik załączony|файл добавлен|dosya ekli|添付ファイル|文件附件"
)
# A file with its name. A caption may stand before or behind it.
FILE_LINE = re.compile(
    rf"\u200e?[^\n]+\.\w{{2,5}} \((?:{_NAMED_FILE})\)|"
    r"\u200e?(?:IMG|VID|AUD|PTT|STK|DOC)-\d{8}-WA\d+\.\w{2,5} \([^()\n]+\)"
)
FILE = re.compile(r"\u200e<[^<>\n:]{1,40}: [^<>\n]+>|<attached: [^<>\n]+>")
_WAS_EDITED = (
    "This message was edited|Diese Nachricht wurde bearbeitet|Se editó este mensaje|Este mensaje fue editado|"
    "Ce message a été modifié|Mensagem editada|Questo messaggio è stato modificato|Dit bericht is bewerkt"
)
EDITED = re.compile(rf"\s?\u200e<[^<>\n:]{{4,60}}>$|\s?<(?:{_WAS_EDITED})\.?>$")
_MOST_OF_A_MARK = 100  # characters
_PICTURE = (
    "image|video|audio|GIF|sticker|document|contact card|video note|Bild|Dokument|Kontaktkarte|Videonotiz|imagen|vídeo|documento|"
    "foto|vidéo|document|carte de contact|imagem|figurinha|immagine|afbeelding|contactkaart"
)
_OMITTED = re.compile(
    r"<(?:[^<>\n]*[ \u3040-\u9fff\uac00-\ud7af][^<>\n]*)>|(?-i:null)|"
    rf"(?:{_PICTURE}) (?:omitted|weggelassen|omitid[oa]|omise?|ocult[oa]|omess[oa]|weggelaten)",
    re.IGNORECASE,
)
# Notices that look like a writer's name because the new subject holds a colon: "Anna changed the subject to ...: ...".
ACTION = re.compile(
    r".+ (?:joined using|created (?:this )?group|changed the (?:subject|group|description)|changed this group|changed to|added|"
    r"hat die Gruppe|hat den Betreff|cambió el asunto|a changé le sujet|mudou o nome|ha cambiato l'oggetto)\b.*"
)
# Notices that stand as the text of a message.
NOTICE = re.compile(
    r"(?:Messages and calls are end-to-end encrypted|Messages to this (?:chat|group) (?:and calls )?are (?:now )?secured|"
    r"Nachrichten und Anrufe sind Ende-zu-Ende-verschlüsselt|Los mensajes y las llamadas están cifrados de extremo a extremo|"
    r"Les messages et les appels sont chiffrés de bout en bout|As mensagens e as ligações são protegidas com a criptografia|"
    r"I messaggi e le chiamate sono crittografati end-to-end|Berichten en oproepen zijn end-to-end versleuteld).*"
    r"|Missed (?:group )?(?:voice|video) call(?:[.,] .*| at .*)?|Verpasster (?:Sprach|Video)anruf(?:[.,] .*| um .*)?"
)
DELETED = frozenset(
    {
        "this message was deleted",
        "you deleted this message",
        "diese nachricht wurde gelöscht",
        "du hast diese nachricht gelöscht",
        "se eliminó este mensaje",
        "eliminaste este mensaje",
        "este mensaje fue eliminado",
        "ce message a été supprimé",
        "vous avez supprimé ce message",
        "mensagem apagada",
        "você apagou esta mensagem",
        "essa mensagem foi apagada",
        "questo messaggio è stato eliminato",
        "hai eliminato questo messaggio",
        "dit bericht is verwijderd",
        "je hebt dit bericht verwijderd",
    }
)

_MORNING = {"am", "a", "上午", "凌晨", "早上", "午前", "오전", "ص", "πμ", "öö", "de", "sa", "dop", "पूर्वाह्न"}
_AFTERNOON = {"pm", "p", "下午", "晚上", "中午", "午後", "오후", "م", "μμ", "ös", "du", "ch", "odp", "अपराह्न"}


def is_omitted(text: str) -> bool:
    """Whether the text of a message only says that a file was not exported."""
    return len(text) <= _MOST_OF_A_MARK and _OMITTED.fullmatch(text) is not None


def half_of_day(word: str | None) -> int | None:
    """The hours that a word like "am" or "pm" adds: 0 or 12. None for no word, or one that is neither."""
    plain = "".join(character for character in (word or "").casefold() if character not in " .")
    if plain in _MORNING:
        return 0
    return 12 if plain in _AFTERNOON else None
