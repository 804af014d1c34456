// SPDX-License-Identifier: Apache-2.0
// Tokens to text. Byte-level tokenizers decode to bytes, which become characters at the end; SentencePiece's to text, but for a run of
// byte tokens, which is characters if all of it is.
#include "format/untrusted_text.h"
#include "text/tokenizer.h"
#include "format/utf8.h"

namespace bespoke {

namespace {

bool is_byte(const TokenizerFile& file, std::string_view bytes, int32_t token) {
  return bytes.size() == 1 && file.byte_token(static_cast<uint8_t>(bytes[0])) == static_cast<uint32_t>(token);
}

void append_replacements(std::string& text, size_t count) {
  while (count--) text += kReplacement;
}

std::string without_broken(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Beginning first = beginning_of(bytes);
    text += first.what == Utf8Beginning::kCharacter ? bytes.substr(0, first.size) : kReplacement;
    bytes.remove_prefix(first.size);
  }
  return text;
}

}  // namespace

std::string Tokenizer::decode(const std::vector<int32_t>& tokens, bool skip_special) const {
  const bool sentencepiece = file_.pattern == TokenizerFile::kSentencepiece;
  std::string text, run;  // `run`: neighbouring byte tokens
  const auto end_run = [&] {
    if (first_bad_utf8(run) == std::string_view::npos)
      text += run;
    else
      append_replacements(text, run.size());
    run.clear();
  };
  for (const int32_t token : tokens) {
    if (token < 0 || (skip_special && is_skipped(token))) continue;
    const std::string_view bytes = file_.token(static_cast<uint32_t>(token));
    if (bytes.empty()) continue;
    if (sentencepiece && is_byte(file_, bytes, token)) {
      run += bytes;
      continue;
    }
    end_run();
    text += bytes;
  }
  end_run();
  if (!sentencepiece) return without_broken(text);
  if (file_.strips_space && !text.empty() && text[0] == ' ') text.erase(0, 1);
  return text;
}

std::string StreamDecoder::next(int32_t token) {
  std::string out;
  const TokenizerFile& file = tokenizer_->file();
  const std::string_view bytes = token < 0 || tokenizer_->is_skipped(token) ? std::string_view() : file.token(static_cast<uint32_t>(token));
  if (bytes.empty()) return out;
  if (file.pattern != TokenizerFile::kSentencepiece || is_byte(file, bytes, token)) {
    pending_ += bytes;
    take_complete(out);
  } else {
    replace_pending(out);
    out += bytes;
  }
  return stripped(std::move(out));
}

std::string StreamDecoder::finish() {
  std::string out;
  replace_pending(out);
  return stripped(std::move(out));
}

// Moves what is decided from the pending bytes to `out`.
void StreamDecoder::take_complete(std::string& out) {
  const bool of_bytes = tokenizer_->file().pattern == TokenizerFile::kSentencepiece;
  std::string_view bytes = pending_;
  while (!bytes.empty()) {
    const Utf8Beginning first = beginning_of(bytes);
    if (first.what == Utf8Beginning::kUnfinished) break;
    if (first.what == Utf8Beginning::kCharacter)
      out += bytes.substr(0, first.size);
    else
      append_replacements(out, of_bytes ? first.size : 1);
    bytes.remove_prefix(first.size);
  }
  pending_.erase(0, pending_.size() - bytes.size());
}

void StreamDecoder::replace_pending(std::string& out) {
  if (pending_.empty()) return;
  append_replacements(out, tokenizer_->file().pattern == TokenizerFile::kSentencepiece ? pending_.size() : 1);
  pending_.clear();
}

std::string StreamDecoder::stripped(std::string out) {
  if (!at_start_ || out.empty()) return out;
  at_start_ = false;
  if (tokenizer_->file().strips_space && out[0] == ' ') out.erase(0, 1);
  return out;
}

}  // namespace bespoke
