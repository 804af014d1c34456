// SPDX-License-Identifier: Apache-2.0
// Whether a journal of recorded values is enough to make a step's stores again, and the instructions that do it.
#include <unordered_map>

#include "format/plan/plan_check.h"

namespace bespoke {

bool replay_slice(const Plan& plan, const std::vector<Instruction>& code, std::vector<uint32_t>& positions) {
  std::unordered_map<uint32_t, std::vector<uint32_t>> makers;
  std::vector<uint32_t> todo;
  bool records = false;
  for (uint32_t position = 0; position < code.size(); position++) {
    for_writes(plan, code[position], [&](const Reference& reference) { makers[reference.value].push_back(position); });
    if (code[position].op == Op::store) todo.push_back(position);
    records = records || code[position].op == Op::record;
  }
  if (todo.empty() || !records) return false;
  std::vector<bool> kept(code.size());
  bool depends = false;
  while (!todo.empty() && !depends) {
    const uint32_t position = todo.back();
    todo.pop_back();
    if (kept[position]) continue;
    kept[position] = true;
    for_reads(plan, code[position], [&](const Reference& reference) {
      const Role role = plan.values[reference.value].role;
      depends = depends || role == Role::weight || role == Role::batch;
      const auto found = makers.find(reference.value);
      if (role != Role::temporary || found == makers.end()) return;
      todo.insert(todo.end(), found->second.begin(), found->second.end());
      makers.erase(found);  // they are needed once
    });
  }
  if (depends) return false;
  for (uint32_t position = 0; position < code.size(); position++) {
    if (kept[position]) positions.push_back(position);
  }
  return true;
}

}  // namespace bespoke
