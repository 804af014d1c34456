// SPDX-License-Identifier: Apache-2.0
#include "generate/cached_tokens.h"

#include <algorithm>

namespace bespoke {

void CachedTokens::prefill(const std::vector<int64_t>& tokens, const AdapterView& adapter) {
  const auto wanted = static_cast<ptrdiff_t>(tokens.size()) - 1;
  const auto known = std::min(wanted, static_cast<ptrdiff_t>(cached_.size()));
  cached_.erase(std::mismatch(cached_.begin(), cached_.begin() + known, tokens.begin()).first, cached_.end());
  while (static_cast<ptrdiff_t>(cached_.size()) < wanted) {
    const auto done = static_cast<ptrdiff_t>(cached_.size());
    machine_.control().tell(Phase::decode, done, wanted + 1);
    const auto next = tokens.begin() + done;
    const std::vector<int64_t> chunk(next, next + std::min(wanted - done, static_cast<ptrdiff_t>(machine_.chunk())));
    machine_.prefill(chunk, done, adapter);
    cached_.insert(cached_.end(), chunk.begin(), chunk.end());
  }
}

std::vector<float> CachedTokens::next_logits(const std::vector<int64_t>& tokens, const AdapterView& adapter) {
  prefill(tokens, adapter);
  std::vector<float> logits = machine_.decode(tokens.back(), static_cast<int64_t>(cached_.size()), adapter);
  cached_.push_back(tokens.back());
  return logits;
}

}  // namespace bespoke
