// SPDX-License-Identifier: Apache-2.0
// Any bytes as JSON, held against one of the definitions of the published schemas (the first byte says which): an Error or faults,
// the same whether the document is read as a whole or piece by piece.
#include <cstdlib>
#include <memory>

#include "error.h"
#include "format/json.h"
#include "mutate.h"

using namespace bespoke;

namespace {

constexpr const char* kDefinitions[] = {
    "Call", "Emit", "Estimate",    "Free",         "GraphRef",    "Load",         "Noise",      "Record",   "Store",     "ValueRecord",
    "Zero", "",     "GraphRecord", "MethodRecord", "ModelRecord", "TargetRecord", "TextRecord", "Training", "LoraRecord"};
constexpr size_t kCount = sizeof kDefinitions / sizeof *kDefinitions, kOfPlans = 11;

struct Nothing : PieceTaker {
  void take(const std::string&, const std::string&, Json&) override { pieces++; }
  size_t pieces = 0;
};

void check(const Schema& schema, const Schema::Part& part, const Bytes& document, const JsonRules& rules) {
  const OwnedJson value = parse_json(document, rules);
  const std::string at = "document";
  Faults faults;
  schema.check(*value, part, {nullptr, &at, 0}, faults);
  if (faults.size() > kMostFaults) std::abort();
  for (const Fault& fault : faults) {
    if (fault.path.compare(0, at.size(), at) != 0 || fault.got.empty() || fault.expected.empty()) std::abort();
  }
  if (&part != &schema.root()) return;
  Faults in_pieces;
  Nothing nothing;
  read_pieces(document, rules, &schema, {"", "graphs", "files", "values", "sections", "sections.*"}, in_pieces, nothing);
  if (faults.empty() != in_pieces.empty()) std::abort();
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size < 2 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);  // the first byte as well
  return 1 + fuzz::mutate_json(data + 1, size - 1, max_size - 1, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Schema plans(plan_schema, plan_schema_size), manifests(manifest_schema, manifest_schema_size);
  if (size == 0) return 0;
  const size_t which = data[0] % (kCount + 1);
  const Schema& schema = which < kOfPlans ? plans : manifests;
  const Schema::Part& part =
      which == kCount || !*kDefinitions[which] ? (data[0] & 0x80 ? plans : manifests).root() : schema.definition(kDefinitions[which]);
  const JsonRules rules{"document", Kind::Bundle, "Get it again", 1 << 16, 12, 10'000};
  try {
    check(&part == &plans.root() ? plans : schema, part, {data + 1, size - 1}, rules);
  } catch (const Error& error) {
    if (error.kind != Kind::Bundle || error.got.empty()) std::abort();
  }
  return 0;
}
