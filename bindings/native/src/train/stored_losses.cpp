// SPDX-License-Identifier: Apache-2.0
#include "train/stored_losses.h"

#include <cmath>

#include "format/hash.h"

namespace bespoke {

void StoredLosses::keep(const Batch& batch, double loss_sum) {
  if (std::isfinite(loss_sum)) store_.keep_loss(version_, name_of(batch), loss_sum);
}

std::string StoredLosses::name_of(const Batch& batch) const {
  RunningSha256 hash;
  const auto add = [&](const void* data, size_t size) { hash.add({static_cast<const uint8_t*>(data), size}); };
  const int64_t shape[] = {step_, batch.rows, batch.sequence_length};
  add(shape, sizeof shape);
  add(batch.tokens.data(), batch.tokens.size() * sizeof(int64_t));
  add(batch.targets.data(), batch.targets.size() * sizeof(int64_t));
  add(batch.mask.data(), batch.mask.size() * sizeof(float));
  return hash.finish();
}

}  // namespace bespoke
