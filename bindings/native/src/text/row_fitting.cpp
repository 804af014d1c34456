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

// Bos, where the row has it and loses more than that, then the tokens from `begin` on, `room` at most.
TokenRow from(const TokenRow& row, size_t begin, bool with_bos, size_t room) {
  TokenRow kept;
  if (with_bos && begin > 0) append(row, 0, 1, kept);
  append(row, begin, std::min(row.tokens.size(), begin + room - kept.tokens.size()), kept);
  kept.mask[0] = 0;  // nothing stands before it
  return kept;
}

}  // namespace

size_t trained_end(const std::vector<uint8_t>& mask) {
  size_t end = mask.size();
  while (end && !mask[end - 1]) end--;
  return end;
}

size_t prompt_room(size_t prompt, size_t answer, size_t room) {
  return std::min(prompt, answer < room ? room - answer : room / 2);
}

TokenRow with_prompt_of(const TokenRow& row, size_t answer, size_t prompt, bool with_bos, size_t room) {
  const bool loses_bos = with_bos && prompt < answer;
  return from(row, answer - prompt + loses_bos, with_bos, room);
}

TokenRow fitted(const TokenRow& row, bool with_bos, bool whole_answers, size_t room) {
  if (row.tokens.size() <= room) return row;
  const size_t end = trained_end(row.mask);
  TokenRow trained;
  append(row, 0, end, trained);
  if (end <= room) return trained;
  size_t answer = end - 1;
  while (answer && row.mask[answer - 1]) answer--;
  const size_t prompt = prompt_room(answer, end - answer, room);
  size_t begin = answer - prompt + (with_bos && prompt < answer ? 1 : 0);
  while (whole_answers && begin < answer && row.mask[begin]) begin++;
  if (begin == answer && begin > 0 && !with_bos) begin--;  // its first token is predicted from one before it
  return from(trained, begin, with_bos, room);
}

}  // namespace bespoke
