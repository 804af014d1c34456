// SPDX-License-Identifier: Apache-2.0
// The sections that a plan has together, and what follows from one section for another (sdk/bespoke/plan/sections.py).
#include "error.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"

namespace bespoke {

void check_sections(const Plan& plan, const std::string& subject) {
  std::string names;
  for (int i = 0; i < kSections; i++)
    if (plan.has[i]) names += (names.empty() ? "" : ", ") + std::string(kSectionNames[i]);
  const auto has = [&](Section section) { return plan.has[static_cast<int>(section)]; };
  const auto refuse = [&](const std::string& got, const std::string& expected) {
    throw Error(Kind::Plan, subject + ": sections", got, expected, "Build the bundle again");
  };
  if (!has(Section::train_step) && !has(Section::micro_step) && !has(Section::prefill))
    refuse(names.empty() ? "none" : names, "train_step, or micro_step and apply_step, or prefill and decode");
  if (has(Section::micro_step) != has(Section::apply_step)) refuse(names, "micro_step and apply_step together");
  if (has(Section::federated_measure) != has(Section::federated_apply)) refuse(names, "federated_measure and federated_apply together");
  if (has(Section::federated_project) && !has(Section::federated_measure)) refuse(names, "federated_project with federated_measure");
}

bool sends(const Plan& plan, Section section) {
  const bool projects = plan.has[static_cast<int>(Section::federated_project)];
  return section == (projects ? Section::federated_project : Section::federated_measure);
}

int64_t decode_rows(const Plan& plan) {
  for (const Instruction& i : plan.sections[static_cast<int>(Section::decode_rows)]) {
    if (i.op != Op::emit || plan.names[i.emit.name] != "logits" || i.emit.source >= plan.values.size()) continue;
    const int64_t columns = plan.values[i.emit.source].rank == 2 ? plan.shape(i.emit.source)[1] : 0;
    return columns >= 2 && columns <= the_rules().decode_rows ? columns : 0;
  }
  return 0;
}

}  // namespace bespoke
