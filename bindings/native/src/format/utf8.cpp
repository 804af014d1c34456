// SPDX-License-Identifier: Apache-2.0
#include "format/utf8.h"

namespace bespoke {

Utf8Beginning beginning_of(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {Utf8Beginning::kCharacter, 1};
  if (first < 0xc2 || first > 0xf4) return {Utf8Beginning::kBroken, 1};
  const size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < size; i++) {
    if (i == bytes.size()) return {Utf8Beginning::kUnfinished, i};
    // The second byte decides about overlong forms, surrogates and what is above U+10FFFF.
    const uint8_t least = i > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = i > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return {Utf8Beginning::kBroken, i};
  }
  return {Utf8Beginning::kCharacter, size};
}

}  // namespace bespoke
