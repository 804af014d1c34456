// SPDX-License-Identifier: Apache-2.0
#include "federated/adapter_hash.h"

#include <algorithm>

#include "format/hash.h"

namespace bespoke {

std::string adapter_hash(std::vector<NamedTensor> adapter) {
  std::sort(adapter.begin(), adapter.end(), [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  RunningSha256 hash;
  for (const NamedTensor& piece : adapter)
    hash.add({reinterpret_cast<const uint8_t*>(piece.data), static_cast<size_t>(piece.elements()) * sizeof(float)});
  return hash.finish();
}

}  // namespace bespoke
