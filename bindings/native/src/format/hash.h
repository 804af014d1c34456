// SPDX-License-Identifier: Apache-2.0
// sha256, in lower-case hexadecimal.
#pragma once

#include <sodium.h>

#include <string>

#include "bytes.h"

namespace bespoke {

std::string sha256_hex(Bytes bytes);

class RunningSha256 {
 public:
  RunningSha256() { crypto_hash_sha256_init(&state_); }
  void add(Bytes bytes) { crypto_hash_sha256_update(&state_, bytes.data, bytes.size); }
  std::string finish();  // once

 private:
  crypto_hash_sha256_state state_;
};

}  // namespace bespoke
