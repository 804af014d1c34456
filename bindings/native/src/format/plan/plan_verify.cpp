// SPDX-License-Identifier: Apache-2.0
// The rules of a plan, checked without running it (sdk/bespoke/plan/verify.py): defined before use, freed once, shapes as the graphs'
// signatures say, ranges in bounds, no result over an operand of its call, no two living values on the same bytes, whole pieces of
// state stored once per step or never. What each value is by itself: plan_values.cpp.
#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "error.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"
#include "format/untrusted_text.h"

namespace bespoke {

namespace {

const std::string kNoName;

class PlanChecker {
 public:
  PlanChecker(const Plan& plan, const std::string& subject, const Manifest& manifest) : p_(plan), subject_(subject) {
    for (const GraphRecord& graph : manifest.graphs) known_.emplace(graph.key, &graph);
  }

  void check() {
    check_values(p_, subject_);
    for (const GraphUse& graph : p_.graphs) {
      const auto found = known_.find(graph.key);
      if (found == known_.end()) {
        refuse("graph " + in_quotes(graph.name), "key " + graph.key.substr(0, 12) + "...", "the key of a graph of the bundle");
      }
      graphs_.push_back(found->second);
    }
    check_sections(p_, subject_);
    for (int section = 0; section < kSections; section++) {
      if (p_.has[section]) check_section(section);
    }
    const bool replayable = is_replayable(p_.sections[static_cast<int>(Section::train_step)]);
    if (replayable != p_.replayable) {
      refuse("replayable", p_.replayable ? "true" : "false", std::string(replayable ? "true" : "false") + ", which is what its stores say");
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& got, const std::string& expected) const {
    throw Error(Kind::Plan, subject_ + ": " + where, got, expected, "Build the bundle again");
  }
  std::string at() const {
    return this_section() + ", instruction " + std::to_string(position_) + " (" + say(kOpNames, p_.sections[section_][position_].op) + ")";
  }
  std::string at(uint32_t id) const { return at() + ", value " + std::to_string(static_cast<int32_t>(id)); }

  bool is_replayable(const std::vector<Instruction>& code) const {
    std::vector<uint32_t> positions;
    if (!replay_slice(p_, code, positions)) return false;
    return std::any_of(code.begin(), code.end(), [](const Instruction& i) { return i.op == Op::call; });
  }

  // ---- a section ------------------------------------------------------------------------------------------------------------------

  void check_section(int section) {
    section_ = section;
    rule_ = &rules_.sections[section];
    is_complete_ = false;
    const int64_t prompt = rule_->prompt == "T" ? p_.sequence_length : decode_rows(p_);
    prompt_ = rule_->prompt == "T" || rule_->prompt == "R" ? std::to_string(prompt) : rule_->prompt;
    std::set<std::string> emitted;
    int sent = 0;
    life_.assign(p_.values.size(), Life::none);
    filled_.clear();
    loaded_.clear();
    for (TakenBytes& taken : taken_) taken = {};
    stored_.clear();
    const std::vector<Instruction>& code = p_.sections[section];
    for (position_ = 0; position_ < code.size(); position_++) {
      const Instruction& i = code[position_];
      for_reads(p_, i, [&](const Reference& reference) { check_read(reference); });
      switch (i.op) {
        case Op::load:
          if (!rule_->weights) refuse(at(), "weights" + in_section(), "none: adapter, noise and scalars alone");
          loaded_.insert(p_.names[i.load.group]);
          break;
        case Op::call:
          check_call(i.call);
          break;
        case Op::store:
          check_store(i.store);
          break;
        case Op::free:
          check_free(i.free);
          break;
        case Op::record:
          check_record(i.record);
          break;
        case Op::emit:
          check_emit(i.emit);
          emitted.insert(p_.names[i.emit.name]);
          break;
        case Op::noise:
          check_noise(i.noise);
          break;
        case Op::receive:
          check_receive(i.receive);
          break;
        case Op::send:
          check_send(i.send);
          sent++;
          break;
        case Op::zero:
          define(Reference{i.zero.value}, How::make);
          break;
      }
    }
    for (const std::string& metric : rule_->emits) {
      if (!emitted.count(metric)) refuse(this_section(), "no emit of '" + metric + "'", "one");
    }
    if (section == static_cast<int>(Section::finish)) check_whole_adapter();
    if (rule_->sends && sent != static_cast<int>(sends(p_, static_cast<Section>(section))))
      refuse(this_section(), std::to_string(sent) + " sends", "one in federated_project, or in federated_measure where there is none");
    for (uint32_t id = 0; id < life_.size(); id++) {
      if (is_alive(id)) refuse(this_section() + ", value " + std::to_string(id), "a value alive at its end", "every value freed");
    }
  }

  void check_noise(const Instruction::Noise& i) {
    if (!rule_->noise) refuse(at(), "noise" + in_section(), "noise in a step, whose number it is drawn by");
    int64_t added = 0;
    if (i.scalar >= 0) {
      const Value& scalar = check_integer_scalar(i.scalar);
      if (scalar.place == PlaceKind::number) added = scalar.where;
    }
    if (added < -int64_t{i.query} || added >= rules_.query - int64_t{i.query})
      refuse(at(), "query " + std::to_string(i.query) + (added ? " + " + std::to_string(added) : ""),
             "a query from 0 to " + std::to_string(rules_.query - 1));
    check_float32(i.value, "noise of", Rule::noise);
    define(Reference{i.value}, How::make);
  }

  void check_receive(const Instruction::Receive& i) {
    if (!rule_->receives) refuse(at(), "a receive" + in_section(), "receives in a round of federated learning");
    const Role role = value(i.value).role;
    if (role != Role::received) refuse(at(i.value), "a receive into a value of role " + say(kRoleNames, role), "a value of role received");
    define(Reference{i.value}, How::make, Role::received);
  }

  void check_send(const Instruction::Send& i) const {
    const Value& v = value(i.source);
    if (!rule_->sends) refuse(at(), "a send" + in_section(), "sends in a federated measurement");
    if (v.role != Role::recorded) refuse(at(i.source), "a send of a value of role " + say(kRoleNames, v.role), "a recorded value");
    const uint64_t bytes = checked_bytes(p_, i.source);
    if (bytes == 0 || bytes > rules_.sent_bytes)
      refuse(at(i.source), "a send of " + std::to_string(bytes) + " bytes", "1 to " + std::to_string(rules_.sent_bytes) + " bytes");
  }

  std::string this_section() const { return std::string("section ") + kSectionNames[section_]; }
  std::string in_section() const { return " in " + this_section(); }

  void check_call(const Instruction::Call& i) {
    if (i.graph >= graphs_.size()) refuse(at(), "graph " + std::to_string(i.graph), "one of " + std::to_string(graphs_.size()) + " graphs");
    check_signature(i.graph, i.first, i.operands, graphs_[i.graph]->inputs, "operands");
    check_signature(i.graph, i.first + i.operands, i.results, graphs_[i.graph]->outputs, "results");
    for_results(p_, i, [&](const Reference& result) {
      if (result.how == How::add_to) check_float32(result.value, "add_to of", Rule::add_to);
      define(result, result.how);
    });
    if (!in_force(Rule::overlap)) return;
    if (const std::optional<uint32_t> result = overlapping_result(p_, i))
      refuse(at(*result), "a result over an operand or result of its call", "bytes of its own");
  }

  void check_record(const Instruction::Record& i) {
    const Value& kept = value(i.value);
    if (!shape_is(p_, Reference{i.source}, p_.shape(i.value), kept.rank) && in_force(Rule::record))
      refuse(at(), "a record of another shape", "the shape of its source");
    check_float32(i.source, "a record of", Rule::record);
    if (kept.role != Role::recorded && in_force(Rule::record))
      refuse(at(i.value), "a record into a value of role " + say(kRoleNames, kept.role), "a value of role recorded");
    define(Reference{i.value}, How::make, Role::recorded);
  }

  void check_emit(const Instruction::Emit& i) {
    check_float32(i.source, "an emit of", Rule::emit);
    const std::string& name = p_.names[i.name];
    const bool number = std::find(rules_.numbers.begin(), rules_.numbers.end(), name) != rules_.numbers.end();
    const Value& emitted = p_.values[i.source];
    const int64_t* shape = p_.shape(i.source);
    const std::string got = in_quotes(name) + " of shape " + shown_shape({shape, shape + emitted.rank});
    if (section_ == static_cast<int>(Section::decode_rows) && name == "logits") {
      is_complete_ = emitted.rank == 2 && shape[1] > 0 && shape[1] == decode_rows(p_);
      if (!is_complete_) refuse(at(i.source), got, "[V, R], one R from 2 to " + std::to_string(rules_.decode_rows));
    }
    if (!number || std::all_of(shape, shape + emitted.rank, [](int64_t extent) { return extent == 1; })) return;
    refuse(at(i.source), got, "one number");
  }

  void check_float32(uint32_t id, const char* what, Rule rule) const {
    const DType dtype = value(id).dtype;
    if (dtype != DType::float32 && in_force(rule)) refuse(at(id), std::string(what) + " " + say(kDTypeNames, dtype), "float32");
  }

  void check_signature(uint32_t graph, uint32_t first, uint32_t count, const std::vector<TensorSpec>& specs, const char* kind) const {
    if (count != specs.size()) {
      refuse(at(), std::to_string(count) + " " + kind, std::to_string(specs.size()) + ", as graph " + std::to_string(graph) + " has");
    }
    for (uint32_t n = 0; n < count; n++) {
      const Reference& reference = p_.references[first + n];
      check_range(reference);
      const TensorSpec& spec = specs[n];
      if (shape_is(p_, reference, spec.shape.data(), spec.shape.size()) && p_.values[reference.value].dtype == spec.dtype) continue;
      const std::string expected = say(kDTypeNames, spec.dtype) + " " + shown_shape(spec.shape);
      refuse(at(reference.value), shown_type(p_, reference) + " in " + kind, expected);
    }
  }

  void check_store(const Instruction::Store& i) {
    const std::vector<Role>& stores = rule_->stores;
    if (stores.empty()) refuse(at(), "a store" + in_section(), "stores in train_step, apply_step or finish");
    const Value& state = value(i.state);
    const bool twice = stored_.count(i.state) != 0;
    if (state.lifetime != Lifetime::state || twice) {
      refuse(at(i.state), twice ? "stored twice" : "a " + say(kLifetimeNames, state.lifetime) + " value", "state, stored once");
    }
    if (std::find(stores.begin(), stores.end(), state.role) == stores.end()) {
      std::string roles;
      for (const Role role : stores) roles += (roles.empty() ? "" : " or ") + say(kRoleNames, role);
      refuse(at(i.state), "a store to " + say(kRoleNames, state.role) + " state in section " + kSectionNames[section_],
             "state of role " + roles);
    }
    const Reference& source = p_.references[i.source];
    check_range(source);
    if (!shape_is(p_, source, p_.shape(i.state), state.rank) || p_.values[source.value].dtype != state.dtype) {
      refuse(at(i.state), shown_type(p_, source), shown_type(p_, Reference{i.state}) + ", the whole piece");
    }
    stored_.insert(i.state);
  }

  // What is answered with is all of it finished, or none.
  void check_whole_adapter() const {
    for (uint32_t id = 0; id < p_.values.size(); id++)
      if (p_.values[id].role == Role::adapter && !stored_.count(id))
        refuse("section finish, value " + std::to_string(id), "a piece of the adapter that it does not store", "every piece stored");
  }

  void check_free(const Instruction::Free& i) {
    if (i.of == kNothing) refuse(at(), "a free of both or neither", "a value or a weight group");
    if (i.is_a_group) {
      if (!loaded_.erase(p_.names[i.of])) refuse(at(), "group " + in_quotes(p_.names[i.of]) + ", which is not loaded", "a loaded group");
      return;
    }
    if (i.of >= life_.size() || !is_alive(i.of)) refuse(at(i.of), "a value that is not alive", "each value freed once");
    life_[i.of] = Life::freed;
    filled_.erase(i.of);
    taken_[p_.values[i.of].place == PlaceKind::scratch].release(static_cast<uint64_t>(p_.values[i.of].where));
  }

  bool is_alive(uint32_t id) const { return life_[id] == Life::whole || life_[id] == Life::partly; }

  // ---- references -----------------------------------------------------------------------------------------------------------------

  const Value& value(uint32_t id) const {
    if (id >= p_.values.size()) refuse(at(id), "an id outside the table", "an id below " + std::to_string(p_.values.size()));
    return p_.values[id];
  }

  void check_range(const Reference& reference) const {
    const Value& v = value(reference.value);
    if (reference.rows < 0) return;
    const int64_t rows = v.rank ? std::min(p_.shape(reference.value)[0], rules_.row) : 0;
    if (reference.start < 0 || reference.rows < 1 || int64_t{reference.start} + reference.rows > rows) {
      refuse(at(reference.value), "the range [" + std::to_string(reference.start) + ", " + std::to_string(reference.rows) + "]",
             "[start, rows] within " + std::to_string(rows) + " rows");
    }
    if (reference.scalar < 0) return;
    const Value& scalar = check_integer_scalar(reference.scalar);
    if (scalar.place != PlaceKind::number || !in_force(Rule::number)) return;
    if (scalar.where >= -int64_t{reference.start} && scalar.where <= rows - reference.rows - reference.start) return;
    refuse(at(reference.value),
           std::to_string(reference.rows) + " rows from " + std::to_string(reference.start) + " + " + std::to_string(scalar.where),
           "a range within " + std::to_string(rows) + " rows");
  }

  const Value& check_integer_scalar(int32_t id) const {
    const Value& scalar = value(static_cast<uint32_t>(id));
    if (scalar.rank || scalar.dtype != DType::int64 || (scalar.role != Role::scalar && scalar.role != Role::constant))
      refuse(at(static_cast<uint32_t>(id)), say(kRoleNames, scalar.role) + " " + say(kDTypeNames, scalar.dtype), "an integer scalar");
    return scalar;
  }

  void check_read(const Reference& reference) {
    check_range(reference);
    check_given(reference.value);
    const Value& v = p_.values[reference.value];
    if (v.role == Role::weight && v.place == PlaceKind::named && in_force(Rule::load)) {
      const std::string& name = p_.name(reference.value);
      const std::string group = name.substr(0, name.find('.'));
      if (!loaded_.count(group)) refuse(at(reference.value), "weight group " + in_quotes(group) + " out of reach", "a load before it");
    }
    if (v.lifetime != Lifetime::section) return;
    const Life life = life_[reference.value];
    if (life == Life::none || life == Life::freed) {
      refuse(at(reference.value), life == Life::freed ? "a value that is freed" : "a value that is not defined",
             "a value defined before its use");
    }
    if (life == Life::whole) return;
    const bool fixed = reference.rows >= 0 && reference.scalar < 0;
    const int64_t begin = fixed ? reference.start : 0, end = fixed ? begin + reference.rows : p_.shape(reference.value)[0];
    if (filled_[reference.value].covers(begin, end)) return;
    refuse(at(reference.value), "rows that nothing has filled", "rows defined before their use");
  }

  // What of this lifetime, or of this name, the runtime gives to this section.
  void check_given(uint32_t id) const {
    const Value& v = p_.values[id];
    const std::string& name = v.place == PlaceKind::named ? p_.name(id) : kNoName;
    const auto is_one_of = [](const auto& list, const auto& entry) { return std::find(list.begin(), list.end(), entry) != list.end(); };
    bool given = v.lifetime == Lifetime::section || v.lifetime == Lifetime::state || v.lifetime == Lifetime::bundle ||
                 v.role == Role::constant || is_one_of(rule_->lifetimes, v.lifetime);
    if (v.role == Role::scalar) given = is_option(the_rules(), name) ? rule_->options : is_one_of(rule_->scalars, name);
    if (v.role == Role::batch) {
      given = name.compare(0, 7, "prompt_") == 0 ? !prompt_.empty() && name == "prompt_" + prompt_
              : array_name(name).empty()         ? rule_->batch
                                                 : rule_->arrays;
    }
    given = given && (rule_->weights || (v.role != Role::weight && v.role != Role::optimizer));
    if (given || is_let_through(v)) return;
    const bool bound = v.lifetime == Lifetime::call;
    const std::string what = bound ? say(kRoleNames, v.role) + " '" + name + "'" : "a " + say(kLifetimeNames, v.lifetime) + " value";
    refuse(at(id), what + " in section " + kSectionNames[section_], "what the runtime gives to the section");
  }

  // `by`: the role that the instruction gives, of those that only one may; else temporary.
  void define(const Reference& reference, How how, Role by = Role::temporary) {
    check_range(reference);
    const uint32_t id = reference.value;
    const Value& v = p_.values[id];
    if (v.lifetime == Lifetime::state || v.lifetime == Lifetime::bundle || v.lifetime == Lifetime::call) {
      refuse(at(id), "a write to a " + say(kLifetimeNames, v.lifetime) + " value", "a write to a value of the plan");
    }
    check_given(id);
    if (is_complete_) refuse(at(id), "a write after the emit of 'logits'", "that emit last");
    if (v.role == Role::recorded && by != v.role && in_force(Rule::record)) refuse(at(id), "a write to a recorded value", "a record");
    if (v.role == Role::received && by != v.role) refuse(at(id), "a write to a received value", "a receive");
    if (v.lifetime != Lifetime::section) {
      if (how == How::make) refuse(at(id), "a " + say(kLifetimeNames, v.lifetime) + " value made again", "`into` or `add_to`");
      return;
    }
    if (how == How::add_to) return;  // read before, so it is alive
    const bool whole = reference.rows < 0;
    if (is_alive(id)) {
      if (how == How::make) refuse(at(id), "defined twice", "one definition");
    } else {
      if (life_[id] == Life::freed) refuse(at(id), "written after it was freed", "one life");
      claim(id, v);
      life_[id] = whole ? Life::whole : Life::partly;
    }
    if (life_[id] == Life::whole) return;
    if (whole) {
      life_[id] = Life::whole;
      filled_.erase(id);
    } else if (reference.scalar < 0) {
      filled_[id].fill(reference.start, int64_t{reference.start} + reference.rows);
    }
  }

  void claim(uint32_t id, const Value& v) {
    if (v.place != PlaceKind::arena && v.place != PlaceKind::scratch) {
      refuse(at(id), "a value without a place", "an offset in arena or scratch");
    }
    const uint64_t begin = static_cast<uint64_t>(v.where), end = begin + std::max<uint64_t>(1, checked_bytes(p_, id));
    const std::optional<uint32_t> other = taken_[v.place == PlaceKind::scratch].claim(begin, end, id);
    if (other) refuse(at(id), "the bytes of value " + std::to_string(*other) + ", which is alive", "bytes of its own");
  }

  enum class Life : uint8_t { none, partly, whole, freed };

  const Plan& p_;
  const PlanRules& rules_ = the_rules();
  const SectionRule* rule_ = nullptr;
  const std::string& subject_;
  std::unordered_map<std::string_view, const GraphRecord*> known_;
  std::vector<const GraphRecord*> graphs_;
  int section_ = 0;
  std::string prompt_;        // how many tokens the section's prompt has; empty: it has none
  bool is_complete_ = false;  // it may write nothing more: the machine reads what it emitted when it has ended
  size_t position_ = 0;
  std::vector<Life> life_;
  std::unordered_map<uint32_t, FilledRows> filled_;
  std::unordered_set<std::string> loaded_;
  std::unordered_set<uint32_t> stored_;
  TakenBytes taken_[2];  // of the arena, of the scratch file
};

}  // namespace

void verify_plan(const Plan& plan, const std::string& subject, const Manifest& manifest) { PlanChecker(plan, subject, manifest).check(); }

}  // namespace bespoke
