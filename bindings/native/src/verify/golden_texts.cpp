// SPDX-License-Identifier: Apache-2.0
#include "verify/golden_texts.h"

#include <algorithm>

#include "error.h"
#include "format/untrusted_text.h"
#include "text/tokenizer.h"
#include "text/turns.h"

namespace bespoke {

namespace {

constexpr size_t kShownTokens = 12;

std::string shown(const std::vector<int32_t>& ids) {
  std::string out = "tokens [";
  for (size_t i = 0; i < std::min(ids.size(), kShownTokens); i++) out += (i ? ", " : "") + std::to_string(ids[i]);
  return out + (ids.size() > kShownTokens ? ", ...] (" + std::to_string(ids.size()) + ")" : "]");
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> tokens;
  tokenizer.encode(text, TextForm::content, std::nullopt, tokens);
  return tokens;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::string text;
  for (const int32_t id : ids) text += decoder.next(id);
  return text + decoder.finish();
}

class TextProver {
 public:
  TextProver(const Tokenizer& tokenizer, const std::vector<GoldenText>& texts) : tokenizer_(tokenizer), texts_(texts) {}

  void hold(size_t number) const {
    const GoldenText& golden = texts_[number];
    std::vector<int32_t> tokens;
    try {
      tokens = encoded(tokenizer_, golden.text);
    } catch (const Error& error) {
      throw mismatch(number, error.got, shown(golden.ids));
    }
    if (tokens != golden.ids) throw mismatch(number, shown(tokens), shown(golden.ids));
    const std::string text = streamed(tokenizer_, tokens);
    const bool same = text == golden.text || encoded(tokenizer_, text) == tokens;
    const bool stripped = tokenizer_.file().strips_space && encoded(tokenizer_, " " + text) == tokens;
    const std::string canonical = tokenizer_.canonical(golden.text);
    const bool lost = tokenizer_.known_part(canonical) != canonical;  // what has no token does not come back
    if (!(same || stripped || lost) || text != tokenizer_.decode(tokens, true))
      throw mismatch(number, "decoded to " + in_quotes(text, 60), "the text again");
  }

 private:
  Error mismatch(size_t number, const std::string& got, const std::string& expected) const {
    const std::string which = "Golden text " + std::to_string(number) + " of " + std::to_string(texts_.size()) + ", ";
    return Error(Kind::Golden, which + in_quotes(texts_[number].text, 60), got, expected,
                 "Build the bundle again; if that changes nothing, this runtime reads texts otherwise: report it");
  }

  const Tokenizer& tokenizer_;
  const std::vector<GoldenText>& texts_;
};

}  // namespace

size_t hold_texts(Bundle& bundle, const std::vector<GoldenText>& texts) {
  const TextRecord& text = bundle.manifest().text;
  if (texts.empty() || (text.tokenizer && !text.tokenizer_bin)) return 0;
  if (!text.tokenizer_bin)
    throw Error(Kind::Golden, "Golden texts", std::to_string(texts.size()) + " of them, for a bundle without tokenizer", "none",
                "Build the bundle again");
  Tokenizer tokenizer(bundle.file(*text.tokenizer_bin), *text.tokenizer_bin);
  if (text.turns) protect_markers(tokenizer, Turns(bundle.file(*text.turns), *text.turns));
  const TextProver prover(tokenizer, texts);
  for (size_t number = 0; number < texts.size(); number++) prover.hold(number);
  bundle.drop(*text.tokenizer_bin);
  return texts.size();
}

}  // namespace bespoke
