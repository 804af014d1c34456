// SPDX-License-Identifier: Apache-2.0
// sha256 by libsodium.
#include <sodium.h>

#include "format/bundle.h"

namespace bespoke {

std::string sha256_hex(Bytes bytes) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  char text[2 * sizeof digest + 1];
  crypto_hash_sha256(digest, bytes.data, bytes.size);
  return sodium_bin2hex(text, sizeof text, digest, sizeof digest);
}

}  // namespace bespoke
