// SPDX-License-Identifier: Apache-2.0
#include "tool/inbox.h"

#include <new>
#include <utility>

namespace bespoke {

void Inbox::put(nlohmann::json asked) {
  std::shared_ptr<bespoke_cancel> cancel(bespoke_cancel_new(), bespoke_cancel_free);
  if (!cancel) throw std::bad_alloc();
  const MutexLock held(lock_);
  waiting_.push_back({std::move(asked), cancel});
  newest_ = std::move(cancel);
  changed_.notify_one();
}

void Inbox::cancel() {
  const MutexLock held(lock_);
  bespoke_cancel_set(newest_.get());
}

void Inbox::end() {
  const MutexLock held(lock_);
  ended_ = true;
  bespoke_cancel_set(newest_.get());
  changed_.notify_one();
}

std::optional<Order> Inbox::take() {
  MutexLock held(lock_);
  changed_.wait(held.for_condition(), [&]() REQUIRES(lock_) { return ended_ || !waiting_.empty(); });
  if (ended_) return std::nullopt;
  Order order = std::move(waiting_.front());
  waiting_.pop_front();
  return order;
}

}  // namespace bespoke
