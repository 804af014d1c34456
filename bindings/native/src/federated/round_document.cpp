// SPDX-License-Identifier: Apache-2.0
#include "federated/round_document.h"

#include <sodium/crypto_sign_ed25519.h>

#include <cmath>
#include <cstring>

#include "format/json.h"
#include "format/json_schema.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr const char* kAnswer = "the server's answer";
constexpr const char* kDocument = "the server's document";
constexpr const char* kNextStep = "Ask the server again, and tell its owner if this stays";
constexpr size_t kMostBytes = size_t{16} << 20, kMostDepth = 12, kMostItems = size_t{1} << 18;
constexpr char kSignedAs[] = "bespoke round document 1";  // with the 0 at its end (sdk/bespoke/bundle/signature.py)
constexpr size_t kCoefficientBytes = 3;
constexpr uint32_t kTooFine = 0xF;  // bits of a coefficient's three bytes beyond 12 significant ones

[[noreturn]] void refuse(const std::string& path, const std::string& got, const std::string& expected) {
  throw Error(Kind::Data, std::string(kDocument) + (path.empty() ? "" : ": " + path), got, expected, kNextStep);
}

JsonRules rules_of(const char* subject) { return {subject, Kind::Data, kNextStep, kMostBytes, kMostDepth, kMostItems}; }

// Bytes of hexadecimal digits; empty where it is something else.
std::vector<uint8_t> bytes_of_hexadecimal(const std::string& text) {
  const auto value = [](char digit) {
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
  };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = value(text[i]), low = value(text[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes.push_back(static_cast<uint8_t>(high << 4 | low));
  }
  return text.size() % 2 ? std::vector<uint8_t>() : bytes;
}

// Bytes of base64 with its padding; none where it is something else.
std::optional<std::vector<uint8_t>> bytes_of_base64(const std::string& text) {
  const auto value = [](char digit) -> int {
    if (digit >= 'A' && digit <= 'Z') return digit - 'A';
    if (digit >= 'a' && digit <= 'z') return digit - 'a' + 26;
    if (digit >= '0' && digit <= '9') return digit - '0' + 52;
    return digit == '+' ? 62 : digit == '/' ? 63 : -1;
  };
  if (text.size() % 4) return std::nullopt;
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool is_last = i + 4 == text.size();
    const int padding = is_last ? (text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
    uint32_t word = 0;
    for (int j = 0; j < 4; j++) {
      const int digit = j >= 4 - padding ? 0 : value(text[i + static_cast<size_t>(j)]);
      if (digit < 0) return std::nullopt;
      word = word << 6 | static_cast<uint32_t>(digit);
    }
    for (int j = 0; j < 3 - padding; j++) bytes.push_back(static_cast<uint8_t>(word >> (16 - 8 * j)));
  }
  return bytes;
}

std::vector<float> coefficients_of(const std::string& text, int64_t count, const std::string& path) {
  const std::optional<std::vector<uint8_t>> bytes = bytes_of_base64(text);
  if (!bytes) refuse(path, "other text", "base64");
  if (bytes->size() != static_cast<size_t>(count) * kCoefficientBytes)
    refuse(path, std::to_string(bytes->size()) + " bytes",
           std::to_string(kCoefficientBytes) + " for each of " + std::to_string(count) + " directions");
  std::vector<float> numbers;
  numbers.reserve(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes->size(); i += kCoefficientBytes) {
    const uint32_t upper = static_cast<uint32_t>((*bytes)[i]) << 16 | static_cast<uint32_t>((*bytes)[i + 1]) << 8 | (*bytes)[i + 2];
    const uint32_t word = upper << 8;
    float number;
    std::memcpy(&number, &word, sizeof number);
    if (!std::isfinite(number) || (upper & kTooFine))
      refuse(path, "a coefficient that is not finite, or finer than it may be", "finite numbers of at most 12 significant bits");
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<ReceivedFile> files_of(const Json& list) {
  std::vector<ReceivedFile> files;
  for (const Json& file : list)
    files.push_back({file["name"].get<std::string>(), file["sha256"].get<std::string>(), file["size"].get<int64_t>()});
  return files;
}

RoundSpan span_of(const Json& from, const std::string& path) {
  RoundSpan span;
  span.first = from["first"].get<int64_t>();
  span.count = from["count"].get<int64_t>();
  span.directions = from["directions"].get<int64_t>();
  span.half = from["half"].get<bool>();
  span.adapter = from["adapter"].get<std::string>();
  span.coefficients =
      coefficients_of(from["coefficients"].get_ref<const std::string&>(), span.count * span.directions, path + ".coefficients");
  if (from["guidance"].is_null()) return span;
  if (span.count != 1) refuse(path + ".count", std::to_string(span.count), "1: each round has its own guidance");
  const Json& guidance = from["guidance"];
  span.guidance = {
      coefficients_of(guidance["coefficients"].get_ref<const std::string&>(), span.directions, path + ".guidance.coefficients"),
      files_of(guidance["files"])};
  return span;
}

// A document contradicts itself where its rounds do not follow each other, or where it measures anything but the round behind them.
void check_order(const RoundDocument& document) {
  int64_t last = document.snapshot ? document.snapshot->round : 0;
  std::string adapter = document.snapshot ? document.snapshot->adapter : "";
  for (const RoundSpan& span : document.rounds) {
    if (last && span.first != last + 1)
      refuse("rounds", "round " + std::to_string(span.first), std::to_string(last + 1) + ", the next one");
    last = span.last();
    adapter = span.adapter;
  }
  if (!document.measure) return;
  if (last && document.measure->round != last + 1)
    refuse("measure.round", std::to_string(document.measure->round), std::to_string(last + 1) + ", the one behind those that have ended");
  if (!adapter.empty() && document.measure->adapter != adapter)
    refuse("measure.adapter", document.measure->adapter.substr(0, 16), adapter.substr(0, 16) + ", that of the last round");
}

}  // namespace

std::vector<ReceivedFile> RoundDocument::files() const {
  std::vector<ReceivedFile> needed;
  if (snapshot) needed.push_back({"", snapshot->sha256, snapshot->size});
  for (const RoundSpan& span : rounds)
    if (span.guidance) needed.insert(needed.end(), span.guidance->files.begin(), span.guidance->files.end());
  if (measure) needed.insert(needed.end(), measure->files.begin(), measure->files.end());
  return needed;
}

std::string authenticated_document(const std::string& answer, const FederationRecord& federation) {
  const OwnedJson whole = parse_json(bytes_of(answer), rules_of(kAnswer));
  const auto text = [&](const char* name) -> const std::string& {
    const auto found = whole->is_object() ? whole->find(name) : whole->end();
    if (found == whole->end() || !found->is_string())
      throw Error(Kind::Data, kAnswer, "no text '" + std::string(name) + "'", "an object of a payload and a signature", kNextStep);
    return found->get_ref<const std::string&>();
  };
  const std::string& payload = text("payload");
  const std::vector<uint8_t> signature = bytes_of_hexadecimal(text("signature")), key = bytes_of_hexadecimal(federation.server_key);
  const std::string message = std::string(kSignedAs, sizeof kSignedAs) + payload;
  if (signature.size() != crypto_sign_ed25519_BYTES || key.size() != crypto_sign_ed25519_PUBLICKEYBYTES ||
      crypto_sign_ed25519_verify_detached(signature.data(), bytes_of(message).data, message.size(), key.data()) != 0)
    throw Error(Kind::Signature, kAnswer, "a signature of other bytes or by another key", "one by the server that the bundle names",
                kNextStep);
  return payload;
}

RoundDocument read_round_document(const std::string& text, const FederationRecord& federation) {
  const OwnedJson whole = parse_json(bytes_of(text), rules_of(kDocument));
  const Schema schema(round_document_schema, round_document_schema_size);
  Faults faults;
  const std::string top;
  Schema::check(*whole, schema.root(), {nullptr, &top, 0}, faults);
  if (!faults.empty()) refuse(faults.front().path, faults.front().got, faults.front().expected);
  RoundDocument document;
  document.task = (*whole)["task"].get<std::string>();
  if (document.task != federation.task) refuse("task", in_quotes(document.task), in_quotes(federation.task) + ", the bundle's");
  document.taken = (*whole)["taken"].get<std::vector<int64_t>>();
  document.wait_seconds = (*whole)["wait_seconds"].get<double>();
  document.done = (*whole)["done"].get<bool>();
  if (const Json& snapshot = (*whole)["snapshot"]; !snapshot.is_null())
    document.snapshot = {snapshot["round"].get<int64_t>(), snapshot["adapter"].get<std::string>(), snapshot["sha256"].get<std::string>(),
                         snapshot["size"].get<int64_t>()};
  for (const Json& span : (*whole)["rounds"]) document.rounds.push_back(span_of(span, "rounds." + std::to_string(document.rounds.size())));
  if (const Json& measure = (*whole)["measure"]; !measure.is_null())
    document.measure = {measure["round"].get<int64_t>(),
                        measure["first"].get<int64_t>(),
                        measure["count"].get<int64_t>(),
                        measure["coefficient"].get<double>(),
                        measure["guidance_coefficient"].get<double>(),
                        files_of(measure["files"]),
                        measure["adapter"].get<std::string>()};
  check_order(document);
  return document;
}

}  // namespace bespoke
