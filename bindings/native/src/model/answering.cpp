// SPDX-License-Identifier: Apache-2.0
#include "model/answering.h"

namespace bespoke {

const std::vector<float>& Answering::next_logits(const std::vector<int64_t>& tokens, std::optional<int64_t>& version, const Draft& draft) {
  use_adapter(version);
  return cached_.next_logits(tokens, adapter_->tensors, draft);
}

void Answering::use_adapter(std::optional<int64_t>& version) {
  if (!version && adapter_) {
    const std::optional<Version> newest = store_.current_version();
    version = newest ? newest->id : 0;
  }
  if (!adapter_ || adapter_->version != version) {
    adapter_.reset();  // before another one is mapped
    if (version) adapter_ = adapter_of_version(bundle_, store_, *version);
    if (!adapter_) adapter_ = answering_adapter(bundle_, store_);
  }
  version = adapter_->version;
  if (cached_version_ != version) cached_.forget();
  cached_version_ = version;
}

}  // namespace bespoke
