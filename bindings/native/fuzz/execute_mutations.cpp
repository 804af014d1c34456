// SPDX-License-Identifier: Apache-2.0
// Changes of single fields of fuzz/execute.cpp: most break a rule and are refused, what passes must run. Only what a plan's schema
// allows is written.
#include <algorithm>

#include "execute_edit.h"

using namespace bespoke;

namespace fuzz {

namespace {

Plan& a_plan(Case& one, Random& random) { return one.plans[random(one.plans.size())]; }

std::vector<Instruction>* a_section(Case& one, Plan& plan, Random& random) {
  std::vector<int> there;
  for (int section = 0; section < kSections; section++)
    if (!plan.sections[section].empty()) there.push_back(section);
  if (there.empty()) return nullptr;
  one.section = there[random(there.size())];
  return &plan.sections[one.section];
}

// An instruction of one of these kinds.
Instruction* an_instruction(Case& one, Plan& plan, Random& random, std::initializer_list<Op> ops) {
  std::vector<Instruction>* code = a_section(one, plan, random);
  if (code == nullptr) return nullptr;
  std::vector<Instruction*> fit;
  for (Instruction& i : *code)
    if (std::find(ops.begin(), ops.end(), i.op) != ops.end()) fit.push_back(&i);
  return fit.empty() ? nullptr : fit[random(fit.size())];
}

uint32_t an_id(const Plan& plan, Random& random) { return static_cast<uint32_t>(random(plan.values.size() + (random(16) == 0))); }

uint64_t a_size(uint64_t size, Random& random) {
  switch (random(8)) {
    case 0:
      return UINT64_MAX - random(128);
    case 1:
      return UINT64_MAX - 4095 + random(4096);
    case 2:
      return size - std::min<uint64_t>(size, random(256));
    case 3:
      return 0;
    case 4:
      return uint64_t{1} << (20 + random(8));
    default:
      return size + random(4096);
  }
}

Value& a_value(Plan& plan, Random& random) { return plan.values[random(plan.values.size())]; }

bool role(Case& one, const Corpus&, Random& random) {
  a_value(a_plan(one, random), random).role = static_cast<Role>(random(8));
  return true;
}
bool lifetime(Case& one, const Corpus&, Random& random) {
  a_value(a_plan(one, random), random).lifetime = static_cast<Lifetime>(random(6));
  return true;
}
bool dtype(Case& one, const Corpus&, Random& random) {
  a_value(a_plan(one, random), random).dtype = static_cast<DType>(random(4));
  return true;
}

bool place(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Value& value = a_value(plan, random);
  value.place = static_cast<PlaceKind>(random(4));
  value.where = static_cast<int64_t>(value.place == PlaceKind::named ? random(plan.names.size()) : 16 * random(64));
  return true;
}

bool where(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Value& value = a_value(plan, random);
  switch (value.place) {
    case PlaceKind::named:
      value.where = static_cast<int64_t>(random(plan.names.size()));
      return true;
    case PlaceKind::number: {
      const int64_t numbers[] = {0, 1, 2, -1, INT64_MAX, INT64_MIN, static_cast<int64_t>(random(16))};
      value.where = numbers[random(7)];
      return true;
    }
    default: {
      const int64_t offsets[] = {0,
                                 value.where + 64,
                                 value.where - 64,
                                 value.where + 1,
                                 static_cast<int64_t>(16 * random(1 << 12)),
                                 static_cast<int64_t>(plan.estimate.arena_bytes),
                                 INT64_MAX - 63};
      value.where = std::max<int64_t>(0, offsets[random(7)]);
      return true;
    }
  }
}

bool extents(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Value& value = a_value(plan, random);
  std::vector<int64_t> shape(plan.shape(static_cast<uint32_t>(&value - plan.values.data())),
                             plan.shape(static_cast<uint32_t>(&value - plan.values.data())) + value.rank);
  if (shape.empty() || random(4) == 0) {
    if (random(2) && !shape.empty())
      shape.pop_back();
    else if (shape.size() < 8)
      shape.push_back(static_cast<int64_t>(random(4)));
  } else {
    int64_t& extent = shape[random(shape.size())];
    const int64_t others[] = {extent + 1, extent - 1, extent * 2, 0, int64_t{1} << 40, int64_t{1} << 31};
    extent = std::clamp<int64_t>(others[random(6)], 0, int64_t{1} << 40);
  }
  value.shape = static_cast<uint32_t>(plan.extents.size());
  value.rank = static_cast<uint8_t>(shape.size());
  plan.extents.insert(plan.extents.end(), shape.begin(), shape.end());
  return true;
}

bool arena_bytes(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  plan.estimate.arena_bytes = a_size(plan.estimate.arena_bytes, random);
  if (one.plans.size() > 1 && random(2))
    for (Plan& other : one.plans) other.estimate.arena_bytes = plan.estimate.arena_bytes;
  return true;
}
bool scratch_bytes(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  plan.estimate.scratch_bytes = a_size(plan.estimate.scratch_bytes, random);
  return true;
}

bool graph(Case& one, const Corpus& corpus, Random& random) {
  Plan& plan = a_plan(one, random);
  GraphUse& use = plan.graphs[random(plan.graphs.size())];
  const std::vector<GraphRecord>& known = corpus.bundle.manifest().graphs;
  use.key = known[random(known.size())].key;
  return true;
}

bool removed(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  std::vector<Instruction>* code = a_section(one, plan, random);
  if (code == nullptr) return false;
  code->erase(code->begin() + static_cast<std::ptrdiff_t>(random(code->size())));
  return true;
}
bool doubled(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  std::vector<Instruction>* code = a_section(one, plan, random);
  if (code == nullptr) return false;
  const Instruction again = (*code)[random(code->size())];
  code->insert(code->begin() + static_cast<std::ptrdiff_t>(random(code->size())), again);
  return true;
}
bool moved(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  std::vector<Instruction>* code = a_section(one, plan, random);
  if (code == nullptr) return false;
  const size_t from = random(code->size()), to = std::min(code->size() - 1, from + random(8));
  std::swap((*code)[from], (*code)[to]);
  return true;
}

Reference* a_reference(Case& one, Plan& plan, Random& random) {
  Instruction* i = an_instruction(one, plan, random, {Op::call, Op::store});
  if (i == nullptr) return nullptr;
  if (i->op == Op::store) return &plan.references[i->store.source];
  const uint64_t count = uint64_t{i->call.operands} + i->call.results;
  return count == 0 ? nullptr : &plan.references[i->call.first + random(count)];
}

bool operand(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Reference* reference = a_reference(one, plan, random);
  if (reference == nullptr) return false;
  reference->value = an_id(plan, random);
  return true;
}
bool range(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Reference* reference = a_reference(one, plan, random);
  if (reference == nullptr) return false;
  const int32_t next = reference->start == INT32_MAX ? INT32_MIN : reference->start + 1;  // an earlier mutation may have been here
  const int32_t starts[] = {0, 1, next, -1, INT32_MAX};
  reference->start = starts[random(5)];
  if (random(2)) reference->rows = static_cast<int32_t>(random(5)) - 1;
  return true;
}
bool range_scalar(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Reference* reference = a_reference(one, plan, random);
  if (reference == nullptr || reference->rows < 0) return false;
  reference->scalar = random(4) ? static_cast<int32_t>(an_id(plan, random)) : INT32_MAX;
  return true;
}
bool how(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Instruction* i = an_instruction(one, plan, random, {Op::call});
  if (i == nullptr || i->call.results == 0) return false;
  plan.references[i->call.first + i->call.operands + random(i->call.results)].how = static_cast<How>(1 + random(3));
  return true;
}
bool fields(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Instruction* i = an_instruction(one, plan, random, {Op::noise, Op::zero, Op::record, Op::store, Op::emit, Op::free});
  if (i == nullptr) return false;
  switch (i->op) {
    case Op::noise:
      (random(2) ? i->noise.value : i->noise.query) = random(4) ? an_id(plan, random) : UINT32_MAX;
      break;
    case Op::record:
      (random(2) ? i->record.source : i->record.value) = an_id(plan, random);
      break;
    case Op::emit:
      i->emit.source = an_id(plan, random);
      break;
    case Op::free:
      i->free.of = i->free.is_a_group ? static_cast<uint32_t>(random(plan.names.size())) : an_id(plan, random);
      break;
    case Op::store:
      i->store.state = an_id(plan, random);
      break;
    default:
      i->zero.value = an_id(plan, random);
  }
  return true;
}
bool load(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  Instruction* i = an_instruction(one, plan, random, {Op::load});
  if (i == nullptr) return false;
  i->load.group = static_cast<uint32_t>(random(plan.names.size()));
  return true;
}
bool sections(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  const size_t a = random(kSections), b = random(kSections);
  std::swap(plan.sections[a], plan.sections[b]);
  std::swap(plan.has[a], plan.has[b]);
  one.section = -1;
  return true;
}
bool lost_section(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  const size_t section = random(kSections);
  plan.sections[section].clear();
  plan.has[section] = random(2) == 0;
  return true;
}

bool batch_of_plan(Case& one, const Corpus&, Random& random) {
  a_plan(one, random).batch_size = static_cast<int64_t>(1 + random(4));
  return true;
}
bool batch_of_training(Case& one, const Corpus&, Random& random) {
  one.method.training.batch_size = static_cast<int64_t>(1 + random(4));
  return true;
}
bool batch_of_both(Case& one, const Corpus&, Random& random) {
  one.method.training.batch_size = static_cast<int64_t>(1 + random(2));
  for (Plan& plan : one.plans) plan.batch_size = one.method.training.batch_size;
  return true;
}
bool length(Case& one, const Corpus&, Random& random) {
  Plan& plan = a_plan(one, random);
  plan.sequence_length = static_cast<int64_t>(1 + random(6));
  return true;
}
bool length_of_all(Case& one, const Corpus&, Random& random) {
  if (one.plans.size() != 1) return false;
  const int64_t length = static_cast<int64_t>(1 + random(5));
  one.plans[0].sequence_length = one.method.plans[0].sequence_length = length;
  one.method.training.sequence_lengths = {length};
  return true;
}
bool accumulation(Case& one, const Corpus&, Random& random) {
  one.method.training.accumulation = static_cast<int64_t>(1 + random(3));
  if (random(2)) one.method.training.clip_norm.reset();
  return true;
}
bool vocabulary(Case& one, const Corpus&, Random& random) {
  one.vocab_size = static_cast<int64_t>(1 + random(64));
  return true;
}
bool lost_group(Case& one, const Corpus& corpus, Random& random) {
  auto group = corpus.bundle.manifest().weights.begin();
  std::advance(group, static_cast<std::ptrdiff_t>(random(corpus.bundle.manifest().weights.size())));
  one.lost_group = group->first;
  return true;
}
bool shorter_adapter(Case& one, const Corpus&, Random&) { return one.shorter_adapter = true; }
bool fewer_recorded(Case& one, const Corpus&, Random& random) {
  one.fewer_recorded = static_cast<int>(1 + random(2));
  one.section = 0;
  return one.method.replayable;
}
bool replayable(Case& one, const Corpus&, Random& random) {
  if (random(2))
    one.method.replayable = !one.method.replayable;
  else
    for (Plan& plan : one.plans) plan.replayable = !plan.replayable;
  return true;
}

}  // namespace

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = [] {
    std::vector<Mutation> list = {{"role", role},
                                  {"lifetime", lifetime},
                                  {"dtype", dtype},
                                  {"place", place},
                                  {"offset, name or number", where},
                                  {"shape", extents},
                                  {"arena_bytes", arena_bytes},
                                  {"scratch_bytes", scratch_bytes},
                                  {"graph", graph},
                                  {"instruction removed", removed},
                                  {"instruction doubled", doubled},
                                  {"instructions exchanged", moved},
                                  {"operand", operand},
                                  {"range", range},
                                  {"scalar of a range", range_scalar},
                                  {"how of a result", how},
                                  {"field of an instruction", fields},
                                  {"group of a load", load},
                                  {"sections exchanged", sections},
                                  {"section lost", lost_section},
                                  {"batch_size of a plan", batch_of_plan},
                                  {"batch_size of the training", batch_of_training},
                                  {"batch_size of both", batch_of_both},
                                  {"sequence_length of a plan", length},
                                  {"sequence_length everywhere", length_of_all},
                                  {"accumulation", accumulation},
                                  {"vocab_size", vocabulary},
                                  {"weight group lost", lost_group},
                                  {"adapter shorter than the plan", shorter_adapter},
                                  {"journal shorter than the plan", fewer_recorded},
                                  {"replayable", replayable}};
    for (int times = 0; times < 4; times++) list.insert(list.end(), insertions().begin(), insertions().end());
    return list;
  }();
  return all;
}

}  // namespace fuzz
