// SPDX-License-Identifier: Apache-2.0
#include "format/plan/plan_rules.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "format/json.h"
#include "format/plan/plan_check.h"

namespace bespoke {

extern const unsigned char plan_rules[];
extern const unsigned long plan_rules_size;

namespace {

PlanRules read() {  // our own document, so nothing in it is in doubt
  const JsonRules bounds{"plan rules", Kind::Internal, "Report it to the authors of bespoke", plan_rules_size, 16, plan_rules_size};
  const OwnedJson owned = parse_json({plan_rules, plan_rules_size}, bounds);
  const Json& document = *owned;
  PlanRules rules{};
  for (const Json& row : document["values"])
    rules.values.push_back({one_of<Role>(row["role"]), one_of<Lifetime>(row["lifetime"]), one_of<PlaceKind>(row["place"]),
                            one_of<DType>(row["dtype"]), row["least_rank"].get<int>(), row["most_rank"].get<int>()});
  for (const auto& [name, dtype] : document["batch"].items()) rules.batch[name] = one_of<DType>(dtype);
  for (const auto& [name, dtype] : document["scalars"].items()) rules.scalars[name] = one_of<DType>(dtype);
  rules.option_prefix = document["option_scalars"]["prefix"].get<std::string>();
  rules.option_dtype = one_of<DType>(document["option_scalars"]["dtype"]);
  rules.array_prefix = document["arrays"]["prefix"].get<std::string>();
  for (const Json& dtype : document["arrays"]["dtypes"]) rules.array_dtypes.push_back(one_of<DType>(dtype));
  rules.numbers = document["numbers"].get<std::vector<std::string>>();
  for (int section = 0; section < kSections; section++) {
    const Json& from = document["sections"][kSectionNames[section]];
    SectionRule& rule = rules.sections[section];
    for (const Json& lifetime : from["lifetimes"]) rule.lifetimes.push_back(one_of<Lifetime>(lifetime));
    rule.batch = from["batch"].get<bool>();
    rule.noise = from["noise"].get<bool>();
    rule.weights = from["weights"].get<bool>();
    rule.receives = from["receives"].get<bool>();
    rule.sends = from["sends"].get<bool>();
    for (const Json& role : from["stores"]) rule.stores.push_back(one_of<Role>(role));
    rule.options = from["options"].get<bool>();
    rule.arrays = from["arrays"].get<bool>();
    rule.prompt = from["prompt"].get<std::string>();
    rule.scalars = from["scalars"].get<std::vector<std::string>>();
    rule.emits = from["emits"].get<std::vector<std::string>>();
  }
  const Json& limits = document["limits"];
  rules.value_bytes = limits["value_bytes"].get<uint64_t>();
  rules.region_bytes = limits["region_bytes"].get<uint64_t>();
  rules.sent_bytes = limits["sent_bytes"].get<uint64_t>();
  rules.row = limits["row"].get<int64_t>();
  rules.query = limits["query"].get<int64_t>();
  rules.decode_rows = limits["decode_rows"].get<int64_t>();
  rules.alignment = limits["alignment"].get<int64_t>();
  return rules;
}

}  // namespace

const PlanRules& the_rules() {
  static const PlanRules rules = read();
  return rules;
}

namespace {

bool continues(const std::string& name, const std::string& prefix) {
  return name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

bool is_option(const PlanRules& rules, const std::string& scalar) { return continues(scalar, rules.option_prefix); }

std::string array_name(const std::string& value) {
  const std::string& prefix = the_rules().array_prefix;
  return continues(value, prefix) && value.find('*') == std::string::npos ? value.substr(prefix.size()) : "";
}

#ifdef BESPOKE_RULE_SWITCHES
namespace {

#define BESPOKE_RULE(name) #name,
constexpr const char* kRules[] = {BESPOKE_RULES(BESPOKE_RULE)};
#undef BESPOKE_RULE

int switched_off() {  // -1: none
  const char* const name = std::getenv("BESPOKE_WITHOUT");
  if (name == nullptr) return -1;
  const auto found = std::find(std::begin(kRules), std::end(kRules), std::string(name));
  if (found == std::end(kRules)) {
    std::fprintf(stderr, "BESPOKE_WITHOUT: got '%s', expected the name of a rule (format/plan/plan_rules.h)\n", name);
    std::abort();
  }
  return static_cast<int>(found - std::begin(kRules));
}

}  // namespace

bool in_force(Rule rule) {
  static const int without = switched_off();
  return static_cast<int>(rule) != without;
}

bool is_let_through(const Value& value) {
  const std::vector<Allowed>& rows = the_rules().values;
  if (std::any_of(rows.begin(), rows.end(), [&](const Allowed& row) { return row.is(value); })) return false;
  Value other = value;
  if (!in_force(Rule::table_session)) return value.lifetime == Lifetime::session && value.place == PlaceKind::named;
  if (!in_force(Rule::table_constant)) return value.role == Role::constant && value.place == PlaceKind::named;
  if (!in_force(Rule::table_recorded)) return value.role == Role::recorded && value.place == PlaceKind::scratch;
  if (in_force(Rule::table_rank)) return false;
  return std::any_of(rows.begin(), rows.end(), [&](const Allowed& row) {
    other.rank = static_cast<uint8_t>(row.least_rank);
    return row.is(other);
  });
}
#endif

}  // namespace bespoke
