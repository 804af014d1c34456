// SPDX-License-Identifier: Apache-2.0
// What the thread that listens hands to the one that computes: orders in their sequence, each with a cancel token of its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bespoke.h"
#include "locks.h"

namespace bespoke {

struct Order {
  nlohmann::json asked;
  std::shared_ptr<bespoke_cancel> cancel;
};

class Inbox {
 public:
  void put(nlohmann::json asked);  // throws std::bad_alloc
  void cancel();                   // the order that was put last; one that has ended is not harmed
  void end();                      // no more come
  std::optional<Order> take();     // waits for one

 private:
  Mutex lock_;
  std::condition_variable changed_;
  std::deque<Order> waiting_ GUARDED_BY(lock_);
  std::shared_ptr<bespoke_cancel> newest_ GUARDED_BY(lock_);
  bool ended_ GUARDED_BY(lock_) = false;
};

}  // namespace bespoke
