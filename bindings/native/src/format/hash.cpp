// SPDX-License-Identifier: Apache-2.0
#include "format/hash.h"

#include <Sha256.h>

namespace bespoke {

std::string sha256_hex(Bytes bytes) {
  RunningSha256 hash;
  hash.add(bytes);
  return hash.finish();
}

struct RunningSha256::State {
  CSha256 value;
};

RunningSha256::RunningSha256() : state_(new State) {
  static const bool chosen = (Sha256Prepare(), true);  // asks the processor, once
  (void)chosen;
  Sha256_Init(&state_->value);
}

RunningSha256::~RunningSha256() = default;

void RunningSha256::add(Bytes bytes) { Sha256_Update(&state_->value, bytes.data, bytes.size); }

std::string RunningSha256::finish() {
  constexpr char kDigits[] = "0123456789abcdef";
  unsigned char digest[SHA256_DIGEST_SIZE];
  Sha256_Final(&state_->value, digest);
  std::string text;
  text.reserve(2 * sizeof digest);
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace bespoke
