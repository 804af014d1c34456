// SPDX-License-Identifier: Apache-2.0
// Writes instructions and values into a section of one of a case's plans: at one place, which each instruction moves on.
#pragma once

#include <algorithm>

#include "execute.h"

namespace fuzz {

class Edit {
 public:
  Edit(Case& one, const Corpus& corpus, Random& random) : Edit(one, corpus, random, random(one.plans.size())) {}
  Edit(Case& one, const Corpus& corpus, Random& random, size_t plan)
      : one_(one), corpus_(corpus), random_(random), plan_(one.plans[plan]) {}

  const bespoke::Plan& plan() const { return plan_; }

  // Chooses one of the sections and a place in it; false where the plan has none of them.
  bool enter(const std::vector<bespoke::Section>& sections) {
    std::vector<int> there;
    for (const bespoke::Section section : sections)
      if (plan_.has[static_cast<int>(section)]) there.push_back(static_cast<int>(section));
    if (there.empty()) return false;
    section_ = there[random_(there.size())];
    one_.section = section_;
    at_ = random_(plan_.sections[section_].size() + 1);
    return true;
  }
  bool stores(bespoke::Role role) const {
    const std::vector<bespoke::Role>& stored = bespoke::the_rules().sections[section_].stores;
    return std::find(stored.begin(), stored.end(), role) != stored.end();
  }

  uint32_t name(const std::string& text) {
    for (uint32_t n = 0; n < plan_.names.size(); n++)
      if (plan_.names[n] == text) return n;
    plan_.names.push_back(text);
    return static_cast<uint32_t>(plan_.names.size() - 1);
  }

  // A new value of 2 to each rank, at the end of its region, or under a new name.
  uint32_t value(const bespoke::Allowed& kind, int rank) {
    const std::string number = "value_" + std::to_string(plan_.values.size());
    return add(kind, std::vector<int64_t>(static_cast<size_t>(rank), 2),
               kind.role == bespoke::Role::optimizer ? state(number) : "extra." + number);
  }
  std::string state(const std::string& text) const {  // name of optimizer state, which belongs to a piece
    for (const bespoke::Value& value : plan_.values)
      if (value.role == bespoke::Role::adapter && value.place == bespoke::PlaceKind::named)
        return plan_.names[static_cast<size_t>(value.where)] + "." + text;
    return text;
  }
  uint32_t named(const bespoke::Allowed& kind, int rank, const std::string& text) {
    return named(kind, std::vector<int64_t>(static_cast<size_t>(rank), 2), text);
  }
  // The value of that name, if it is alike; kNothing where another has the name.
  uint32_t named(const bespoke::Allowed& kind, const std::vector<int64_t>& shape, const std::string& text) {
    for (uint32_t id = 0; id < plan_.values.size(); id++) {
      if (plan_.values[id].place != bespoke::PlaceKind::named || plan_.name(id) != text) continue;
      const int64_t* extents = plan_.shape(id);
      const bool same = std::vector<int64_t>(extents, extents + plan_.values[id].rank) == shape && kind.is(plan_.values[id]);
      return same ? id : bespoke::kNothing;
    }
    return add(kind, shape, text);
  }

  void load(const std::string& group) { put(bespoke::Op::load, &bespoke::Instruction::load, {name(group)}); }
  void zero(uint32_t id) { put(bespoke::Op::zero, &bespoke::Instruction::zero, {id}); }
  void noise(uint32_t id, uint32_t query, uint16_t block, uint16_t tensor) {
    put(bespoke::Op::noise, &bespoke::Instruction::noise, {id, query, -1, block, tensor, bespoke::Distribution::normal});
  }
  void record(uint32_t source, uint32_t id) { put(bespoke::Op::record, &bespoke::Instruction::record, {source, id}); }
  void receive(uint32_t id, const std::string& text) { put(bespoke::Op::receive, &bespoke::Instruction::receive, {id, name(text)}); }
  void free(uint32_t id) { put(bespoke::Op::free, &bespoke::Instruction::free, {id, false}); }
  void free_group(const std::string& group) { put(bespoke::Op::free, &bespoke::Instruction::free, {name(group), true}); }
  void emit(uint32_t id, const std::string& metric) { put(bespoke::Op::emit, &bespoke::Instruction::emit, {name(metric), id}); }
  void store(uint32_t state, uint32_t source) {
    plan_.references.push_back(bespoke::Reference{source});
    put(bespoke::Op::store, &bespoke::Instruction::store, {state, static_cast<uint32_t>(plan_.references.size() - 1)});
  }

  struct To {
    uint32_t value;
    bespoke::How how;
  };
  // A call of a graph of the corpus; a result without a place goes to a new number, which is freed.
  void call(const std::string& graph, const std::vector<bespoke::Reference>& operands, std::vector<To> results) {
    const auto found = corpus_.graphs.find(graph);
    if (found == corpus_.graphs.end()) return;
    uint32_t number = bespoke::kNothing;
    if (results.empty()) {
      number = value({bespoke::Role::temporary, bespoke::Lifetime::section, bespoke::PlaceKind::arena, bespoke::DType::float32, 0, 0}, 0);
      results.push_back({number, bespoke::How::make});
    }
    const auto first = static_cast<uint32_t>(plan_.references.size());
    plan_.references.insert(plan_.references.end(), operands.begin(), operands.end());
    for (const To& to : results) {
      bespoke::Reference reference{to.value};
      reference.how = to.how;
      plan_.references.push_back(reference);
    }
    plan_.graphs.push_back({found->second, graph, 0});
    put(bespoke::Op::call, &bespoke::Instruction::call,
        {static_cast<uint32_t>(plan_.graphs.size() - 1), first, static_cast<uint32_t>(operands.size()),
         static_cast<uint32_t>(results.size())});
    if (number != bespoke::kNothing) free(number);
  }

 private:
  template <class Operands>
  void put(bespoke::Op op, Operands bespoke::Instruction::* kind, Operands operands) {
    bespoke::Instruction instruction{op, {}};
    instruction.*kind = operands;
    std::vector<bespoke::Instruction>& code = plan_.sections[section_];
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(at_), instruction);
    at_ += 1 + (random_(4) == 0 ? random_(code.size() - at_) : 0);
  }

  uint32_t add(const bespoke::Allowed& kind, const std::vector<int64_t>& shape, const std::string& text) {
    bespoke::Value value{static_cast<uint32_t>(plan_.extents.size()),
                         static_cast<uint8_t>(shape.size()),
                         kind.dtype,
                         kind.role,
                         kind.lifetime,
                         kind.place,
                         0};
    plan_.extents.insert(plan_.extents.end(), shape.begin(), shape.end());
    plan_.values.push_back(value);
    const auto id = static_cast<uint32_t>(plan_.values.size() - 1);
    bespoke::Value& added = plan_.values.back();
    if (kind.place == bespoke::PlaceKind::named) added.where = name(text);
    if (kind.place == bespoke::PlaceKind::number)
      added.where = random_(8) ? static_cast<int64_t>(random_(2)) : INT64_MAX - static_cast<int64_t>(random_(2));
    if (kind.place == bespoke::PlaceKind::arena) added.where = at_the_end(plan_.estimate.arena_bytes, plan_.bytes(id));
    if (kind.place == bespoke::PlaceKind::scratch) added.where = at_the_end(plan_.estimate.scratch_bytes, plan_.bytes(id));
    return id;
  }
  static int64_t at_the_end(uint64_t& region, size_t bytes) {
    const uint64_t offset = (region + 63) / 64 * 64;
    region = offset + bytes;
    return static_cast<int64_t>(offset & INT64_MAX);  // the schema has no negative ones
  }

  Case& one_;
  const Corpus& corpus_;
  Random& random_;
  bespoke::Plan& plan_;
  int section_ = 0;
  size_t at_ = 0;
};

const std::vector<Mutation>& insertions();

}  // namespace fuzz
