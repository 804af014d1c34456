// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/safetensors_file.h"

#include <algorithm>
#include <vector>

#include "format/owned_json.h"

namespace bespoke {

namespace {

std::vector<float> transpose_of(const Tensor& matrix) {
  const auto rows = static_cast<size_t>(matrix.shape[0]), columns = static_cast<size_t>(matrix.shape[1]);
  const auto* from = reinterpret_cast<const float*>(matrix.data);
  std::vector<float> numbers(rows * columns);
  for (size_t row = 0; row < rows; row++)
    for (size_t column = 0; column < columns; column++) numbers[column * rows + row] = from[row * columns + column];
  return numbers;
}

}  // namespace

void SafetensorsFile::add(const std::string& key, const Tensor& matrix, bool transposed) {
  entries_.emplace(key, Entry{&matrix, transposed});
}

void SafetensorsFile::write(WholeFolder& folder, const std::string& name, const std::map<std::string, std::string>& metadata) const {
  Json header = {{"__metadata__", metadata}};
  size_t offset = 0;
  for (const auto& [key, entry] : entries_) {
    std::vector<int64_t> shape = entry.matrix->shape;
    if (entry.transposed) std::reverse(shape.begin(), shape.end());
    header[key] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {offset, offset + entry.matrix->size}}};
    offset += entry.matrix->size;
  }
  std::string text = header.dump(-1, ' ', true);
  while (text.size() % 8) text += ' ';
  std::string length;
  for (int i = 0; i < 8; i++) length += static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i));
  WholeFolder::File file = folder.create(name);
  file.write(bytes_of(length + text));
  for (const auto& [_, entry] : entries_) {
    if (!entry.transposed) {
      file.write({entry.matrix->data, entry.matrix->size});
    } else {
      const std::vector<float> numbers = transpose_of(*entry.matrix);
      file.write({reinterpret_cast<const uint8_t*>(numbers.data()), entry.matrix->size});
    }
  }
  file.finish();
}

void write_text(WholeFolder& folder, const std::string& name, const std::string& text) {
  WholeFolder::File file = folder.create(name);
  file.write(bytes_of(text));
  file.finish();
}

}  // namespace bespoke
