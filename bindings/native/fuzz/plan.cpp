// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan, against the graphs of a manifest (BESPOKE_FUZZ_MANIFEST): an Error, or records in which every index is sound
// and every place within its memory, since what runs them looks no further.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "error.h"
#include "format/bundle/manifest.h"
#include "format/plan/plan.h"
#include "mutate.h"

using namespace bespoke;

namespace {

std::unique_ptr<Manifest> manifest;  // of libFuzzer's one process

void must(bool sound) {
  if (!sound) std::abort();
}

void check_reference(const Plan& plan, const Reference& reference) {
  must(reference.value < plan.values.size());
  if (reference.rows >= 0) must(reference.start >= 0 && reference.start + reference.rows <= plan.shape(reference.value)[0]);
  if (reference.scalar >= 0) must(static_cast<size_t>(reference.scalar) < plan.values.size());
}

void check_instruction(const Plan& plan, const Instruction& i) {
  switch (i.op) {
    case Op::load:
      return must(i.load.group < plan.names.size());
    case Op::free:
      return must(i.free.is_a_group && i.free.of < plan.names.size());
    case Op::zero:
      return must(i.zero.value < plan.values.size());
    case Op::noise:
      return must(i.noise.value < plan.values.size());
    case Op::record:
      return must(i.record.source < plan.values.size() && i.record.value < plan.values.size());
    case Op::emit:
      return must(i.emit.name < plan.names.size() && i.emit.source < plan.values.size());
    case Op::store:
      must(i.store.state < plan.values.size() && plan.values[i.store.state].lifetime == Lifetime::state);
      must(i.store.source < plan.references.size());
      return check_reference(plan, plan.references[i.store.source]);
    case Op::call:
      must(i.call.graph < plan.graphs.size());
      must(size_t{i.call.first} + i.call.operands + i.call.results <= plan.references.size());
      for (uint32_t n = 0; n < i.call.operands + i.call.results; n++) check_reference(plan, plan.references[i.call.first + n]);
  }
}

void check_value(const Plan& plan, uint32_t id) {
  const Value& value = plan.values[id];
  must(size_t{value.shape} + value.rank <= plan.extents.size());
  if (value.place == PlaceKind::named) must(value.where >= 0 && static_cast<size_t>(value.where) < plan.names.size());
  const uint64_t end = static_cast<uint64_t>(value.where) + plan.bytes(id);
  if (value.place == PlaceKind::arena) must(end <= plan.estimate.arena_bytes);
  if (value.place == PlaceKind::scratch) must(end <= plan.estimate.scratch_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* path = std::getenv("BESPOKE_FUZZ_MANIFEST");
  std::ifstream file(path ? path : "", std::ios::binary);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  manifest =
      std::make_unique<Manifest>(read_manifest({reinterpret_cast<const uint8_t*>(document.data()), document.size()}, "manifest.json"));
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const Plan plan = read_plan({data, size}, "plan", *manifest);
    for (uint32_t id = 0; id < plan.values.size(); id++) check_value(plan, id);
    for (const auto& section : plan.sections) {
      for (const Instruction& instruction : section) check_instruction(plan, instruction);
    }
    for (const Instruction& instruction : plan.replay) check_instruction(plan, instruction);
    for (const uint32_t id : plan.recorded) must(id < plan.values.size());
  } catch (const Error& error) {
    must(!error.got.empty() && !error.expected.empty() && !error.next_step.empty());
  }
  return 0;
}
