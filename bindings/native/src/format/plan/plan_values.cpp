// SPDX-License-Identifier: Apache-2.0
// The rules of a plan's table of values, each value by itself: kind, name, shape, size, place (sdk/bespoke/plan/values.py).
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "error.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"

namespace bespoke {

namespace {

using Wide = unsigned __int128;

bool is_number(const std::string& digits, size_t most) {  // above 0, without a sign or a leading 0
  return !digits.empty() && digits.size() <= most && digits[0] != '0' && digits.find_first_not_of("0123456789") == std::string::npos;
}

class ValueChecker {
 public:
  ValueChecker(const Plan& plan, const std::string& subject) : p_(plan), rules_(the_rules()), subject_(subject) {}

  void check() {
    check_region("arena_bytes", p_.estimate.arena_bytes);
    check_region("scratch_bytes", p_.estimate.scratch_bytes);
    std::unordered_map<int64_t, uint32_t> names;
    uint64_t totals[6] = {};
    std::unordered_set<std::string> pieces;
    std::vector<uint32_t> states;
    for (uint32_t id = 0; id < p_.values.size(); id++) {
      const Value& value = p_.values[id];
      at_ = "value " + std::to_string(id);
      check_value(id);
      if (value.place == PlaceKind::named) {
        const auto [other, is_new] = names.emplace(value.where, id);
        if (!is_new && in_force(Rule::name))
          refuse("the name of value " + std::to_string(other->second) + ", '" + p_.name(id) + "'", "a name of its own");
      }
      if (value.role == Role::optimizer) states.push_back(id);
      if (value.role == Role::adapter && value.place == PlaceKind::named) pieces.insert(p_.name(id));
      if (value.lifetime != Lifetime::step && value.lifetime != Lifetime::session && value.lifetime != Lifetime::state) continue;
      uint64_t& total = totals[static_cast<size_t>(value.lifetime)];
      total += (checked_bytes(p_, id) + 63) / 64 * 64;
      if (total > rules_.region_bytes && in_force(Rule::region))
        refuse("more than " + std::to_string(rules_.region_bytes) + " bytes of " + say(kLifetimeNames, value.lifetime) + " values",
               "fewer");
    }
    for (const uint32_t id : states) check_owner(id, pieces);
  }

 private:
  [[noreturn]] void refuse(const std::string& got, const std::string& expected) const {
    throw Error(Kind::Plan, subject_ + ": " + at_, got, expected, "Build the bundle again");
  }

  void check_region(const char* name, uint64_t size) {
    at_ = std::string("estimate.") + name;
    if (size > rules_.region_bytes && in_force(Rule::region))
      refuse(std::to_string(size), "at most " + std::to_string(rules_.region_bytes));
  }

  void check_value(uint32_t id) const {
    const Value& value = p_.values[id];
    const auto allows = [&](const Allowed& row) { return row.is(value); };
    if (std::none_of(rules_.values.begin(), rules_.values.end(), allows) && !is_let_through(value))
      refuse("a " + say(kRoleNames, value.role) + " of lifetime " + say(kLifetimeNames, value.lifetime) + " placed by '" +
                 say(kPlaceKindNames, value.place) + "', " + say(kDTypeNames, value.dtype) + " of rank " + std::to_string(value.rank),
             allowed_of(value.role));
    const uint64_t bytes = checked_bytes(p_, id);
    if (bytes > rules_.value_bytes) refuse("more than " + std::to_string(rules_.value_bytes) + " bytes", "fewer");
    if (value.place == PlaceKind::arena || value.place == PlaceKind::scratch) {
      const uint64_t limit = value.place == PlaceKind::arena ? p_.estimate.arena_bytes : p_.estimate.scratch_bytes;
      const Wide end = static_cast<Wide>(value.where) + bytes;
      if (end > limit && in_force(Rule::place)) refuse("bytes up to " + shown(end), "bytes up to " + std::to_string(limit));
      if (value.where % rules_.alignment) refuse("offset " + std::to_string(value.where), "an aligned offset");
    }
    if (value.place == PlaceKind::named && !is_let_through(value)) check_name(id);
  }

  // A state is kept in one file with the piece that it belongs to.
  void check_owner(uint32_t id, const std::unordered_set<std::string>& pieces) {
    if (p_.values[id].place != PlaceKind::named) return;
    const std::string& name = p_.name(id);
    const size_t dot = name.rfind('.');
    at_ = "value " + std::to_string(id);
    if (dot == std::string::npos || dot + 1 == name.size() || !pieces.count(name.substr(0, dot)))
      refuse("optimizer '" + name + "'", "<piece>.<state>, of a piece of the adapter");
  }

  void check_name(uint32_t id) const {
    const Value& value = p_.values[id];
    const std::string& name = p_.name(id);
    const std::string got = say(kRoleNames, value.role) + " '" + name + "', " + shown_type(p_, Reference{id});
    if (value.role == Role::weight && name.find('.') == std::string::npos) refuse(got, "<group>.<tensor>");
    if (value.role == Role::scalar && in_force(Rule::scalar)) {
      const auto found = rules_.scalars.find(name);
      const bool known =
          is_option(rules_, name) ? value.dtype == rules_.option_dtype : found != rules_.scalars.end() && found->second == value.dtype;
      if (!known) refuse(got, "one of " + scalars());
    }
    if (value.role == Role::batch && in_force(Rule::batch)) check_batch(id, name, got);
  }

  std::string scalars() const {
    std::string text;
    for (const auto& [name, dtype] : rules_.scalars) text += (text.empty() ? "" : ", ") + name + " " + say(kDTypeNames, dtype);
    return text + ", or " + rules_.option_prefix + "<name> " + say(kDTypeNames, rules_.option_dtype);
  }

  void check_batch(uint32_t id, const std::string& name, const std::string& got) const {
    const BatchTensor expected = batch_tensor(p_, id);
    if (!expected.rows) {
      std::string names;
      for (const auto& [known, _] : rules_.batch) names += known + ", ";
      refuse(got, names + "with *<copies>, " + rules_.array_prefix + "<name>, or prompt_<length>");
    }
    const int64_t* shape = p_.shape(id);
    const Value& value = p_.values[id];
    const bool same =
        value.dtype == expected.dtype && value.rank == 2 && static_cast<Wide>(shape[0]) == expected.rows && shape[1] == expected.length;
    if (!same) refuse(got, say(kDTypeNames, expected.dtype) + " [" + shown(expected.rows) + ", " + std::to_string(expected.length) + "]");
  }

  std::string allowed_of(Role role) const {
    std::string text;
    for (const Allowed& row : rules_.values) {
      if (row.role != role) continue;
      text += (text.empty() ? "" : "; ") + say(kLifetimeNames, row.lifetime) + " '" + say(kPlaceKindNames, row.place) + "' " +
              say(kDTypeNames, row.dtype) + " of rank " + std::to_string(row.least_rank);
      if (row.most_rank > row.least_rank) text += " to " + std::to_string(row.most_rank);
    }
    return text;
  }

  static std::string shown(Wide number) {
    std::string digits;
    do digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(number % 10)));
    while (number /= 10);
    return digits;
  }

  const Plan& p_;
  const PlanRules& rules_;
  const std::string& subject_;
  std::string at_;
};

}  // namespace

uint64_t checked_bytes(const Plan& plan, uint32_t id) {
  const uint64_t most = the_rules().value_bytes;
  const Value& value = plan.values[id];
  for (int i = 0; i < value.rank; i++)
    if (plan.shape(id)[i] == 0) return 0;
  uint64_t size = bytes_of(value.dtype);
  for (int i = 0; i < value.rank; i++) {
    const uint64_t extent = static_cast<uint64_t>(plan.shape(id)[i]);  // up to 2^40
    size = extent > most / size ? most + 1 : size * extent;
    if (size > most) return most + 1;
  }
  return size;
}

BatchTensor batch_tensor(const Plan& plan, uint32_t value) {
  const std::string& name = plan.name(value);
  if (!array_name(name).empty()) {
    const std::vector<DType>& dtypes = the_rules().array_dtypes;
    const bool taken = std::find(dtypes.begin(), dtypes.end(), plan.values[value].dtype) != dtypes.end();
    return {name, 1, taken ? plan.values[value].dtype : dtypes.front(), static_cast<Wide>(plan.batch_size), plan.sequence_length};
  }
  const std::string prompt = "prompt_";
  if (name.compare(0, prompt.size(), prompt) == 0) {
    const std::string digits = name.substr(prompt.size());
    const int64_t length = is_number(digits, 9) ? std::stoll(digits) : 0;
    const bool is_row_count = plan.has[static_cast<int>(Section::decode_rows)] && length >= 2 && length <= the_rules().decode_rows;
    if (length == 0 || (length != 1 && length != plan.sequence_length && !is_row_count)) return {};
    return {"", 0, DType::int64, 1, length};
  }
  const size_t star = name.find('*');
  const std::string base = name.substr(0, star), copies = star == std::string::npos ? "" : name.substr(star + 1);
  const auto found = the_rules().batch.find(base);
  if (found == the_rules().batch.end() || (star != std::string::npos && (!is_number(copies, 6) || copies == "1"))) return {};
  const int64_t count = copies.empty() ? 1 : std::stoll(copies);
  return {base, count, found->second, static_cast<Wide>(plan.batch_size) * static_cast<Wide>(count), plan.sequence_length};
}

bool shape_is(const Plan& plan, const Reference& reference, const int64_t* shape, size_t rank) {
  if (plan.values[reference.value].rank != rank) return false;
  for (size_t i = 0; i < rank; i++) {
    const int64_t extent = i == 0 && reference.rows >= 0 ? reference.rows : plan.shape(reference.value)[i];
    if (extent != shape[i]) return false;
  }
  return true;
}

std::string shown_type(const Plan& plan, const Reference& reference) {
  const int64_t* extents = plan.shape(reference.value);
  std::vector<int64_t> shape(extents, extents + plan.values[reference.value].rank);
  if (reference.rows >= 0) shape[0] = reference.rows;
  return say(kDTypeNames, plan.values[reference.value].dtype) + " " + shown_shape(shape);
}

std::string shown_shape(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t extent : shape) out += (out.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + out + "]";
}

void check_values(const Plan& plan, const std::string& subject) { ValueChecker(plan, subject).check(); }

}  // namespace bespoke
