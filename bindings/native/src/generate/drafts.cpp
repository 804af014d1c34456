// SPDX-License-Identifier: Apache-2.0
#include "generate/drafts.h"

#include <algorithm>
#include <utility>

namespace bespoke {

namespace {

constexpr int64_t kNoToken = -1;

}  // namespace

std::vector<int64_t> Drafts::next(const std::vector<int64_t>& seen, size_t most) {
  judge(seen);
  read(seen);
  size_t from = 0;
  for (size_t length = kShortest; length <= kLongest; length++)
    if (earlier_[length]) from = earlier_[length];
  if (!from || seen.size() < resume_) return {};
  begin_ = seen.size();
  for (size_t at = from; draft_.size() < most; at++) draft_.push_back(at < begin_ ? seen[at] : draft_[at - begin_]);
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
  for (; read_ < seen.size(); read_++)
    for (size_t length = kShortest; length <= std::min(kLongest, read_ + 1); length++) {
      Ending ending;
      ending.fill(kNoToken);
      const auto end = seen.begin() + static_cast<ptrdiff_t>(read_ + 1);
      std::copy(end - static_cast<ptrdiff_t>(length), end, ending.end() - static_cast<ptrdiff_t>(length));
      earlier_[length] = std::exchange(places_[ending], read_ + 1);
    }
}

}  // namespace bespoke
