// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an Error, or tensors within the file that fill it without holes.
#include <cstdlib>

#include "format/bundle/bundle.h"
#include "mutate.h"

using namespace bespoke;

// Changes the header and says its new length, so that the data stays where the header says it is.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const size_t length = size < 8 ? size : data[0] + size_t{256} * data[1];
  if (size < 8 || length > size - 8 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string header(data + 8, data + 8 + length), rest(data + 8 + length, data + size);
  header.resize(max_size - 8 - rest.size());
  size_t changed = fuzz::mutate_json(reinterpret_cast<uint8_t*>(&header[0]), length, header.size(), seed);
  while (changed % 8 && changed < header.size()) header[changed++] = ' ';
  for (size_t i = 0; i < 8; i++) data[i] = static_cast<uint8_t>(changed >> (8 * i));
  std::memcpy(data + 8, header.data(), changed);
  std::memcpy(data + 8 + changed, rest.data(), rest.size());
  return 8 + changed + rest.size();
}

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
