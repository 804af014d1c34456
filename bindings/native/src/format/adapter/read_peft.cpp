// SPDX-License-Identifier: Apache-2.0
#include "format/adapter/peft.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "format/adapter/pieces.h"
#include "format/json.h"
#include "format/safetensors.h"
#include "platform/descriptor.h"

namespace bespoke {

namespace {

constexpr size_t kMaxConfigBytes = 1'000'000, kMaxDepth = 32, kMaxItems = 2'000'000;
// The size of a number that is taken. With larger ones, products of two pieces, summed over a few thousand inputs and squared by a
// norm, come near to what float32 and bfloat16 hold (3e38), and float16 holds no more than 65504.
constexpr float kLargest = 1e4f;
// Settings of PEFT that change what an adapter computes or where it sits; we have none of them, so each must be off.
const std::set<std::string> kMustBeOff = {
    "alora_invocation_tokens", "alpha_pattern",       "exclude_modules", "fan_in_fan_out", "layer_replication",        "layers_to_transform",
    "lora_bias",               "modules_to_save",     "rank_pattern",    "target_parameters", "trainable_token_indices"};
const std::vector<SafetensorsType> kTypes = {{"F32", 4}, {"F16", 2}, {"BF16", 2}};

std::string number_text(const char* form, double number) {
  char text[40];
  std::snprintf(text, sizeof text, form, number);
  return text;
}

[[noreturn]] void refuse(const std::string& path, const std::string& got, const std::string& expected) {
  throw Error(Kind::Adapter, path, got, expected, "Give a LoRA adapter made for this bundle");
}

[[noreturn]] void refuse_damaged(const std::string& path, const std::string& got, const std::string& expected) {
  throw Error(Kind::Adapter, path, got, expected, "Download or write the file again");
}

// A file that somebody else names: opening a pipe waits for its other end, for ever where there is none, and a device may never end.
// A link is followed: a download's folder may consist of them.
struct PlainFile {
  explicit PlainFile(const std::string& path) : path(path), opened(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat found {};
    if (opened.get() < 0 || fstat(opened.get(), &found) != 0) problem = std::strerror(errno);
    else if (!S_ISREG(found.st_mode)) problem = "something that is no plain file";
    size = static_cast<uint64_t>(found.st_size);
  }

  // At most `count` bytes; fewer where the file ends.
  std::vector<uint8_t> read(size_t count, uint64_t offset) const {
    std::vector<uint8_t> bytes(count);
    size_t done = 0;
    while (done < count) {
      const ssize_t got = pread(opened.get(), bytes.data() + done, count - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse_damaged(path, std::strerror(errno), "a readable file");
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    bytes.resize(done);
    return bytes;
  }

  const std::string path;
  const Descriptor opened;
  std::string problem;  // empty: none
  uint64_t size = 0;
};

bool is_off(const Json& value) {  // what Python takes for false
  if (value.is_number()) return value == 0;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

std::string plain(const Json& value) {  // as `shown`, a text without its quotes
  const std::string text = shown(value);
  return value.is_string() ? text.substr(1, text.rfind('\'') - 1) : text;
}

void check_number(const Json& settings, const char* field, double wanted, const std::string& path) {
  const Json got = settings.value(field, Json());
  if (got.is_number() && got.get<double>() == wanted) return;
  refuse(path, field + (" " + shown(got)), number_text("%g", wanted) + ", as the bundle has");
}

bool are_linears(const Json& targets, const Manifest& manifest) {
  if (!targets.is_array()) return false;
  std::vector<std::string> got, linears = manifest.lora_linears;
  for (const Json& target : targets) got.push_back(target.is_string() ? target.get<std::string>() : "");
  std::sort(got.begin(), got.end());
  std::sort(linears.begin(), linears.end());
  return got == linears;
}

void check_settings(const std::string& path, const Manifest& manifest) {
  const PlainFile file(path);
  if (!file.problem.empty()) refuse(path, file.problem, "the adapter_config.json of a PEFT adapter");
  const std::vector<uint8_t> document = file.read(static_cast<size_t>(std::min<uint64_t>(file.size, kMaxConfigBytes + 1)), 0);
  if (document.size() > kMaxConfigBytes)
    refuse(path, "more than " + std::to_string(kMaxConfigBytes) + " bytes", "at most " + std::to_string(kMaxConfigBytes));
  const JsonRules rules{path, Kind::Adapter, "Get the file again from where it was built", kMaxConfigBytes, kMaxDepth, kMaxItems};
  const OwnedJson owned = parse_json({document.data(), document.size()}, rules);
  const Json& settings = *owned;
  if (!settings.is_object()) refuse(path, shown(settings), "an object");
  if (!is_text(settings.value("peft_type", Json()), "LORA")) refuse(path, "peft_type " + shown(settings.value("peft_type", Json())), "LORA");
  check_number(settings, "r", static_cast<double>(manifest.lora_rank), path);
  check_number(settings, "lora_alpha", manifest.lora_alpha, path);
  if (!is_text(settings.value("bias", Json("none")), "none")) refuse(path, "bias " + shown(settings["bias"]), "none");
  for (const auto& [field, value] : settings.items()) {
    if ((kMustBeOff.count(field) || field.compare(0, 4, "use_") == 0) && !is_off(value))
      refuse(path, field.substr(0, 80) + " " + plain(value), "it off: plain LoRA on the same linears of every block");
  }
  // A pattern, or "all-linear": the names of the tensors, which are checked one by one, say what it meant.
  const Json targets = settings.value("target_modules", Json());
  if (targets.is_string() || are_linears(targets, manifest)) return;
  std::vector<std::string> linears = manifest.lora_linears;
  std::sort(linears.begin(), linears.end());
  refuse(path, "target_modules " + plain(targets), joined(linears, ", ") + ", as the bundle has");
}

void check_base(const std::string& path, const SafetensorsHeader& header, const std::string& expected, bool trust_base) {
  const auto found = header.metadata.find(kPeftBaseKey);
  if (found == header.metadata.end()) {
    if (trust_base) return;
    throw Error(Kind::Adapter, path + ", base model", "no hash of the base it was trained on", "base " + expected.substr(0, 12),
                "Pass trust_base=True if you know that it was trained on this model");
  }
  if (found->second == expected) return;
  throw Error(Kind::Adapter, path + ", base model", "an adapter trained on base " + found->second.substr(0, 12), "base " + expected.substr(0, 12),
              "Give an adapter of this bundle's base, or open the bundle it was trained with");
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
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  if (exponent == 31) number = fraction ? NAN : INFINITY;
  else number = std::ldexp(static_cast<float>(exponent ? 1024 + fraction : fraction), (exponent ? exponent : 1) - 25);
  return half >> 15 ? -number : number;
}

std::vector<float> numbers_of(const PlainFile& file, const SafetensorsEntry& entry, const std::string& name) {
  const std::vector<uint8_t> raw = file.read(static_cast<size_t>(entry.end - entry.begin), entry.begin);
  if (raw.size() != entry.end - entry.begin)
    refuse_damaged(file.path, std::to_string(raw.size()) + " bytes of " + entry.name, std::to_string(entry.end - entry.begin));
  const size_t width = entry.dtype == "F32" ? 4 : 2;
  std::vector<float> numbers(raw.size() / width);
  for (size_t i = 0; i < numbers.size(); i++) numbers[i] = number_of(raw.data() + width * i, entry.dtype);
  float largest = 0;
  for (const float number : numbers) largest = std::isfinite(number) ? std::max(largest, std::abs(number)) : INFINITY;
  if (largest > kLargest) {
    const bool is_finite = std::isfinite(largest);
    throw Error(Kind::Adapter, file.path + ", piece " + name, is_finite ? "a number of size " + number_text("%.3g", largest) : "NaN or infinity",
                "finite numbers of size " + number_text("%g", kLargest) + " at most",
                "Give an adapter that was trained to its end, and export it again");
  }
  return numbers;
}

// What is not trained is no part of a state: it must be the bundle's own, to the bit.
void check_frozen(const std::string& path, const std::string& piece, const std::vector<float>& numbers, const Tensor& own) {
  if (std::memcmp(numbers.data(), own.data, sizeof(float) * numbers.size()) == 0) return;
  throw Error(Kind::Adapter, path + ", piece " + piece, "another A than the bundle's", "the bundle's own: it trains B alone (lora.train)",
              "Give an adapter that was exported from this bundle, or build one with Lora(train=\"both\")");
}

}  // namespace

std::map<std::string, std::vector<float>> read_peft(const std::string& folder, const Manifest& manifest, const Tensors& initial,
                                                    bool trust_base) {
  check_settings(folder + "/" + kPeftConfig, manifest);
  const PlainFile file(folder + "/" + kPeftWeights);
  if (!file.problem.empty()) refuse_damaged(file.path, file.problem, "a readable file");
  const std::vector<uint8_t> start = file.read(kSafetensorsStart, 0);
  const size_t header_bytes = safetensors_header_bytes({start.data(), start.size()}, file.size, file.path, Kind::Adapter);
  const std::vector<uint8_t> text = file.read(header_bytes, kSafetensorsStart);
  const SafetensorsHeader header = read_safetensors_header({text.data(), text.size()}, file.size, file.path, Kind::Adapter, kTypes);
  check_base(file.path, header, manifest.base_sha256, trust_base);
  std::map<std::string, std::string> keys;  // -> name of the piece
  for (const auto& [name, _] : initial) keys[peft_key(piece_named(name), manifest)] = name;
  std::set<std::string> got, expected;
  for (const SafetensorsEntry& entry : header.entries) got.insert(entry.name);
  for (const auto& [key, _] : keys) expected.insert(key);
  check_names(file.path, got, expected, manifest);
  for (const SafetensorsEntry& entry : header.entries) {  // all of them before a number is read
    const std::vector<int64_t>& shape = initial.at(keys.at(entry.name)).shape;
    if (entry.shape != shape)
      throw Error(Kind::Adapter, file.path + ", tensor " + entry.name, "shape " + shape_text(entry.shape), shape_text(shape),
                  "Give an adapter of this model");
  }
  std::map<std::string, std::vector<float>> pieces;
  for (const SafetensorsEntry& entry : header.entries) {
    const std::string& name = keys.at(entry.name);
    std::vector<float> numbers = numbers_of(file, entry, name);
    if (manifest.trains(name)) pieces[name] = std::move(numbers);
    else check_frozen(file.path, name, numbers, initial.at(name));
  }
  return pieces;
}

}  // namespace bespoke
