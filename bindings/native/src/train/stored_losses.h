// SPDX-License-Identifier: Apache-2.0
// Losses that were measured before, in the state, by the sha256 of a batch.
#pragma once

#include "state/store.h"
#include "train/evaluate.h"

namespace bespoke {

class StoredLosses : public KnownLosses {
 public:
  // Of a version, of the base (0), or of what a run has learned (minus its id), which changes with its steps.
  StoredLosses(StateStore& store, int64_t version, int64_t step = 0) : store_(store), version_(version), step_(step) {}
  std::optional<double> find(const Batch& batch) override { return store_.loss(version_, name_of(batch)); }
  void keep(const Batch& batch, double loss_sum) override;

 private:
  std::string name_of(const Batch& batch) const;

  StateStore& store_;
  int64_t version_, step_;
};

}  // namespace bespoke
