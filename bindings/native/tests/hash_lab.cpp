// SPDX-License-Identifier: Apache-2.0
// SHA-256 for tests in Python. A line in: who computes, bytes a piece, the bytes in hexadecimal. A line out: the hash, or "absent" where
// this processor has no such instructions.
#include <Sha256.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "format/hash.h"

namespace {

std::vector<uint8_t> bytes_of(const std::string& digits) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) bytes.push_back(static_cast<uint8_t>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

template <class Update>
void in_pieces(const std::vector<uint8_t>& bytes, size_t piece, Update update) {
  for (size_t at = 0; at < bytes.size(); at += piece) update(bytes.data() + at, std::min(piece, bytes.size() - at));
}

std::string by_the_core(const std::vector<uint8_t>& bytes, size_t piece) {
  bespoke::RunningSha256 hash;
  in_pieces(bytes, piece, [&](const uint8_t* data, size_t size) { hash.add({data, size}); });
  return hash.finish();
}

std::string by(unsigned implementation, const std::vector<uint8_t>& bytes, size_t piece) {
  CSha256 hash;
  Sha256_Init(&hash);
  if (!Sha256_SetFunction(&hash, implementation)) return "absent";
  in_pieces(bytes, piece, [&](const uint8_t* data, size_t size) { Sha256_Update(&hash, data, size); });
  uint8_t digest[SHA256_DIGEST_SIZE];
  Sha256_Final(&hash, digest);
  std::string text;
  for (const uint8_t byte : digest) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  return text;
}

}  // namespace

int main() {
  bespoke::sha256_hex({});  // asks the processor
  std::string who, digits;
  for (size_t piece; std::cin >> who >> piece >> digits;) {
    const auto bytes = bytes_of(digits.substr(1));  // after a colon, so that no bytes are a word too
    if (who == "core") std::cout << by_the_core(bytes, piece) << std::endl;
    if (who == "portable") std::cout << by(SHA256_ALGO_SW, bytes, piece) << std::endl;
    if (who == "processor") std::cout << by(SHA256_ALGO_HW, bytes, piece) << std::endl;
  }
}
