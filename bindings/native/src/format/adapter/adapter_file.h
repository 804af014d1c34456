// SPDX-License-Identifier: Apache-2.0
// The files of an adapter from elsewhere: a JSON document of settings and a safetensors file, both named by somebody else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/json.h"
#include "format/safetensors.h"
#include "platform/descriptor.h"

namespace bespoke {

// AdapterError for settings that mean another adapter than a bundle can hold.
[[noreturn]] void refuse(const std::string& path, const std::string& got, const std::string& expected,
                         const Wording& next_step = "Give a LoRA adapter made for this bundle");

std::string number_text(const char* form, double number);

// The size of a number that is taken. With larger ones, products of two pieces, summed over a few thousand inputs and squared by a
// norm, come near to what float32 and bfloat16 hold (3e38), and float16 holds no more than 65504.
constexpr float kLargest = 1e4f;
void check_size(float largest, const std::string& subject);  // AdapterError

// Opened without waiting: a pipe would wait for its other end, for ever where there is none, and a device may never end.
// A link is followed: a download's folder may consist of them.
class PlainFile {
 public:
  explicit PlainFile(const std::string& path);
  std::vector<uint8_t> read(size_t count, uint64_t offset) const;  // at most `count` bytes; fewer where the file ends

  const std::string path;
  std::string problem;  // empty: none
  uint64_t size = 0;

 private:
  const Descriptor opened_;
};

OwnedJson read_settings(const std::string& path);          // an object, bounded in size and depth
const Json& member(const Json& object, const char* name);  // null where there is none
bool are_texts(const Json& values);                        // a list of texts

class AdapterTensors {  // headers are read at once, numbers when they are asked for
 public:
  explicit AdapterTensors(const std::string& path);
  std::vector<float> numbers(const SafetensorsEntry& entry, const std::string& piece) const;  // finite, of size kLargest at most

  const std::string& path() const { return file_.path; }
  SafetensorsHeader header;

 private:
  const PlainFile file_;
};

}  // namespace bespoke
