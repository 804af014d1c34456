// SPDX-License-Identifier: Apache-2.0
// A change of a JSON document that keeps it one: bytes changed at random rarely get behind the first check of a reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace fuzz {

using Json = nlohmann::json;

inline void collect(Json& value, std::vector<Json*>& nodes) {
  nodes.push_back(&value);
  for (Json& inner : value) {
    if (value.is_structured()) collect(inner, nodes);
  }
}

inline int64_t near(int64_t number, std::minstd_rand& random) {
  constexpr int64_t special[] = {0, 1, -1, 2, 15, 16, 64, 1 << 16, INT32_MAX, int64_t{1} << 40, int64_t{1} << 53, INT64_MAX, INT64_MIN};
  if (random() % 4 == 0) return special[random() % (sizeof special / sizeof *special)];
  return static_cast<int64_t>(static_cast<uint64_t>(number) + random() % 9 - 4);
}

inline void change(Json& document, std::minstd_rand& random) {
  std::vector<Json*> nodes;
  collect(document, nodes);
  Json& node = *nodes[random() % nodes.size()];
  const Json other = *nodes[random() % nodes.size()];
  if (node.is_number_integer() && random() % 4) {
    node = near(node.get<int64_t>(), random);
  } else if (node.is_array() && !node.empty() && random() % 4) {
    const auto at = static_cast<Json::difference_type>(random() % node.size());
    const Json element = node[static_cast<size_t>(at)];
    switch (random() % 4) {
      case 0:
        node.erase(node.begin() + at);
        break;
      case 1:
        node.insert(node.begin() + at, node[random() % node.size()]);
        break;
      case 2:
        std::swap(node[static_cast<size_t>(at)], node[random() % node.size()]);
        break;
      default:
        node.push_back(element);
    }
  } else if (node.is_object() && !node.empty() && random() % 4) {
    auto member = node.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(random() % node.size()));
    if (random() % 3)
      *member = other;
    else
      node.erase(member);
  } else {
    node = other;
  }
}

// In place, as LLVMFuzzerCustomMutator does it; every other time bytes are changed instead.
inline size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  Json document = random() % 2 ? Json::parse(data, data + size, nullptr, false) : Json(Json::value_t::discarded);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned times = 1 + random() % 3; times > 0; times--) change(document, random);
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace fuzz
