// SPDX-License-Identifier: Apache-2.0
// A text is cut before each character that joins nothing before it. A cut of one character that NFC leaves alone is copied; any other
// is decomposed, its marks are put into the order of their combining classes, and what can be composed is composed.
#include "text/nfc.h"

#include <algorithm>
#include <vector>

#include "format/utf8.h"

namespace bespoke {

namespace {

// Syllables of Hangul are composed by a formula (The Unicode Standard, 3.12).
constexpr uint32_t kSyllables = 0xac00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11a7;
constexpr uint32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28, kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

struct Character {
  uint32_t code, order;  // order 0: no mark
};

void decompose(const TokenizerFile& file, uint32_t code, std::vector<Character>& parts) {
  if (code - kSyllables < kSyllableCount) {
    const uint32_t index = code - kSyllables;
    parts.push_back({kLeading + index / (kVowelCount * kTrailingCount), 0});
    parts.push_back({kVowels + index / kTrailingCount % kVowelCount, 0});
    if (index % kTrailingCount) parts.push_back({kTrailing + index % kTrailingCount, 0});
    return;
  }
  const TokenizerFile::Change change = file.change(code);
  if (change.count == 0) return parts.push_back({code, change.order});
  for (uint32_t i = 0; i < change.count; i++) {
    const uint32_t part = file.decomposed(change.begin + i);
    parts.push_back({part, file.change(part).order});
  }
}

uint32_t compose_two(const TokenizerFile& file, uint32_t first, uint32_t second) {
  if (first - kLeading < kLeadingCount && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeading) * kVowelCount + second - kVowels) * kTrailingCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTrailingCount == 0 && second - kTrailing - 1 < kTrailingCount - 1) {
    return first + second - kTrailing;
  }
  return file.composed(first, second);
}

void normalize(const TokenizerFile& file, std::vector<Character>& parts) {
  for (size_t i = 0; i < parts.size();) {
    size_t end = i;
    while (end < parts.size() && parts[end].order) end++;
    std::stable_sort(parts.begin() + static_cast<ptrdiff_t>(i), parts.begin() + static_cast<ptrdiff_t>(end),
                     [](const Character& a, const Character& b) { return a.order < b.order; });
    i = end + 1;
  }
  size_t count = 0, starter = 0;
  bool has_starter = false;
  for (const Character part : parts) {
    if (has_starter) {
      // Between the starter and this one stand only marks that stayed; one of its own class or above blocks it.
      const bool adjacent = count == starter + 1;
      if (adjacent || (parts[count - 1].order < part.order && parts[count - 1].order)) {
        const uint32_t one = compose_two(file, parts[starter].code, part.code);
        if (one != kNoToken) {
          parts[starter].code = one;
          continue;
        }
      }
    }
    if (part.order == 0) {
      starter = count;
      has_starter = true;
    }
    parts[count++] = part;
  }
  parts.resize(count);
}

}  // namespace

std::string_view to_nfc(const TokenizerFile& file, std::string_view text, std::string& kept) {
  constexpr uint8_t kSpecial = TokenizerFile::kJoins | TokenizerFile::kChanges;
  size_t at = 0, before = 0;  // `before`: where the last character began
  for (; at < text.size();) {
    const Utf8Character character = character_at(text, at);
    if (file.classes(character.code) & kSpecial) break;
    before = at;
    at += character.size;
  }
  if (at >= text.size()) return text;

  kept.assign(text.substr(0, before));
  kept.reserve(text.size());
  std::vector<Character> parts;
  for (at = before; at < text.size();) {
    const Utf8Character first = character_at(text, at);
    size_t end = at + first.size;
    while (end < text.size()) {
      const Utf8Character next = character_at(text, end);
      if (!(file.classes(next.code) & TokenizerFile::kJoins)) break;
      end += next.size;
    }
    if (end == at + first.size && !(file.classes(first.code) & TokenizerFile::kChanges)) {
      kept.append(text, at, first.size);
    } else {
      parts.clear();
      for (size_t i = at; i < end;) {
        const Utf8Character character = character_at(text, i);
        decompose(file, character.code, parts);
        i += character.size;
      }
      normalize(file, parts);
      for (const Character& part : parts) append_character(kept, part.code);
    }
    at = end;
  }
  return kept;
}

}  // namespace bespoke
