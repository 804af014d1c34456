// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., SC 2011), several counters at once. Each including file has a copy in its own instruction set.
#pragma once

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kKeyStep0 = 0x9E3779B9u, kKeyStep1 = 0xBB67AE85u;

template <int kCount>
struct Piece {  // words of so many counters that follow each other
  uint32_t words[4][kCount];
};

// The counters (counter[0] + j, counter[1], counter[2], counter[3]).
template <int kCount>
void draw(Piece<kCount>& piece, const uint32_t* counter, uint64_t seed) {
  for (int j = 0; j < kCount; j++) {
    piece.words[0][j] = counter[0] + static_cast<uint32_t>(j);
    for (int word = 1; word < 4; word++) piece.words[word][j] = counter[word];
  }
  uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; round++) {
    for (int j = 0; j < kCount; j++) {
      const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * piece.words[0][j];
      const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * piece.words[2][j];
      piece.words[0][j] = static_cast<uint32_t>(product1 >> 32) ^ piece.words[1][j] ^ key0;
      piece.words[1][j] = static_cast<uint32_t>(product1);
      piece.words[2][j] = static_cast<uint32_t>(product0 >> 32) ^ piece.words[3][j] ^ key1;
      piece.words[3][j] = static_cast<uint32_t>(product0);
    }
    key0 += kKeyStep0;
    key1 += kKeyStep1;
  }
}
