// SPDX-License-Identifier: Apache-2.0
#include "text/turn_tokens.h"

#include <algorithm>

#include "error.h"

namespace bespoke {

namespace {

// Text of neighbouring pieces that becomes tokens together.
class Run {
 public:
  Run(const Tokenizer& tokenizer, const std::string& subject, TurnTokens& out) : tokenizer_(tokenizer), subject_(subject), out_(out) {}

  void add(size_t piece, std::string_view text) {
    if (text.empty()) return;
    try {
      measured_ += tokenizer_.measured(text);
    } catch (const Error& error) {
      throw named(error);
    }
    text_ += text;
    parts_.push_back({piece, measured_});
  }

  void add_control(size_t piece, int32_t token) {
    end();
    out_.tokens.push_back(token);
    out_.piece_of.push_back(piece);
  }

  void end() {
    if (text_.empty()) return;
    const auto previous = out_.tokens.empty() ? std::nullopt : std::optional(out_.tokens.back());
    ends_.clear();
    try {
      tokenizer_.encode_measured(text_, previous, out_.tokens, ends_);
    } catch (const Error& error) {
      throw named(error);
    }
    size_t part = 0, begin = 0;
    for (const size_t end : ends_) {
      while (part + 1 < parts_.size() && parts_[part].end <= begin) part++;
      size_t owner = part;
      while (!is_content(owner) && owner + 1 < parts_.size() && parts_[owner].end < end) owner++;
      out_.piece_of.push_back(parts_[is_content(owner) ? owner : part].piece);
      begin = end;
    }
    text_.clear();
    parts_.clear();
    measured_ = 0;
  }

 private:
  struct Part {
    size_t piece, end;
  };

  bool is_content(size_t part) const { return out_.pieces[parts_[part].piece].is_content; }
  Error named(const Error& error) const { return Error(error.kind, subject_, error.got, error.expected, error.next_step); }

  const Tokenizer& tokenizer_;
  const std::string& subject_;
  TurnTokens& out_;
  std::string text_;
  size_t measured_ = 0;
  std::vector<Part> parts_;
  std::vector<size_t> ends_;
};

}  // namespace

size_t TurnTokens::begin_of(size_t piece) const {
  return static_cast<size_t>(std::lower_bound(piece_of.begin(), piece_of.end(), piece) - piece_of.begin());
}

TurnTokens TurnEncoder::encode(std::vector<TurnPiece> pieces, const std::string& subject) const {
  TurnTokens out;
  out.pieces = std::move(pieces);
  Run run(*tokenizer_, subject, out);
  for (size_t number = 0; number < out.pieces.size(); number++) {
    const TurnPiece& piece = out.pieces[number];
    if (piece.begins_answer) run.end();
    if (piece.is_content) {
      const std::vector<std::string> parts = marks_.parts(piece.text, subject);
      for (size_t i = 0; i < parts.size(); i++) {
        if (i) run.end();
        run.add(number, parts[i]);
      }
      continue;
    }
    for (const TemplatePart& part : tokenizer_->parts(piece.text)) {
      run.add(number, part.text);
      if (part.control) run.add_control(number, *part.control);
    }
  }
  run.end();
  return out;
}

}  // namespace bespoke
