// SPDX-License-Identifier: Apache-2.0
// Characters of text that is known to be UTF-8, and of bytes that are not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bespoke {

// The character at `at` of a sound text, and how many bytes it has.
struct Utf8Character {
  uint32_t code;
  uint32_t size;
};

inline Utf8Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

inline void append_character(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

// What bytes begin with: one character, or the longest part of one that nothing can complete any more (each such part is one
// replacement character, as Unicode recommends and Rust does it), or a part that may still become one.
struct Utf8Beginning {
  enum { kCharacter, kBroken, kUnfinished } what;
  size_t size;
};
Utf8Beginning beginning_of(std::string_view bytes);  // of one byte or more

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

}  // namespace bespoke
