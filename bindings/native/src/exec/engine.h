// SPDX-License-Identifier: Apache-2.0
// The table of an engine as the core keeps it: copied, named, and ended once.
#pragma once

#include <string>

#include "bespoke.h"

namespace bespoke {

class Engine {
 public:
  explicit Engine(const bespoke_engine& table) : table_(table), target_(table.target ? table.target : "") {
    table_.target = target_.c_str();
  }
  Engine(const Engine&) = delete;
  ~Engine() {
    if (is_kept_ && table_.destroy) table_.destroy(table_.context);
  }
  // Whether its context is its own, as that of the core's engines. One that a caller lends is kept once its model is open.
  void keep(bool is_kept) { is_kept_ = is_kept; }
  const bespoke_engine& table() const { return table_; }

  std::string cache;  // folder for what it makes of artifacts; empty: none

 private:
  bespoke_engine table_{};
  std::string target_;
  bool is_kept_ = true;
};

}  // namespace bespoke
