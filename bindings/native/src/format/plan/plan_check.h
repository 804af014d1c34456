// SPDX-License-Identifier: Apache-2.0
// What read_plan is made of: the rules of a plan, its replay, and the names that errors use. Not for others.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "format/bundle/manifest.h"
#include "format/plan/plan.h"

namespace bespoke {

constexpr uint32_t kNothing = 0xffffffff;  // in a free that names neither value nor group

// FilledRows of a value that something has filled: disjoint, none next to another.
class FilledRows {
 public:
  void fill(int64_t begin, int64_t end) {
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin() && std::prev(next)->second >= begin) {
      --next;
      begin = next->first;
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_[begin] = end;
  }
  bool covers(int64_t begin, int64_t end) const {
    if (begin >= end) return true;
    const auto next = ranges_.upper_bound(begin);
    return next != ranges_.begin() && std::prev(next)->second >= end;
  }

 private:
  std::map<int64_t, int64_t> ranges_;
};

// TakenBytes of a region that living values lie in.
class TakenBytes {
 public:
  // The value that has a byte of these already; none: they are this one's now.
  std::optional<uint32_t> claim(uint64_t begin, uint64_t end, uint32_t value) {
    auto next = spans_.lower_bound(begin);
    if (next != spans_.begin() && std::prev(next)->second.first > begin) --next;
    if (next != spans_.end() && next->first < end) return next->second.second;
    spans_[begin] = {end, value};
    return std::nullopt;
  }
  void release(uint64_t begin) { spans_.erase(begin); }

 private:
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> spans_;  // first byte -> (end, value)
};

template <typename Enum, size_t Count>
std::string say(const char* const (&names)[Count], Enum value) {
  return names[static_cast<size_t>(value)];
}

// Bytes of a value; one more than any may have where they are more.
uint64_t checked_bytes(const Plan& plan, uint32_t id);

bool shape_is(const Plan& plan, const Reference& reference, const int64_t* shape, size_t rank);
std::string shown_shape(const std::vector<int64_t>& shape);            // [2, 3]
std::string shown_type(const Plan& plan, const Reference& reference);  // float32 [2, 3]

// The value of a result of a call that shares a byte with an operand or with another result; none where there is no such result.
std::optional<uint32_t> overlapping_result(const Plan& plan, const Instruction::Call& call);

// PlanError where a section is missing that others need.
void check_sections(const Plan& plan, const std::string& subject);

// Whether a section sends a measurement: federated_project, or federated_measure where there is none.
bool sends(const Plan& plan, Section section);

// How many tokens section `decode_rows` takes at once, as the columns of its first logits say; 0 where it has none that it may have.
int64_t decode_rows(const Plan& plan);

// The rules of each value by itself: the first part of verify_plan.
void check_values(const Plan& plan, const std::string& subject);

// The records of a document that its schema allows; no rule is checked, and frees of values are in their sections.
Plan parse_plan(Bytes document, const std::string& subject);

// Every rule (sdk/bespoke/plan/verify.py). PlanError naming section, instruction and value of the first violation. Frees of values
// are still in their sections here.
void verify_plan(const Plan& plan, const std::string& subject, const Manifest& manifest);

// What was needed to verify and to find the replay, and is not to run, goes.
void keep_what_runs(Plan& plan);

// Every rule between a method, its plans and the manifest (sdk/bespoke/reference/fits.py): numbers that stand in two places are the same,
// what has one name has one shape, weights are of the bundle. `plans` in the order of the method's. PlanError.
void verify_method(const Method& method, const std::vector<Plan>& plans, const Manifest& manifest);
// The same of the plan for answers.
void verify_generation(const PlanRecord& record, const Plan& plan, const Manifest& manifest);

// Positions of the instructions that turn recorded values, state, noise and scalars into stores (sdk/bespoke/plan/replay.py);
// false if some store depends on a batch or a weight, or if nothing is recorded.
[[nodiscard]] bool replay_slice(const Plan& plan, const std::vector<Instruction>& code, std::vector<uint32_t>& positions);

// Calls `visit(reference)` for each result of a call.
template <typename Visit>
void for_results(const Plan& plan, const Instruction::Call& call, Visit visit) {
  for (uint32_t n = 0; n < call.results; n++) visit(plan.references[call.first + call.operands + n]);
}

// Calls `visit(reference)` for what an instruction reads: a scalar that places a row range or numbers a query counts as well.
template <typename Visit>
void for_reads(const Plan& plan, const Instruction& i, Visit visit) {
  const auto with_scalar = [&](const Reference& reference, bool whole) {
    if (whole) visit(reference);
    if (reference.scalar >= 0) visit(Reference{static_cast<uint32_t>(reference.scalar)});
  };
  switch (i.op) {
    case Op::call:
      for (uint32_t n = 0; n < i.call.operands; n++) with_scalar(plan.references[i.call.first + n], true);
      for_results(plan, i.call, [&](const Reference& result) { with_scalar(result, result.how == How::add_to); });
      return;
    case Op::noise:
      if (i.noise.scalar >= 0) visit(Reference{static_cast<uint32_t>(i.noise.scalar)});
      return;
    case Op::record:
      return visit(Reference{i.record.source});
    case Op::send:
      return visit(Reference{i.send.source});
    case Op::store:
      return with_scalar(plan.references[i.store.source], true);
    case Op::emit:
      return visit(Reference{i.emit.source});
    default:
      return;
  }
}

// The same for what it defines or changes; `store` changes nothing before the step ends.
template <typename Visit>
void for_writes(const Plan& plan, const Instruction& i, Visit visit) {
  switch (i.op) {
    case Op::call:
      return for_results(plan, i.call, visit);
    case Op::zero:
      return visit(Reference{i.zero.value});
    case Op::noise:
      return visit(Reference{i.noise.value});
    case Op::record:
      return visit(Reference{i.record.value});
    case Op::receive:
      return visit(Reference{i.receive.value});
    default:
      return;
  }
}

}  // namespace bespoke
