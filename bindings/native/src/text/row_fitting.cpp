// SPDX-License-Identifier: Apache-2.0
#include "text/row_fitting.h"

#include <algorithm>

namespace bespoke {

namespace {

void append(const TokenRow& from, size_t begin, size_t end, TokenRow& row) {
  const auto first = static_cast<ptrdiff_t>(begin), behind = static_cast<ptrdiff_t>(end);
  row.tokens.insert(row.tokens.end(), from.tokens.begin() + first, from.tokens.begin() + behind);
  row.mask.insert(row.mask.end(), from.mask.begin() + first, from.mask.begin() + behind);
}

}  // namespace

size_t trained_end(const std::vector<uint8_t>& mask) {
  size_t end = mask.size();
  while (end && !mask[end - 1]) end--;
  return end;
}

size_t prompt_room(size_t prompt, size_t answer, size_t room) { return std::min(prompt, answer < room ? room - answer : room / 2); }

TokenRow with_prompt_of(const TokenRow& row, size_t answer, size_t prompt, bool with_bos, size_t room) {
  const size_t begin = answer - prompt + (with_bos && prompt < answer ? 1 : 0);
  return kept_of(row, begin, begin + room - (with_bos && begin > 0 ? 1 : 0), with_bos);
}

TokenRow fitted(const TokenRow& row, bool with_bos, bool whole_answers, size_t room) {
  const auto [begin, end] = fitted_range(row.mask, with_bos, whole_answers, room);
  return kept_of(row, begin, end, with_bos);
}

std::pair<size_t, size_t> fitted_range(const std::vector<uint8_t>& mask, bool with_bos, bool whole_answers, size_t room) {
  if (mask.size() <= room) return {0, mask.size()};
  const size_t end = trained_end(mask);
  if (end <= room) return {0, end};
  size_t answer = end - 1;
  while (answer && mask[answer - 1]) answer--;
  const size_t prompt = prompt_room(answer, end - answer, room);
  size_t begin = answer - prompt + (with_bos && prompt < answer ? 1 : 0);
  while (whole_answers && begin < answer && mask[begin]) begin++;
  if (begin == answer && begin > 0 && !with_bos) begin--;  // its first token is predicted from one before it
  return {begin, std::min(end, begin + room - (with_bos && begin > 0 ? 1 : 0))};
}

TokenRow kept_of(const TokenRow& row, size_t begin, size_t end, bool with_bos) {
  TokenRow kept;
  if (with_bos && begin > 0) append(row, 0, 1, kept);
  append(row, begin, std::min(end, row.tokens.size()), kept);
  kept.mask[0] = 0;  // nothing stands before it
  return kept;
}

}  // namespace bespoke
