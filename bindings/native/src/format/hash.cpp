// SPDX-License-Identifier: Apache-2.0
#include "format/hash.h"

namespace bespoke {

std::string sha256_hex(Bytes bytes) {
  RunningSha256 hash;
  hash.add(bytes);
  return hash.finish();
}

std::string RunningSha256::finish() {
  unsigned char digest[crypto_hash_sha256_BYTES];
  char text[2 * sizeof digest + 1];
  crypto_hash_sha256_final(&state_, digest);
  return sodium_bin2hex(text, sizeof text, digest, sizeof digest);
}

}  // namespace bespoke
