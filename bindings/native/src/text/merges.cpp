// SPDX-License-Identifier: Apache-2.0
#include "text/merges.h"

#include <queue>

namespace bespoke {

namespace {

constexpr size_t kShort = 48;  // symbols; up to here looking at all pairs is faster than a heap

void merge_short(const TokenizerFile& file, std::vector<uint32_t>& symbols) {
  Merged pairs[kShort];  // pairs[i]: what symbols i and i + 1 become
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; i++) pairs[i] = file.merge(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoToken) break;
    symbols[best] = pairs[best].id;
    count--;
    for (size_t i = best + 1; i < count; i++) symbols[i] = symbols[i + 1];
    for (size_t i = best; i + 1 < count; i++) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = file.merge(symbols[best - 1], symbols[best]);
    if (best + 1 < count) pairs[best] = file.merge(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void merge_long(const TokenizerFile& file, std::vector<uint32_t>& symbols) {
  struct Candidate {
    Merged pair;
    uint32_t at;
    bool operator<(const Candidate& other) const {  // the top of the heap is the largest
      return pair.rank != other.pair.rank ? pair.rank > other.pair.rank : at > other.at;
    }
  };
  struct Neighbours {
    uint32_t before, behind;
  };
  constexpr uint32_t kGone = 0xffffffff;  // of a neighbour: there is none
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  std::vector<Neighbours> chain(count);
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](uint32_t left, uint32_t right) {
    const Merged pair = file.merge(symbols[left], symbols[right]);
    if (pair.rank != kNoToken) candidates.push({pair, left});
  };
  for (uint32_t i = 0; i < count; i++) {
    chain[i] = {i ? i - 1 : kGone, i + 1 < count ? i + 1 : kGone};
    if (i + 1 < count) consider(i, i + 1);
  }
  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    const uint32_t left = top.at;
    if (symbols[left] == kNoToken || chain[left].behind == kGone) continue;
    const uint32_t right = chain[left].behind;
    // A candidate is out of date when one of its two has been merged since.
    const Merged now = file.merge(symbols[left], symbols[right]);
    if (now.rank == kNoToken || now.id != top.pair.id) continue;
    symbols[left] = now.id;
    symbols[right] = kNoToken;
    const uint32_t behind = chain[left].behind = chain[right].behind;
    if (behind != kGone) {
      chain[behind].before = left;
      consider(left, behind);
    }
    if (chain[left].before != kGone) consider(chain[left].before, left);
  }
  size_t kept = 0;
  for (const uint32_t symbol : symbols) {
    if (symbol != kNoToken) symbols[kept++] = symbol;
  }
  symbols.resize(kept);
}

}  // namespace

void merge_symbols(const TokenizerFile& file, std::vector<uint32_t>& symbols) {
  if (symbols.size() <= kShort)
    merge_short(file, symbols);
  else
    merge_long(file, symbols);
}

}  // namespace bespoke
