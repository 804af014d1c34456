// SPDX-License-Identifier: Apache-2.0
// How a bundle makes rows of tokens from examples: its tokenizer.bin and turns.json. Made at the first use, and kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/bundle/bundle.h"
#include "locks.h"
#include "text/examples.h"

namespace bespoke {

class BundleText {
 public:
  explicit BundleText(Bundle& bundle) : bundle_(bundle) {}

  // Of an example's JSON object, as the store has checked it; a bundle without tokenizer takes {"tokens", "mask"} only. Any thread.
  // DataError, naming `subject`, where the example cannot be used; BundleError where the bundle's files cannot.
  EncodedExample encode(const std::string& json, const std::string& subject);

  // Two halves of 32 digits: a hash of tokenizer and chat template, and one of all else that rows follow from (what is trained on, the
  // longest sequence, the size of the vocabulary).
  std::string rules() const;

  // Of a JSON array of examples, in order. DataError naming "example 1" and so on.
  std::vector<EncodedExample> encode_all(const std::string& json);

  // Of a JSON document. DataError for what is no prompt.
  Prompt read_prompt(const std::string& json);

  const ExampleEncoder& encoder();
  const Tokenizer* tokenizer();  // null where the bundle has none

 private:
  Bundle& bundle_;
  Mutex making_;
  std::unique_ptr<Tokenizer> tokenizer_ GUARDED_BY(making_);
  std::unique_ptr<Turns> turns_ GUARDED_BY(making_);
  std::unique_ptr<ExampleEncoder> encoder_ GUARDED_BY(making_);
};

}  // namespace bespoke
