// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an Error, or tensors within the file that fill it without holes.
#include <cstdlib>

#include "format/bundle.h"

using namespace bespoke;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Tensors tensors = read_tensors({data, size}, "file", Kind::Bundle);
    size_t bytes = 0, ends = 0;
    for (const auto& [name, tensor] : tensors) {
      size_t expected = bytes_of(tensor.dtype);
      for (const int64_t extent : tensor.shape) expected *= static_cast<size_t>(extent);
      if (expected != tensor.size || (tensor.data - data) % static_cast<ptrdiff_t>(bytes_of(tensor.dtype))) std::abort();
      if (tensor.size) ends += tensor.data[0] + tensor.data[tensor.size - 1];  // within the file, or the sanitizer ends this
      bytes += tensor.size;
    }
    if (bytes > size || ends > 510 * tensors.size()) std::abort();
  } catch (const Error& error) {
    if (error.kind != Kind::Bundle || error.got.empty()) std::abort();
  }
  return 0;
}
