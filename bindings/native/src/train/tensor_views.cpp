// SPDX-License-Identifier: Apache-2.0
#include "train/tensor_views.h"

namespace bespoke {

TensorSource source_of(const MappedTensors& tensors) {
  TensorSource source;
  for (const StateTensor& tensor : tensors.all())
    source.emplace(tensor.name, FloatTensor{tensor.data, {tensor.shape, tensor.shape + tensor.rank}});
  return source;
}

std::vector<StateTensor> state_tensors(const std::vector<NamedTensor>& tensors) {
  std::vector<StateTensor> views;
  views.reserve(tensors.size());
  for (const NamedTensor& tensor : tensors)
    views.push_back({tensor.name, tensor.shape.data(), static_cast<int32_t>(tensor.shape.size()), tensor.data});
  return views;
}

}  // namespace bespoke
