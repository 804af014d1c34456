// SPDX-License-Identifier: Apache-2.0
#include "generate/drafts.h"

#include <algorithm>
#include <utility>

namespace bespoke {

std::vector<int64_t> Drafts::next(const std::vector<int64_t>& seen, size_t most) {
  judge(seen);
  read(seen);
  if (!earlier_ || seen.size() < resume_) return {};
  begin_ = seen.size();
  for (size_t at = earlier_; draft_.size() < most; at++) draft_.push_back(at < begin_ ? seen[at] : draft_[at - begin_]);
  return draft_;
}

void Drafts::judge(const std::vector<int64_t>& seen) {
  if (draft_.empty()) return;
  const bool is_wrong = begin_ < seen.size() && seen[begin_] != draft_.front();
  pause_ = is_wrong ? std::min(std::max<size_t>(2 * pause_, 1), kLongestPause) : 0;
  if (is_wrong) resume_ = seen.size() + pause_;
  draft_.clear();
}

void Drafts::read(const std::vector<int64_t>& seen) {
  while (read_ < seen.size()) {
    read_++;
    if (read_ < kEnding) continue;
    std::array<int64_t, kEnding> ending;
    std::copy_n(seen.begin() + static_cast<ptrdiff_t>(read_ - kEnding), kEnding, ending.begin());
    earlier_ = std::exchange(places_[ending], read_);
  }
}

}  // namespace bespoke
