// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/adapter_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

namespace bespoke {

namespace {

constexpr size_t kMaxConfigBytes = 1'000'000, kMaxDepth = 32, kMaxItems = 2'000'000;
const std::vector<SafetensorsType> kTypes = {{"F32", 4}, {"F16", 2}, {"BF16", 2}};

[[noreturn]] void refuse_damaged(const std::string& path, const std::string& got, const std::string& expected) {
  throw Error(Kind::Adapter, path, got, expected, "Download or write the file again");
}

float number_of(const uint8_t* at, const std::string& dtype) {
  float number;
  if (dtype == "F32") {
    std::memcpy(&number, at, sizeof number);
    return number;
  }
  const uint32_t half = at[0] | uint32_t{at[1]} << 8;
  if (dtype == "BF16") {  // the upper half of a float32
    const uint32_t bits = half << 16;
    std::memcpy(&number, &bits, sizeof number);
    return number;
  }
  const auto exponent = static_cast<int>(half >> 10 & 31), fraction = static_cast<int>(half & 1023);
  if (exponent == 31)
    number = fraction ? NAN : INFINITY;
  else
    number = std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction), (exponent ? exponent : 1) - 25);
  return half >> 15 ? -number : number;
}

}  // namespace

void refuse(const std::string& path, const std::string& got, const std::string& expected, const Wording& next_step) {
  throw Error(Kind::Adapter, path, got, expected, next_step);
}

std::string number_text(const char* form, double number) {
  char text[40];
  std::snprintf(text, sizeof text, form, number);
  return text;
}

void check_size(float largest, const std::string& subject) {
  if (largest <= kLargest) return;
  throw Error(Kind::Adapter, subject, std::isfinite(largest) ? "a number of size " + number_text("%.3g", largest) : "NaN or infinity",
              "finite numbers of size " + number_text("%g", kLargest) + " at most",
              "Give an adapter that was trained to its end, and export it again");
}

PlainFile::PlainFile(const std::string& path) : path(path), opened_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat found{};
  if (opened_.get() < 0 || fstat(opened_.get(), &found) != 0)
    problem = std::strerror(errno);
  else if (!S_ISREG(found.st_mode))
    problem = "something that is no plain file";
  size = static_cast<uint64_t>(found.st_size);
}

std::vector<uint8_t> PlainFile::read(size_t count, uint64_t offset) const {
  std::vector<uint8_t> bytes(count);
  size_t done = 0;
  while (done < count) {
    const ssize_t got = pread(opened_.get(), bytes.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_damaged(path, std::strerror(errno), "a readable file");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

OwnedJson read_settings(const std::string& path) {
  const PlainFile file(path);
  if (!file.problem.empty()) refuse(path, file.problem, "the adapter_config.json of a PEFT or MLX adapter");
  const std::vector<uint8_t> document = file.read(static_cast<size_t>(std::min<uint64_t>(file.size, kMaxConfigBytes + 1)), 0);
  if (document.size() > kMaxConfigBytes)
    refuse(path, "more than " + std::to_string(kMaxConfigBytes) + " bytes", "at most " + std::to_string(kMaxConfigBytes));
  const JsonRules rules{path, Kind::Adapter, "Get the file again from where it was built", kMaxConfigBytes, kMaxDepth, kMaxItems};
  OwnedJson settings = parse_json({document.data(), document.size()}, rules);
  if (!settings->is_object()) refuse(path, shown(*settings), "an object");
  return settings;
}

const Json& member(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

bool are_texts(const Json& values) {
  return values.is_array() && std::all_of(values.begin(), values.end(), [](const Json& value) { return value.is_string(); });
}

AdapterTensors::AdapterTensors(const std::string& path) : file_(path) {
  if (!file_.problem.empty()) refuse_damaged(path, file_.problem, "a readable file");
  const std::vector<uint8_t> start = file_.read(kSafetensorsStart, 0);
  const size_t header_bytes = safetensors_header_bytes({start.data(), start.size()}, file_.size, path, Kind::Adapter);
  const std::vector<uint8_t> text = file_.read(header_bytes, kSafetensorsStart);
  header = read_safetensors_header({text.data(), text.size()}, file_.size, path, Kind::Adapter, kTypes, false);
}

std::vector<float> AdapterTensors::numbers(const SafetensorsEntry& entry, const std::string& piece) const {
  const std::vector<uint8_t> raw = file_.read(static_cast<size_t>(entry.end - entry.begin), entry.begin);
  if (raw.size() != entry.end - entry.begin)
    refuse_damaged(file_.path, std::to_string(raw.size()) + " bytes of " + entry.name, std::to_string(entry.end - entry.begin));
  const size_t width = entry.dtype == "F32" ? 4 : 2;
  std::vector<float> numbers(raw.size() / width);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = number_of(raw.data() + width * i, entry.dtype);
  float largest = 0;
  for (const float number : numbers) largest = std::isfinite(number) ? std::max(largest, std::abs(number)) : INFINITY;
  check_size(largest, file_.path + ", piece " + piece);
  return numbers;
}

}  // namespace bespoke
