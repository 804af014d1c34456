// SPDX-License-Identifier: Apache-2.0
// tokenizer.bin, mapped and read in place; sdk/bespoke/data/tokenizer_file.py says what stands where. Everything that a search or a
// merge will rely on is checked once, when it is opened, so that a damaged or hostile file cannot lead outside of it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "bytes.h"

namespace bespoke {

struct AddedToken {
  uint32_t id;
  bool is_protected;         // content never becomes it
  std::string_view content;  // as it is spelled
  std::string_view sought;   // what stands for it in the text, or in the normalized text
};

struct Merged {
  uint32_t rank, id;  // rank kNoToken: this pair is not merged
};

constexpr uint32_t kNoToken = 0xffffffff;

class TokenizerFile {
 public:
  enum Pattern : uint32_t { kSentencepiece, kGpt2, kLlama3 };
  enum Prefix : uint32_t { kNoPrefix, kStretch, kBareStretch, kBareText };
  enum Class : uint8_t {
    kLetter = 1,
    kNumber = 2,
    kSpace = 4,
    kBeforeLetters = 8,
    kNewline = 16,
    kSingleDigit = 32,
    kJoins = 64,
    kChanges = 128
  };

  TokenizerFile(Bytes file, const std::string& subject);  // BundleError. The memory is the caller's

  Pattern pattern;
  Prefix prefix;
  uint32_t most_numbers;  // of a word; 0: no bound
  bool nfc, replaces_spaces, whole_words, single_digits, cuts_words, strips_space;
  bool lacks_bytes;    // some of the 256 bytes have no token
  uint32_t unknown;    // what stands for these; kNoToken: nothing does, or none is lacking
  bool fuses_unknown;  // one for a run of them
  uint32_t bos, eos;   // or kNoToken
  uint32_t vocabulary;

  uint32_t byte_token(uint8_t byte) const { return word(byte_ids_, byte, 0, 1); }  // kNoToken: there is none
  Merged merge(uint32_t left, uint32_t right) const;
  uint32_t word_token(std::string_view bytes) const;   // kNoToken: there is none
  uint32_t character_token(uint32_t character) const;  // kNoToken: there is none
  std::string_view token(uint32_t id) const;           // what it is decoded to; empty beyond the vocabulary
  uint8_t classes(uint32_t character) const {
    uint16_t block;
    std::memcpy(&block, class_blocks_.at + 2 * (character >> 7), 2);
    return classes_.at[static_cast<size_t>(block) * 128 + (character & 127)];
  }

  // Added tokens: [0, raw_added) are looked for in the text as it comes, [raw_added, added) in normalized text; each part ascending.
  size_t added() const { return added_.count; }
  size_t raw_added() const { return raw_added_; }
  AddedToken added(size_t index) const;
  size_t controls() const { return control_.count; }
  uint32_t control(size_t index) const { return word(control_, index, 0, 1); }

  // Of NFC; Hangul apart.
  struct Change {
    uint32_t order;         // among marks; 0: no mark
    uint32_t begin, count;  // in `decomposed`; count 0: it stays as it is
  };
  Change change(uint32_t character) const;
  uint32_t decomposed(uint32_t index) const { return word(decomposed_, index, 0, 1); }
  uint32_t composed(uint32_t first, uint32_t second) const;  // kNoToken: these two stay apart

 private:
  struct Section {
    const uint8_t* at = nullptr;
    size_t count = 0;
  };

  // Number `which` of entry `index`, whose entries have `width`. Bundles are read on little-endian machines only.
  static uint32_t word(const Section& section, size_t index, size_t which, size_t width) {
    uint32_t value;
    std::memcpy(&value, section.at + 4 * (index * width + which), 4);
    return value;
  }

  void place(Bytes file, const std::string& subject);
  void check(const std::string& subject);

  uint32_t version_ = 0, merge_probes_ = 0, character_probes_ = 0, word_probes_ = 0;
  size_t raw_added_ = 0;
  Section byte_ids_, merges_, token_ends_, token_bytes_, words_, characters_, added_, added_text_, control_, class_blocks_, classes_,
      changes_, decomposed_, compositions_;
};

}  // namespace bespoke
