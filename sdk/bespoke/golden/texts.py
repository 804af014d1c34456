# SPDX-License-Identifier: Apache-2.0
"""Texts that tell tokenizers apart: a fixed list of awkward ones, and mixtures of their parts drawn by counter.

Tokens are those that a user's words become, in which no special token is recognised; `tokenizers` itself makes them.
"""

from __future__ import annotations

from bespoke.data.text import Tokenizer
from bespoke.errors import DataError
from bespoke.golden.document import MAX_TEXTS, GoldenText
from bespoke.rules.noise import Stream, philox

__all__ = ["golden_texts"]

_PLAIN = (
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "I'll be there at 7:30, won't you?",
    "a",
    "A",
    "x y z",
    "It's 21.5 °C outside; yesterday it was 19,8.",
    "Call +49 (0)30 1234-5678 or write to mail@example.org.",
    "O'Neill said: 'No.'",
    "Mississippi",
    "antidisestablishmentarianism",
    "WHY ARE YOU SHOUTING",
    "iPhone's eBay McDonald",
    "1234567890",
    "3.14159265358979",
    "1,000,000",
    "0x7fff",
    "2026-11-21T16:43:14Z",
    "https://example.org/a/b?c=d&e=%20f#g",
    "#hashtag @handle",
    "etc. e.g. i.e. U.S.A.",
    "co-operate re-use -- dash – en — em",
    "“quoted” ‘single’ «guillemets» „unten“",
    "…",
    "?!?!",
    "$5.00 €6 £7 ¥8 ₹9",
    "50% off!",
)
_SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "\u00a0",
    "\u2003",
    "\u200b",
    "\u3000",
    " leading",
    "trailing ",
    "  two  gaps  ",
    "tab\tseparated\tvalues",
    "line one\nline two\n\nline four\n",
    "windows\r\nlines\r\n",
    "nbsp\u00a0here",
    "zero\u200bwidth",
    "\ufeffmark",
    "mixed \t \n \t end",
    "        indented by eight",
)
_UNICODE = (
    "naïve café Zürich Łódź Škoda",
    "cafe\u0301 with a combining accent",
    "Straße GROẞ",
    "İstanbul ısı",
    "ﬁne ﬂow",
    "Ｆｕｌｌ ｗｉｄｔｈ",
    "Привет, как дела?",
    "Καλημέρα κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好，世界。",
    "こんにちは、世界！",
    "カタカナとひらがな",
    "안녕하세요 세계",
    "Xin chào thế giới",
    "ქართული ენა",
    "አማርኛ",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
    "𠜎𠜱𠝹",
    "x² + y₃ ≤ ∞",
    "∀x∈ℝ: ⌈x⌉ ≥ x",
    "→ ← ⇒ ∴",
    "😀",
    "👍🏽",
    "👩‍👩‍👧‍👦",
    "🇩🇪🇫🇷",
    "❤️ vs ❤",
    "emoji😀inside🎉words",
    "\U0010ffff",
    "\x01\x02",
    "del\x7f",
    "e\u0301e\u0300e\u0302",
)
_CODE = (
    "def f(x: int) -> int:\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }",
    "if (a && !b || c) {}\n",
    'print(f"{name!r:>10}")',
    "SELECT * FROM t WHERE id = 'x';",
    '<div class="a">&amp;</div>',
    '{"key": [1, 2.5, null, true]}',
    "git commit -m 'fix: #42'",
    "C:\\Users\\me\\file.txt",
    "/usr/local/bin",
    "snake_case camelCase PascalCase kebab-case",
    "a\\nb \\u0041",
    "```python\nx = 1\n```",
    "- [ ] task\n- [x] done",
    "| a | b |\n|---|---|",
    "x=1;y=2;;",
    "#!/bin/sh",
    "((([[[{{{}}}]]])))",
    "==> <== !== ===",
)
_LOOKALIKES = (
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<bos>",
    "<eos>",
    "<|im_start|>user\nhi<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>system<|end_header_id|>",
    "<start_of_turn>model\n",
    "<end_of_turn>",
    "[INST] do [/INST]",
    "<<SYS>>",
    "<|im_end",
    "im_end|>",
    "<tool_call>{}</tool_call>",
    "<0x0A>",
    "▁under▁scores",
    "Ġbyte Ċlevel",
    "##piece",
    "< s >",
    "<think>",
)


def golden_texts(tokenizer: Tokenizer, seed: int) -> list[GoldenText]:
    """At most 500 distinct texts with their tokens; one that a tokenizer cannot keep apart from its special tokens is left out."""
    named = sorted({*tokenizer.special_tokens.values()})
    fixed = [*_PLAIN, *_SPACES, *_UNICODE, *_CODE, *_LOOKALIKES, *named, *(f"a{token}b {token}" for token in named)]
    parts = [part for group in (_PLAIN, _PLAIN, _SPACES, _UNICODE, _CODE, _LOOKALIKES) for part in group]
    words = philox(0, 8 * MAX_TEXTS, (0, Stream.GOLDEN_TOKEN, 1), seed)[0]
    drawn = []
    for number in range(MAX_TEXTS):
        count, *picks = (int(word) for word in words[8 * number : 8 * number + 8])
        joint = (" ", "", "\n")[count // 8 % 3]
        drawn.append(joint.join(parts[pick % len(parts)] for pick in picks[: 2 + count % 4]))
    golden: list[GoldenText] = []
    for text in dict.fromkeys([*fixed, *drawn]):
        if len(golden) == MAX_TEXTS:
            break
        try:
            golden.append(GoldenText(text=text, ids=tokenizer.encode(text)))
        except DataError:
            continue
    return golden
