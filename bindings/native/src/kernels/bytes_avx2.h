// SPDX-License-Identifier: Apache-2.0
// Bytes of two 16-byte halves at a time, for decode.h: AVX2 and AVX-512 decode the same way.
#pragma once

#define BESPOKE_BYTES 2
typedef uint8_t bytes __attribute__((vector_size(32)));
inline bytes zip8_low(bytes a, bytes b) { return (bytes)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b); }
inline bytes zip8_high(bytes a, bytes b) { return (bytes)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b); }
inline bytes zip16_low(bytes a, bytes b) { return (bytes)_mm256_unpacklo_epi16((__m256i)a, (__m256i)b); }
inline bytes zip16_high(bytes a, bytes b) { return (bytes)_mm256_unpackhi_epi16((__m256i)a, (__m256i)b); }
inline bytes load_bytes(const uint8_t* p, int64_t next) {
  return (bytes)_mm256_loadu2_m128i((const __m128i*)(p + next), (const __m128i*)p);
}
// Of 16 bytes given twice, those of columns 0-3, 8-11, ... first: the order in which `put` takes them.
inline bytes runs_of_four(bytes v) {
  return (bytes)_mm256_shuffle_epi8(
      (__m256i)v, _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 6, 7, 10, 11, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0));
}
