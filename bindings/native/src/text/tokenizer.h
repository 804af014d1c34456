// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back, by a mapped tokenizer.bin (sdk/bespoke/data/text.py tells of the two kinds of text).
//
// A user's words are content: in them no special token is ever recognised, so that a message which contains "<|im_end|>" is tokenized
// as those ten characters and cannot forge a turn. A template's own text is ours: there special tokens are recognised. Added tokens
// that carry no structure are recognised in both.
//
// A vocabulary may lack tokens for some bytes. A text loses these, before its bytes are merged, or has the unknown token in their place.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace bespoke {

enum class TextForm { content, of_template };

constexpr int32_t kWithinText = -1;  // in place of the token before a text: no added token

// A stretch of a template's text that holds no control token, and the control token behind it.
struct TemplatePart {
  std::string_view text;
  std::optional<int32_t> control;
};

class Tokenizer {
 public:
  Tokenizer(Bytes file, const std::string& subject);  // BundleError. The memory is the caller's

  // Added tokens that occur in a template's text are recognised in no content any more. Not while other threads use the tokenizer.
  void protect(std::string_view template_text);

  // Appends the tokens of `text`, without bos. `previous` is the token before them, absent at the start of a text: a tokenizer that
  // puts a space before a text puts none where a piece goes on. DataError for what is not UTF-8, or would forge a control token.
  void encode(std::string_view text, TextForm form, std::optional<int32_t> previous, std::vector<int32_t>& tokens) const;

  // The same for content, and for each of its tokens appended to `ends` how many bytes of what `measured` counts stand up to its end.
  void encode_measured(std::string_view content, std::optional<int32_t> previous, std::vector<int32_t>& tokens,
                       std::vector<size_t>& ends) const;
  size_t measured(std::string_view content) const;

  std::vector<TemplatePart> parts(std::string_view template_text) const;  // the last one without control token
  std::string canonical(std::string_view content) const;                  // one text for all that become the same tokens by normalization

  // A canonical text without the bytes (SentencePiece: the characters) for which the vocabulary has no token: texts in which it differs
  // have different tokens. `places`: where in the text each byte stands; left empty where the whole text is known.
  std::string known_part(std::string_view canonical, std::vector<size_t>* places = nullptr) const;

  // Ids beyond the vocabulary (a padded embedding has some) give nothing; bytes that are no characters give U+FFFD.
  std::string decode(const std::vector<int32_t>& tokens, bool skip_special) const;

  bool is_control(int32_t token) const;  // content can never become it
  bool is_skipped(int32_t token) const;  // an added token that a reader of the text is not to see
  std::optional<int32_t> bos() const { return optional(file_.bos); }
  std::optional<int32_t> eos() const { return optional(file_.eos); }
  int32_t vocabulary() const { return static_cast<int32_t>(file_.vocabulary); }
  const TokenizerFile& file() const { return file_; }

 private:
  struct Found {
    size_t begin, end;  // of the text; begin == end: there is none
    uint32_t id;
  };
  class Encoding;

  static std::optional<int32_t> optional(uint32_t id) { return id == kNoToken ? std::nullopt : std::optional(static_cast<int32_t>(id)); }
  void encode(std::string_view text, TextForm form, std::optional<int32_t> previous, std::vector<int32_t>& tokens,
              std::vector<size_t>* ends) const;
  bool has_all_bytes(std::string_view bytes) const;           // tokens for each
  bool is_known_character(std::string_view character) const;  // of SentencePiece: as it is or as its bytes
  size_t known_size(uint32_t id) const;                       // bytes of what is measured that a token stands for, unless it is unknown
  bool drops_bytes() const { return file_.lacks_bytes && file_.unknown == kNoToken; }
  size_t added_at(std::string_view text, size_t at) const;  // index of the longest added token that is spelled there, or file_.added()
  size_t longest_at(std::string_view text, size_t at, size_t low, size_t high) const;  // index of an added token, or `high`
  Found next_added(std::string_view text, size_t at, bool normalized, TextForm form) const;
  bool continues(std::optional<int32_t> previous) const;

  TokenizerFile file_;
  std::array<std::array<bool, 256>, 2> first_bytes_{};          // of added tokens: raw, normalized
  std::array<bool, 256> spelled_first_bytes_{};                 // of added tokens as they are spelled
  std::vector<bool> protected_;                                 // by index of the added token
  std::vector<int32_t> added_ids_, control_ids_, skipped_ids_;  // ascending
};

// Decodes token by token. The pieces joined are what `decode` makes of all tokens, special ones left out, as far as it can be known
// before the last: of SentencePiece's byte tokens those that are a character become it at once, and a byte behind it that is none
// becomes one U+FFFD, where `decode` would turn all bytes of that run into U+FFFD.
class StreamDecoder {
 public:
  // `at_start`: nothing stands before the first token, so that the space is stripped which the tokenizer puts before a text.
  StreamDecoder(const Tokenizer& tokenizer, bool at_start) : tokenizer_(&tokenizer), at_start_(at_start) {}

  std::string next(int32_t token);  // the text that this token completes: whole characters, or nothing
  std::string finish();             // U+FFFD for the beginning of a character that was not completed

 private:
  void take_complete(std::string& out);
  void replace_pending(std::string& out);
  std::string stripped(std::string out);

  const Tokenizer* tokenizer_;
  bool at_start_;
  std::string pending_;  // the beginning of a character
};

}  // namespace bespoke
