// SPDX-License-Identifier: Apache-2.0
#include "generate/cached_tokens.h"

#include <algorithm>
#include <utility>

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

bool CachedTokens::was_guessed(const std::vector<int64_t>& tokens) const {
  return !guessed_.empty() && tokens.size() == cached_.size() + 1 && tokens.back() == guessed_.back() &&
         std::equal(cached_.begin(), cached_.end(), tokens.begin());
}

const std::vector<float>& CachedTokens::next_logits(const std::vector<int64_t>& tokens, const AdapterView& adapter, const Draft& draft) {
  if (was_guessed(tokens)) {
    machine_.control().check();  // as a run does
    guessed_.pop_back();
    cached_.push_back(tokens.back());
    return machine_.row_logits(++row_);
  }
  guessed_.clear();
  prefill(tokens, adapter);
  const auto position = static_cast<int64_t>(cached_.size());
  std::vector<int64_t> guesses;
  if (draft && machine_.has_room_for_rows(position)) guesses = draft(static_cast<size_t>(machine_.rows() - 1));
  if (guesses.empty()) {
    const std::vector<float>& logits = machine_.decode(tokens.back(), position, adapter);
    cached_.push_back(tokens.back());
    return logits;
  }
  std::vector<int64_t> rows = {tokens.back()};
  rows.insert(rows.end(), guesses.begin(), guesses.end());
  const std::vector<float>& logits = machine_.decode_rows(std::move(rows), position, adapter);
  guessed_.assign(guesses.rbegin(), guesses.rend());
  cached_.push_back(tokens.back());
  row_ = 0;
  return logits;
}

}  // namespace bespoke
