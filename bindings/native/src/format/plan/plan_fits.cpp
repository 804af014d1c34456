// SPDX-License-Identifier: Apache-2.0
// What stands in two places is the same (sdk/bespoke/reference/fits.py): a method's settings and its plans, plans and each other, plans
// and the bundle. A plan alone may be sound and still be run with a batch, a state or weights of other sizes. And a plan has the
// sections that are run of it: a method's trains and evaluates, the plan for answers answers.
#include <algorithm>
#include <map>

#include "error.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"

namespace bespoke {

namespace {

bool begins(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

bool is_table(const std::string& name) {  // of the vocabulary
  for (const char* table : {"embedding.table", "head.table"})
    if (name == table || begins(name, std::string(table) + ".")) return true;
  return false;
}

bool is_bound_always(const std::string& scalar) {
  for (const char* name : {"learning_rate", "step", "batch_tokens", "position", "direction", "coefficient", "guidance_coefficient"})
    if (scalar == name) return true;
  return false;
}

constexpr const char* kGeneration = "generation";  // what the plan for answers has for a method

class FitChecker {
 public:
  explicit FitChecker(const Manifest& manifest) : manifest_(manifest) {}

  void check(const Method& method, const std::vector<Plan>& plans) {
    scalars_ = method.scalars;
    check_lengths(method, plans);
    for (size_t n = 0; n < plans.size(); n++) {
      const Plan& plan = plans[n];
      check_plan(plan, method.plans[n], method.name);
      same(Rule::batch_size, "batch_size", plan.batch_size, method.training.batch_size, "training.batch_size");
      check_training(plan, method);
      for (const Section section : {Section::finish, Section::federated_measure, Section::federated_project})
        if (plan.has[static_cast<int>(section)] != plans.front().has[static_cast<int>(section)])
          refuse("sections", std::string(kSectionNames[static_cast<int>(section)]) + " in some plans of the method",
                 "it in all or none: one run may be stepped by all of them");
      check_parts(plan);
    }
  }

  void check(const PlanRecord& record, const Plan& plan) {
    check_plan(plan, record, kGeneration);
    if (plan.batch_size != 1 && in_force(Rule::batch_size))
      refuse("batch_size", std::to_string(plan.batch_size), "1, as an answer is one row");
    for (int section = 0; section < kSections; section++) {
      if (section == static_cast<int>(Section::decode_rows)) continue;  // it may have it
      const bool answers = section == static_cast<int>(Section::prefill) || section == static_cast<int>(Section::decode);
      if (plan.has[section] != answers)
        refuse("sections", (answers ? "no " : "") + std::string(kSectionNames[section]), "prefill and decode, which an answer runs");
    }
    check_parts(plan);
  }

 private:
  void check_parts(const Plan& plan) {
    for (uint32_t id = 0; id < plan.values.size(); id++) check_value(plan, id);
    check_loads(plan);
    check_logits(plan);
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& expected) const {
    throw Error(Kind::Plan, subject_ + ": " + what, got, expected, "Get the bundle again from where it was built");
  }

  void same(Rule rule, const char* what, int64_t got, int64_t expected, const char* of) const {
    if (got != expected && in_force(rule)) refuse(what, std::to_string(got), std::to_string(expected) + ", as " + of + " says");
  }

  void check_lengths(const Method& method, const std::vector<Plan>& plans) {
    subject_ = "method '" + method.name + "'";
    std::vector<int64_t> asked = method.training.sequence_lengths, there;
    for (const Plan& plan : plans) there.push_back(plan.sequence_length);
    std::sort(asked.begin(), asked.end());
    std::sort(there.begin(), there.end());
    if (asked != there && in_force(Rule::sequence_length))
      refuse("training.sequence_lengths", shown_shape(asked), shown_shape(there) + ", which it has plans for");
  }

  void check_plan(const Plan& plan, const PlanRecord& record, const std::string& method) {
    subject_ = record.file;
    if (plan.method != method) refuse("method", "'" + plan.method + "'", "'" + method + "', whose plan it is");
    same(Rule::sequence_length, "sequence_length", plan.sequence_length, record.sequence_length, "the manifest");
  }

  void check_training(const Plan& plan, const Method& method) const {
    if (method.replayable && !plan.replayable) refuse("replayable", "false", "true, as the manifest says");
    const bool accumulates = method.training.accumulates();
    const Section needed = accumulates ? Section::micro_step : Section::train_step;
    if (!plan.has[static_cast<int>(needed)])
      refuse("sections", std::string("no ") + kSectionNames[static_cast<int>(needed)],
             "what training with accumulation " + std::to_string(method.training.accumulation) +
                 (method.training.clip_norm ? " and a clip norm" : "") + " runs");
    for (const Section answers : {Section::prefill, Section::decode, Section::decode_rows}) {
      if (!manifest_.generation && answers != Section::decode_rows) continue;  // before format 1.2 every plan of a method could answer
      if (plan.has[static_cast<int>(answers)])
        refuse("sections", kSectionNames[static_cast<int>(answers)],
               "no others than train_step, micro_step, apply_step, finish, evaluate_step, federated_measure, federated_project, "
               "federated_apply");
    }
  }

  void check_value(const Plan& plan, uint32_t id) {
    const Value& value = plan.values[id];
    if (value.place != PlaceKind::named) return;
    const std::string& name = plan.name(id);
    const std::string at = "value " + std::to_string(id) + ", '" + name + "'";
    if (value.role == Role::scalar) {
      if (!is_bound_always(name) && !scalars_.count(name)) refuse(at, "a scalar that nobody binds", "one of the method's scalars");
    }
    if (value.role == Role::scalar || value.role == Role::batch) return;
    const auto [known, is_new] = shapes_.emplace(name, shown_type(plan, Reference{id}));
    if (!is_new && known->second != shown_type(plan, Reference{id}) && in_force(Rule::one_shape))
      refuse(at, shown_type(plan, Reference{id}), known->second + ", as in another plan of the method");
    if (value.role == Role::weight) check_weight(plan, id, name, at);
    if (is_new) check_total(value.lifetime, checked_bytes(plan, id), at);
  }

  void check_weight(const Plan& plan, uint32_t id, const std::string& name, const std::string& at) const {
    const std::string group = name.substr(0, name.find('.'));
    if (!manifest_.weights.count(group) && in_force(Rule::weight_group))
      refuse(at, "no weight group '" + group + "' in the bundle", groups());
    if (is_table(name)) same(Rule::vocab_size, (at + ", rows").c_str(), plan.shape(id)[0], manifest_.vocab_size, "vocab_size of the model");
  }

  void check_total(Lifetime lifetime, uint64_t bytes, const std::string& at) {
    uint64_t& total = totals_[static_cast<size_t>(lifetime)];
    total += (bytes + 63) / 64 * 64;
    if (lifetime != Lifetime::bundle && total > the_rules().region_bytes)
      refuse(at, "more than " + std::to_string(the_rules().region_bytes) + " bytes of its lifetime", "fewer");
  }

  void check_loads(const Plan& plan) const {
    for (const auto& section : plan.sections)
      for (const Instruction& i : section)
        if (i.op == Op::load && !manifest_.weights.count(plan.names[i.load.group]) && in_force(Rule::weight_group))
          refuse("load of '" + plan.names[i.load.group] + "'", "no weight group of that name in the bundle", groups());
  }

  void check_logits(const Plan& plan) const {
    for (const Section section : {Section::decode, Section::decode_rows})
      for (const Instruction& i : plan.sections[static_cast<int>(section)]) {
        if (i.op != Op::emit || plan.names[i.emit.name] != "logits") continue;
        const bool rows = section == Section::decode_rows;
        same(Rule::vocab_size, rows ? "logits of decode_rows" : "logits of decode",
             rows ? plan.shape(i.emit.source)[0] : plan.elements(i.emit.source), manifest_.vocab_size, "vocab_size of the model");
      }
  }

  std::string groups() const {
    std::string names;
    for (const auto& [group, _] : manifest_.weights) names += (names.empty() ? "" : ", ") + group;
    return "one of " + names;
  }

  const Manifest& manifest_;
  std::map<std::string, double> scalars_;  // that are bound by name, apart from those of every method
  std::string subject_;
  std::map<std::string, std::string> shapes_;  // of what is found by name
  uint64_t totals_[6] = {};
};

}  // namespace

void verify_method(const Method& method, const std::vector<Plan>& plans, const Manifest& manifest) {
  FitChecker(manifest).check(method, plans);
}
void verify_generation(const PlanRecord& record, const Plan& plan, const Manifest& manifest) { FitChecker(manifest).check(record, plan); }

}  // namespace bespoke
