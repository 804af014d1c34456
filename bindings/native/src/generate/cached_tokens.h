// SPDX-License-Identifier: Apache-2.0
// The KV cache of a machine, and the tokens that it holds. Conversations take turns with it: what one shares with the one before
// stays, the rest is computed again.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/machine.h"

namespace bespoke {

class CachedTokens {
 public:
  explicit CachedTokens(Machine& machine) : machine_(machine) {}

  // Logits of what follows `tokens`, at least one and at most as many as the context has rows. Throws Abandoned, Error: what was computed
  // by then stays.
  std::vector<float> next_logits(const std::vector<int64_t>& tokens, const AdapterView& adapter);
  void forget() { cached_.clear(); }  // by another adapter, nothing of it holds

 private:
  void prefill(const std::vector<int64_t>& tokens, const AdapterView& adapter);  // all but the last

  Machine& machine_;
  std::vector<int64_t> cached_;
};

}  // namespace bespoke
