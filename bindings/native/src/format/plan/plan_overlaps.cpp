// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "format/plan/plan_check.h"

namespace bespoke {

namespace {

struct Span {
  int64_t home;  // -1 arena, -2 scratch, else the value
  uint64_t begin, end;
};

// A range that is placed at run time may be anywhere in its value.
Span span_of(const Plan& plan, const Reference& reference) {
  const Value& v = plan.values[reference.value];
  Span span{static_cast<int64_t>(reference.value), 0, 0};
  if (v.place == PlaceKind::arena || v.place == PlaceKind::scratch) {
    span.home = v.place == PlaceKind::arena ? -1 : -2;
    span.begin = static_cast<uint64_t>(v.where);
  }
  const uint64_t size = checked_bytes(plan, reference.value);
  span.end = span.begin + size;
  if (reference.rows < 0 || reference.scalar >= 0) return span;
  const uint64_t row = size / static_cast<uint64_t>(plan.shape(reference.value)[0]);
  span.begin += static_cast<uint64_t>(reference.start) * row;
  span.end = span.begin + static_cast<uint64_t>(reference.rows) * row;
  return span;
}

}  // namespace

std::optional<uint32_t> overlapping_result(const Plan& plan, const Instruction::Call& call) {
  std::map<int64_t, std::map<uint64_t, uint64_t>> spans;         // home -> first byte -> end
  for (uint32_t n = 0; n < call.operands + call.results; n++) {  // operands, then results
    const Reference& reference = plan.references[call.first + n];
    const Span span = span_of(plan, reference);
    if (span.begin == span.end) continue;
    auto& home = spans[span.home];
    auto next = home.lower_bound(span.begin);
    uint64_t begin = span.begin, end = span.end;
    if (next != home.begin() && std::prev(next)->second > begin) {
      --next;
      begin = next->first;
    }
    while (next != home.end() && next->first < end) {
      if (n >= call.operands) return reference.value;
      end = std::max(end, next->second);  // operands may overlap each other: together they are one
      next = home.erase(next);
    }
    home[begin] = end;
  }
  return std::nullopt;
}

}  // namespace bespoke
