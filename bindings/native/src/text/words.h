// SPDX-License-Identifier: Apache-2.0
// Where a text is cut into words, within which merges happen (a pre-tokenizer).
#pragma once

#include <string_view>

#include "text/tokenizer_file.h"

namespace bespoke {

constexpr std::string_view kSpaceSign = "\xe2\x96\x81";  // U+2581, SentencePiece's sign for a space

// Bytes of the word that `text` begins with. `text` is not empty, sound UTF-8 and reaches to the next added token.
size_t word_size(const TokenizerFile& file, std::string_view text);

// Where digits are words of their own: bytes up to the next one, or of the one that `text` begins with.
size_t size_to_digit(const TokenizerFile& file, std::string_view text);

}  // namespace bespoke
