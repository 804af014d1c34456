// SPDX-License-Identifier: Apache-2.0
// Reads a plan one value and one instruction at a time: each is held against its part of the schema, becomes a record, and goes.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "format/json.h"
#include "format/bundle/manifest_check.h"
#include "format/plan/plan_check.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

constexpr size_t kMaxBytes = 8'000'000, kMaxDepth = 12, kMaxItems = 2'000'000;
constexpr int64_t kMajor = 1, kMinor = 2;
constexpr const char* kNextStep = "Build the bundle again; the file is damaged or was written by another program";

class Reader : public PieceTaker {
 public:
  Reader(Plan& plan, const std::string& subject) : p_(plan), subject_(subject) {}

  void open(const std::string& container) override {
    if (container.compare(0, 9, "sections.") != 0) return;
    for (section_ = 0; container.compare(9, std::string::npos, kSectionNames[section_]) != 0;) section_++;  // the schema has no others
    p_.has[section_] = true;
  }

  void take(const std::string& container, const std::string& key, Json& value) override {
    where_ = container.empty() ? "" : container + ".";
    where_ += key;
    if (container == "values")
      take_value(value);
    else if (container == "graphs")
      take_graph(value);
    else if (!container.empty())
      take_instruction(p_.sections[section_], value);
    else if (key == "method")
      p_.method = value.get<std::string>();
    else if (key == "sequence_length")
      p_.sequence_length = whole(value);
    else if (key == "batch_size")
      p_.batch_size = whole(value);
    else if (key == "replayable")
      p_.replayable = value.get<bool>();
    else if (key == "estimate")
      p_.estimate = estimate_of(value);
  }

 private:
  template <typename Number = int64_t>
  Number whole(const Json& number) const {  // into the record's width, which is less than what JSON can say
    const bool fits = number.is_number_unsigned() ? number.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<Number>::max())
                                                  : number.get<int64_t>() >= static_cast<int64_t>(std::numeric_limits<Number>::min());
    if (fits) return number.get<Number>();
    const std::string expected = "a number of " + std::to_string(8 * sizeof(Number)) + " bits";
    throw Error(Kind::Plan, subject_ + ", " + where_, number.dump(), expected, kNextStep);
  }

  uint32_t id(const Json& number) const { return static_cast<uint32_t>(whole<int32_t>(number)); }  // a negative one is outside the table

  uint32_t name(Json& text) {
    const auto [place, is_new] = names_.emplace(text.get_ref<std::string&>(), static_cast<uint32_t>(p_.names.size()));
    if (is_new) p_.names.push_back(place->first);
    return place->second;
  }

  void take_graph(Json& graph) {
    p_.graphs.push_back({graph["key"].get<std::string>(), graph["name"].get<std::string>(), graph["workspace_bytes"].get<uint64_t>()});
  }

  void take_value(Json& value) {
    Value out{};
    out.shape = extents(value["shape"]);
    out.rank = static_cast<uint8_t>(value["shape"].size());
    out.dtype = one_of<DType>(value["dtype"]);
    out.role = one_of<Role>(value["role"]);
    out.lifetime = one_of<Lifetime>(value["lifetime"]);
    Json& place = value["place"];
    out.place = one_of<PlaceKind>(place["kind"]);
    if (out.place == PlaceKind::named)
      out.where = name(place["name"]);
    else
      out.where = whole(place[out.place == PlaceKind::number ? "number" : "offset"]);
    p_.values.push_back(out);
  }

  uint32_t extents(const Json& shape) {  // equal shapes stand once
    std::vector<int64_t> numbers = shape.get<std::vector<int64_t>>();
    const auto [place, is_new] = shapes_.emplace(std::move(numbers), static_cast<uint32_t>(p_.extents.size()));
    if (is_new) p_.extents.insert(p_.extents.end(), place->first.begin(), place->first.end());
    return place->second;
  }

  void take_reference(const Json& operand, How how = How::make) {
    Reference out{id(operand[0])};
    out.how = how;
    if (operand.size() > 1) {
      out.start = whole<int32_t>(operand[1]);
      out.rows = operand.size() > 2 ? whole<int32_t>(operand[2]) : 0;  // [value, start] is no range: 0 rows are refused
      if (out.rows < 0) out.rows = 0;
      if (operand.size() > 3) out.scalar = scalar_id(operand[3]);
    }
    p_.references.push_back(out);
  }

  void take_instruction(std::vector<Instruction>& section, Json& i) {
    Instruction out{};
    out.op = one_of<Op>(i["op"]);
    switch (out.op) {
      case Op::load:
        out.load.group = name(i["group"]);
        break;
      case Op::call:
        out.call = {whole<uint32_t>(i["graph"]), static_cast<uint32_t>(p_.references.size()), static_cast<uint32_t>(i["operands"].size()),
                    static_cast<uint32_t>(i["results"].size())};
        for (const Json& operand : i["operands"]) take_reference(operand);
        for (const Json& result : i["results"]) take_reference(result["to"], one_of<How>(result["how"]));
        break;
      case Op::zero:
        out.zero.value = id(i["value"]);
        break;
      case Op::noise:
        out.noise = noise_of(i);
        break;
      case Op::record:
        out.record = {id(i["source"]), id(i["value"])};
        break;
      case Op::store:
        out.store = {id(i["state"]), static_cast<uint32_t>(p_.references.size())};
        take_reference(i["source"]);
        break;
      case Op::emit:
        out.emit = {name(i["name"]), id(i["source"])};
        break;
      case Op::receive:
        out.receive = {id(i["value"]), name(i["name"])};
        break;
      case Op::send:
        out.send = {id(i["source"])};
        break;
      case Op::free:
        out.free = free_of(i);
        break;
    }
    section.push_back(out);
  }

  Instruction::Noise noise_of(const Json& i) const {
    Instruction::Noise out{
        id(i["value"]), 0, -1, whole<uint16_t>(i["block"]), whole<uint16_t>(i["tensor"]), one_of<Distribution>(i["distribution"])};
    const Json& query = i["query"];
    out.query = whole<uint32_t>(query.is_array() ? query[0] : query);
    if (query.is_array()) out.scalar = scalar_id(query[1]);
    return out;
  }

  // A negative one is outside the table, as `id` has it.
  int32_t scalar_id(const Json& number) const {
    const int32_t scalar = whole<int32_t>(number);
    return scalar < 0 ? std::numeric_limits<int32_t>::max() : scalar;
  }

  Instruction::Free free_of(Json& i) {
    const bool is_a_group = !i["group"].is_null();
    if (i["value"].is_null() != is_a_group) return {kNothing, is_a_group};  // both or neither
    return {is_a_group ? name(i["group"]) : id(i["value"]), is_a_group};
  }

  Plan& p_;
  const std::string& subject_;
  std::string where_;
  int section_ = 0;
  std::unordered_map<std::string, uint32_t> names_;
  std::map<std::vector<int64_t>, uint32_t> shapes_;
};

// Whatever is no version at all is left to the schema.
void refuse_other_version(const Json& document, const std::string& subject) {
  if (!document.is_object() || !document.contains("version")) return;
  const Json& version = document["version"];
  if (!version.is_array() || version.size() != 2) return;
  if (version[0] == kMajor && version[1].is_number_integer() && version[1] >= 0 && version[1] <= kMinor) return;
  throw Error(Kind::BundleVersion, subject, "plan version " + shown(version),
              "1.0 to " + std::to_string(kMajor) + "." + std::to_string(kMinor), "Update bespoke, or build the bundle again");
}

}  // namespace

void keep_what_runs(Plan& plan) {
  std::vector<uint32_t> positions;
  const std::vector<Instruction>& training = plan.sections[static_cast<int>(Section::train_step)];
  const auto is_free_of_value = [](const Instruction& i) { return i.op == Op::free && !i.free.is_a_group; };
  if (plan.replayable && replay_slice(plan, training, positions)) {
    for (const uint32_t position : positions) {
      const Instruction& i = training[position];
      if (i.op != Op::record && !is_free_of_value(i)) plan.replay.push_back(i);
    }
  }
  for (const Instruction& i : training) {
    if (i.op == Op::record) plan.recorded.push_back(i.record.value);
  }
  for (std::vector<Instruction>& section : plan.sections) {
    section.erase(std::remove_if(section.begin(), section.end(), is_free_of_value), section.end());
    section.shrink_to_fit();
  }
  plan.replay.shrink_to_fit();
  plan.recorded.shrink_to_fit();
  plan.graphs.shrink_to_fit();
  plan.names.shrink_to_fit();
  plan.extents.shrink_to_fit();
  plan.values.shrink_to_fit();
  plan.references.shrink_to_fit();
}

Plan parse_plan(Bytes document, const std::string& subject) {
  const JsonRules rules{subject, Kind::Plan, "Get the file again from where it was built", kMaxBytes, kMaxDepth, kMaxItems};
  const OwnedJson owned = check_json(document, rules, {"version"});
  const Json& version = *owned;
  refuse_other_version(version, subject);
  Plan plan;
  {
    const Schema schema(plan_schema, plan_schema_size);
    Reader reader(plan, subject);
    Faults faults;
    read_pieces(document, rules, &schema, {"", "graphs", "values", "sections", "sections.*"}, faults, reader);
    if (!faults.empty()) {
      const Fault& first = faults[0];
      throw Error(Kind::Plan, subject + (first.path.empty() ? "" : ", ") + first.path, first.got, first.expected, kNextStep);
    }
  }
  return plan;
}

Plan read_plan(Bytes document, const std::string& subject, const Manifest& manifest) {
  Plan plan = parse_plan(document, subject);
  verify_plan(plan, subject, manifest);
  keep_what_runs(plan);
  return plan;
}

}  // namespace bespoke
