// SPDX-License-Identifier: Apache-2.0
// The KV cache of a machine, and the tokens that it holds. Conversations take turns with it: what one shares with the one before
// stays, the rest is computed again.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "exec/machine.h"

namespace bespoke {

using Draft = std::function<std::vector<int64_t>(size_t most)>;  // at most so many tokens that may follow

class CachedTokens {
 public:
  explicit CachedTokens(Machine& machine) : machine_(machine) {}

  // Logits of what follows `tokens`, at least one and at most as many as the context has rows; the machine's. With `draft`, where the plan
  // can, what follows the tokens that it guesses is computed in the same run, and is there when the next call asks for it. Throws
  // Abandoned, Error: what was computed by then stays.
  const std::vector<float>& next_logits(const std::vector<int64_t>& tokens, const AdapterView& adapter, const Draft& draft = nullptr);
  void forget() {  // by another adapter, nothing of it holds
    cached_.clear();
    guessed_.clear();
  }

 private:
  void prefill(const std::vector<int64_t>& tokens, const AdapterView& adapter);  // all but the last
  bool was_guessed(const std::vector<int64_t>& tokens) const;                    // the last one, behind the cached ones

  Machine& machine_;
  std::vector<int64_t> cached_;
  // Guesses behind `cached_` whose rows the cache has, in reverse; the logits of all are the machine's still. Another token, or more of
  // them than one, and the rows are computed again: what is in the cache is then what it is without guesses.
  std::vector<int64_t> guessed_;
  int64_t row_ = 0;  // of the logits of what follows `cached_`
};

}  // namespace bespoke
