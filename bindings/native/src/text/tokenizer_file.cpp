// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_file.h"

#include "error.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr char kMagic[8] = {'b', 's', 'p', 't', 'o', 'k', 0, 0};
constexpr uint32_t kVersion = 2;
constexpr size_t kSettings = 12, kTables = 14, kHeader = 56 + 8 * kTables;
constexpr uint32_t kMostTokens = 1 << 22, kMostProbes = 1 << 16, kMostNumbers = 1 << 16;
constexpr size_t kMostTokenBytes = 0xffff, kMostText = size_t{1} << 31;
constexpr uint32_t kCharacters = 0x110000;

[[noreturn]] void refuse(const std::string& subject, const std::string& got, const std::string& expected) {
  throw Error(Kind::Bundle, subject, got, expected, "Build the bundle again, or copy it again");
}

bool is_text(std::string_view bytes) { return first_bad_utf8(bytes) == std::string_view::npos; }
bool is_character(uint32_t code) { return code < kCharacters && (code < 0xd800 || code > 0xdfff); }
bool is_power_of_two(size_t count) { return count && !(count & (count - 1)); }

// As in tokenizer_file.py.
uint32_t pair_hash(uint32_t left, uint32_t right) { return (left * 0x9e3779b1u ^ right * 0x85ebca77u) >> 7; }
uint32_t bytes_hash(std::string_view bytes) {
  uint32_t value = 0x811c9dc5u;
  for (const char byte : bytes) value = (value ^ static_cast<uint8_t>(byte)) * 0x01000193u;
  return value;
}

}  // namespace

TokenizerFile::TokenizerFile(Bytes file, const std::string& subject) {
  place(file, subject);
  check(subject);
}

void TokenizerFile::place(Bytes file, const std::string& subject) {
  if (file.size < kHeader) refuse(subject, std::to_string(file.size) + " bytes", "a tokenizer.bin");
  if (std::memcmp(file.data, kMagic, sizeof kMagic) != 0) refuse(subject, "another beginning", "a tokenizer.bin");
  uint32_t settings[kSettings];
  std::memcpy(settings, file.data + sizeof kMagic, sizeof settings);
  const auto [version, flags, pattern_number, most, prefix_number, bos_id, eos_id, size, merge_probes, character_probes, word_probes,
              last] = settings;
  if (version == 0 || version > kVersion) refuse(subject, "version " + std::to_string(version), "version 1 to " + std::to_string(kVersion));
  // Version 1 has a token for each byte, so that nothing is unknown; its last setting is 0.
  const uint32_t unknown_id = version == 1 ? kNoToken : last;
  if ((version == 1 && last) || flags > (version == 1 ? 63 : 127) || pattern_number > kLlama3 || prefix_number > kBareText ||
      most > kMostNumbers) {
    refuse(subject, "unknown settings", "those of version " + std::to_string(version));
  }
  if (size == 0 || size > kMostTokens) refuse(subject, std::to_string(size) + " tokens", "1 to " + std::to_string(kMostTokens));
  for (const uint32_t id : {bos_id, eos_id, unknown_id}) {
    if (id != kNoToken && id >= size) refuse(subject, "a bos, eos or unknown token beyond the vocabulary", "one of it");
  }
  if (merge_probes > kMostProbes || character_probes > kMostProbes || word_probes > kMostProbes)
    refuse(subject, "a crowded hash table", "short searches");
  nfc = flags & 1;
  replaces_spaces = flags & 2;
  whole_words = flags & 4;
  single_digits = flags & 8;
  cuts_words = flags & 16;
  strips_space = flags & 32;
  fuses_unknown = flags & 64;
  pattern = static_cast<Pattern>(pattern_number);
  prefix = static_cast<Prefix>(prefix_number);
  most_numbers = most;
  bos = bos_id;
  eos = eos_id;
  unknown = unknown_id;
  vocabulary = size;
  version_ = version;
  merge_probes_ = merge_probes;
  character_probes_ = character_probes;
  word_probes_ = word_probes;

  struct {
    Section* section;
    size_t entry_bytes;
  } const sections[kTables] = {{&byte_ids_, 4},   {&merges_, 16},  {&token_ends_, 4}, {&token_bytes_, 1},  {&words_, 4},
                               {&characters_, 8}, {&added_, 24},   {&added_text_, 1}, {&control_, 4},      {&class_blocks_, 2},
                               {&classes_, 1},    {&changes_, 16}, {&decomposed_, 4}, {&compositions_, 12}};
  size_t end = kHeader;
  for (size_t i = 0; i < kTables; i++) {
    uint64_t count;
    std::memcpy(&count, file.data + 56 + 8 * i, 8);
    const size_t begin = (end + 7) / 8 * 8;
    if (begin > file.size || count > (file.size - begin) / sections[i].entry_bytes)
      refuse(subject, "tables that end behind the file", "a whole file");
    *sections[i].section = {file.data + begin, static_cast<size_t>(count)};
    end = begin + static_cast<size_t>(count) * sections[i].entry_bytes;
  }
  if (end != file.size) refuse(subject, std::to_string(file.size) + " bytes", std::to_string(end));
}

void TokenizerFile::check(const std::string& subject) {
  const auto need = [&](bool sound, const char* what) {
    if (!sound) refuse(subject, std::string("damaged ") + what, "what bespoke wrote");
  };
  const auto is_token = [&](uint32_t id) { return id < vocabulary; };

  need(byte_ids_.count == 256, "bytes");
  lacks_bytes = false;
  for (size_t i = 0; i < 256; i++) {
    const uint32_t id = byte_token(static_cast<uint8_t>(i));
    need(is_token(id) || (id == kNoToken && version_ > 1), "bytes");
    lacks_bytes |= id == kNoToken;
  }
  if (!lacks_bytes) unknown = kNoToken;

  need(merges_.count == 0 || is_power_of_two(merges_.count), "merges");
  for (size_t i = 0; i < merges_.count; i++) {
    if (word(merges_, i, 0, 4) == kNoToken) continue;
    need(is_token(word(merges_, i, 0, 4)) && is_token(word(merges_, i, 1, 4)) && is_token(word(merges_, i, 3, 4)), "merges");
    need(word(merges_, i, 2, 4) != kNoToken, "merges");
  }

  need(token_ends_.count == vocabulary, "tokens");
  uint32_t begin = 0;
  for (size_t i = 0; i < vocabulary; i++) {
    const uint32_t end = word(token_ends_, i, 0, 1);
    need(end >= begin && end - begin <= kMostTokenBytes, "tokens");
    begin = end;
  }
  need(begin == token_bytes_.count, "tokens");
  for (uint32_t i = 0; pattern == kSentencepiece && i < vocabulary; i++) {
    const std::string_view bytes = token(i);
    need(is_text(bytes) || (bytes.size() == 1 && byte_token(static_cast<uint8_t>(bytes[0])) == i), "tokens");
  }

  need(words_.count == 0 || is_power_of_two(words_.count), "words");
  for (size_t i = 0; i < words_.count; i++) need(word(words_, i, 0, 1) == kNoToken || is_token(word(words_, i, 0, 1)), "words");
  need(characters_.count == 0 || is_power_of_two(characters_.count), "characters");
  for (size_t i = 0; i < characters_.count; i++) {
    if (word(characters_, i, 0, 2) != kNoToken) need(is_token(word(characters_, i, 1, 2)), "characters");
  }

  need(added_text_.count < kMostText && added_.count <= vocabulary, "added tokens");
  std::string_view before;
  for (size_t i = 0; i < added_.count; i++) {
    need(is_token(word(added_, i, 0, 6)) && word(added_, i, 1, 6) < 4, "added tokens");
    for (const size_t which : {2, 4}) {
      const uint32_t first = word(added_, i, which, 6), size = word(added_, i, which + 1, 6);
      need(size > 0 && first <= added_text_.count && size <= added_text_.count - first, "added tokens");
    }
    // A token that is whole characters is found between characters only.
    need(is_text(added(i).content) && is_text(added(i).sought), "added tokens");
    const bool normalized = word(added_, i, 1, 6) & 2;
    need(normalized || raw_added_ == i, "added tokens");  // raw ones come first
    const std::string_view sought = added(i).sought;
    need(i == (normalized ? raw_added_ : 0) || before < sought, "added tokens");
    before = sought;
    raw_added_ += !normalized;
  }
  for (size_t i = 0; i < control_.count; i++) need(is_token(control(i)) && (i == 0 || control(i - 1) < control(i)), "control tokens");

  need(class_blocks_.count == kCharacters / 128 && classes_.count % 128 == 0, "classes");
  for (size_t i = 0; i < class_blocks_.count; i++) {
    uint16_t block;
    std::memcpy(&block, class_blocks_.at + 2 * i, 2);
    need(block < classes_.count / 128, "classes");
  }

  for (size_t i = 0; i < changes_.count; i++) {
    need(i == 0 || word(changes_, i - 1, 0, 4) < word(changes_, i, 0, 4), "normalization");
    const uint32_t first = word(changes_, i, 2, 4), count = word(changes_, i, 3, 4);
    need(first <= decomposed_.count && count <= decomposed_.count - first && count <= 64, "normalization");
  }
  for (size_t i = 0; i < decomposed_.count; i++) need(is_character(decomposed(static_cast<uint32_t>(i))), "normalization");
  for (size_t i = 0; i < compositions_.count; i++) {
    const auto key = [&](size_t at) { return uint64_t{word(compositions_, at, 0, 3)} << 32 | word(compositions_, at, 1, 3); };
    need(is_character(word(compositions_, i, 2, 3)) && (i == 0 || key(i - 1) < key(i)), "normalization");
  }
}

Merged TokenizerFile::merge(uint32_t left, uint32_t right) const {
  const size_t mask = merges_.count - 1;
  size_t slot = pair_hash(left, right) & mask;
  for (uint32_t i = 0; i < merge_probes_ && merges_.count; i++, slot = (slot + 1) & mask) {
    uint32_t found[4];
    std::memcpy(found, merges_.at + 16 * slot, 16);
    if (found[0] == left && found[1] == right) return {found[2], found[3]};
    if (found[0] == kNoToken) break;
  }
  return {kNoToken, 0};
}

uint32_t TokenizerFile::word_token(std::string_view bytes) const {
  const size_t mask = words_.count - 1;
  size_t slot = bytes_hash(bytes) & mask;
  for (uint32_t i = 0; i < word_probes_ && words_.count; i++, slot = (slot + 1) & mask) {
    const uint32_t id = word(words_, slot, 0, 1);
    if (id == kNoToken || token(id) == bytes) return id;
  }
  return kNoToken;
}

uint32_t TokenizerFile::character_token(uint32_t character) const {
  const size_t mask = characters_.count - 1;
  size_t slot = pair_hash(character, 0) & mask;
  for (uint32_t i = 0; i < character_probes_ && characters_.count; i++, slot = (slot + 1) & mask) {
    const uint32_t found = word(characters_, slot, 0, 2);
    if (found == character) return word(characters_, slot, 1, 2);
    if (found == kNoToken) break;
  }
  return kNoToken;
}

std::string_view TokenizerFile::token(uint32_t id) const {
  if (id >= vocabulary) return {};
  const uint32_t begin = id ? word(token_ends_, id - 1, 0, 1) : 0;
  return {reinterpret_cast<const char*>(token_bytes_.at) + begin, word(token_ends_, id, 0, 1) - begin};
}

AddedToken TokenizerFile::added(size_t index) const {
  const auto text = [&](size_t which) {
    return std::string_view(reinterpret_cast<const char*>(added_text_.at) + word(added_, index, which, 6),
                            word(added_, index, which + 1, 6));
  };
  return {word(added_, index, 0, 6), (word(added_, index, 1, 6) & 1) != 0, text(2), text(4)};
}

TokenizerFile::Change TokenizerFile::change(uint32_t character) const {
  size_t low = 0, high = changes_.count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (word(changes_, middle, 0, 4) < character)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == changes_.count || word(changes_, low, 0, 4) != character) return {0, 0, 0};
  return {word(changes_, low, 1, 4), word(changes_, low, 2, 4), word(changes_, low, 3, 4)};
}

uint32_t TokenizerFile::composed(uint32_t first, uint32_t second) const {
  const uint64_t wanted = uint64_t{first} << 32 | second;
  const auto key = [&](size_t at) { return uint64_t{word(compositions_, at, 0, 3)} << 32 | word(compositions_, at, 1, 3); };
  size_t low = 0, high = compositions_.count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (key(middle) < wanted)
      low = middle + 1;
    else
      high = middle;
  }
  return low < compositions_.count && key(low) == wanted ? word(compositions_, low, 2, 3) : kNoToken;
}

}  // namespace bespoke
