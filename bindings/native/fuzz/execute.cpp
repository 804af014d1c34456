// SPDX-License-Identifier: Apache-2.0
// Plans that the verifier took, executed by the core's own machine on an engine that reads every byte of its operands and writes every
// byte of its results: `fuzz_execute CORPUS COUNT SEED`. Small real plans (tests/native/plan_corpus.py) are mutated as records,
// verified, and run to the end of a section, under sanitizers, with every byte poisoned that no value covers. Prints what was run.
//
// BESPOKE_WITHOUT=rule takes one rule out of force, to show that this would be found.
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>

#include "execute.h"
#include "exec/machine.h"

using namespace bespoke;
using fuzz::Case;
using fuzz::Corpus;
using fuzz::Random;

namespace {

long executed = 0;
const char* running = "";  // the mutation

void say_where() { std::fprintf(stderr, "\nfound after %ld executions, by %s\n", executed, running); }

// ---- an engine that touches everything ------------------------------------------------------------------------------------------

size_t bytes_of(const bespoke_tensor& tensor) {
  size_t size = bespoke::bytes_of(static_cast<DType>(tensor.dtype));
  for (int32_t i = 0; i < tensor.rank; i++) size *= static_cast<size_t>(tensor.shape[i]);
  return size;
}

volatile uint64_t sink;

void read(const uint8_t* data, size_t size) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; i++) sum += data[i];
  sink = sum;
}

int open(void*, const bespoke_artifact* artifact, void** program, char*, size_t) {
  *program = const_cast<void*>(artifact->bytes);
  return 0;
}

int run(void*, void* program, const bespoke_tensor* const* operands, size_t operand_count, const bespoke_tensor* const* results,
        size_t result_count, char*, size_t) {
  for (size_t i = 0; i < operand_count; i++) read(static_cast<const uint8_t*>(operands[i]->data), bytes_of(*operands[i]));
  const auto* gather = static_cast<const int8_t*>(program);
  if (gather[0] >= 0) {
    const bespoke_tensor &ids = *operands[gather[0]], &table = *operands[gather[1]];
    const size_t row = bytes_of(table) / static_cast<size_t>(table.shape[0]);
    for (size_t i = 0; i < bytes_of(ids) / sizeof(int64_t); i++)
      read(static_cast<const uint8_t*>(table.data) + static_cast<size_t>(static_cast<const int64_t*>(ids.data)[i]) * row, row);
  }
  for (size_t i = 0; i < result_count; i++) std::memset(results[i]->data, 0x3c, bytes_of(*results[i]));
  return 0;
}

void close(void*, void*) {}

bespoke_engine table() {
  bespoke_engine table{};
  table.struct_size = sizeof table;
  table.target = "touch";
  table.open = open, table.run = run, table.close = close;
  return table;
}

// ---- what no value covers is poisoned --------------------------------------------------------------------------------------------

class Poison {
 public:
  Poison(Machine& machine, const std::vector<Plan>& plans) {
    Buffers& b = machine.buffers();
    around(b.arena(), spans(plans, PlaceKind::arena), static_cast<size_t>(b.temporaries() - b.arena()));
    around(b.workspace(), {}, b.workspace_size());
    around(b.checkpoints(), spans(plans, PlaceKind::scratch), static_cast<size_t>(b.step_values() - b.checkpoints()));
    uint8_t* first = std::min(b.current(), b.following());
    uint8_t* second = std::max(b.current(), b.following());
    around(b.step_values(), spans(b.step), static_cast<size_t>(first - b.step_values()));
    around(first, spans(b.state), static_cast<size_t>(second - first));
    around(second, spans(b.state), static_cast<size_t>(second - first));
    around(b.finished(), spans(b.finished_layout), b.finished_layout.size);
  }
  ~Poison() {
    for (const auto& [data, size] : regions_) __asan_unpoison_memory_region(data, size);
  }

 private:
  using Spans = std::map<size_t, size_t>;  // begin -> end

  static Spans spans(const std::vector<Plan>& plans, PlaceKind place) {
    Spans found;
    for (const Plan& plan : plans)
      for (uint32_t id = 0; id < plan.values.size(); id++) {
        if (plan.values[id].place != place) continue;
        const size_t begin = static_cast<size_t>(plan.values[id].where);
        const size_t limit = place == PlaceKind::arena ? plan.estimate.arena_bytes : plan.estimate.scratch_bytes;
        if (begin >= limit) continue;
        size_t& end = found[begin];
        end = std::max(end, std::min(limit, begin + plan.bytes(id)));
      }
    return found;
  }
  static Spans spans(const Layout& layout) {
    Spans found;
    for (const auto& [_, entry] : layout.entries) found[entry.offset] = entry.offset + entry.bytes;
    return found;
  }

  void around(uint8_t* data, const Spans& values, size_t size) {
    if (data == nullptr || size == 0 || size > kLargest) return;
    size_t covered = 0;
    for (const auto& [begin, end] : values) {
      if (begin > covered && begin <= size) poison(data + covered, begin - covered);
      covered = std::max(covered, end);
    }
    if (covered < size) poison(data + covered, size - covered);
  }
  void poison(uint8_t* data, size_t size) {
    __asan_poison_memory_region(data, size);
    regions_.emplace_back(data, size);
  }
  static constexpr size_t kLargest = size_t{1} << 36;  // a size that wrapped is none
  std::vector<std::pair<uint8_t*, size_t>> regions_;
};

// ---- one execution --------------------------------------------------------------------------------------------------------------

Batch batch_of(const Case& one, const Plan& plan, Random& random) {
  const int64_t length = plan.sequence_length;
  Batch batch;
  batch.rows = one.method.training.batch_size;
  batch.sequence_length = length;
  const size_t cells = static_cast<size_t>(batch.rows * length);
  for (size_t i = 0; i < cells; i++) {
    batch.tokens.push_back(static_cast<int64_t>(random(static_cast<uint64_t>(one.vocab_size))));
    batch.targets.push_back(i ? one.vocab_size - 1 : 0);
    batch.mask.push_back(1.0f);
  }
  batch.tokens_trained = static_cast<int64_t>(cells);
  for (uint32_t id = 0; id < plan.values.size(); id++) {
    const std::string name = plan.values[id].role == Role::batch ? array_name(plan.name(id)) : "";
    if (name.empty()) continue;
    BatchArray& array = batch.arrays[name];
    if (plan.values[id].dtype == DType::int64)
      array.tokens.assign(cells, one.vocab_size - 1);
    else
      array.numbers.assign(cells, 1.0f);
  }
  return batch;
}

// Pieces of the adapter on the heap, each by itself: what is read beyond one is seen.
struct Adapter {
  explicit Adapter(const Case& one) {
    for (const Plan& plan : one.plans)
      for (uint32_t id = 0; id < plan.values.size(); id++) {
        if (plan.values[id].role != Role::adapter || plan.values[id].place != PlaceKind::named) continue;
        std::vector<int64_t> shape(plan.shape(id), plan.shape(id) + plan.values[id].rank);
        if (one.shorter_adapter && !shape.empty()) shape[0] = shape[0] / 2;
        size_t elements = 1;
        for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
        auto& piece = pieces[plan.name(id)];
        piece.assign(elements, 0.5f);
        source[plan.name(id)] = {piece.data(), shape};
      }
  }
  std::map<std::string, std::vector<float>> pieces;
  TensorSource source;
};

enum class Action { train, finish, evaluate, federate, generate };

void mark(const Plan& plan, int section, fuzz::Seen& seen) {
  const auto mark_value = [&](uint32_t id) {
    const Value& value = plan.values[id];
    seen.kinds.insert({value.role, value.lifetime, value.place, value.dtype, value.rank});
  };
  for (const Instruction& i : plan.sections[section]) {
    seen.ops.insert(i.op);
    for_reads(plan, i, [&](const Reference& reference) { mark_value(reference.value); });
    for_writes(plan, i, [&](const Reference& reference) { mark_value(reference.value); });
    if (i.op == Op::store) mark_value(i.store.state);
  }
  seen.sections[section]++;
}

bool is_federated(Section section) {
  return section == Section::federated_measure || section == Section::federated_project || section == Section::federated_apply;
}

// Whether it ran to the end of a section.
bool execute(fuzz::MemoryBundle& bundle, Case& one, Random& random, fuzz::Seen& seen) {
  static const Limits no_limits;
  static Control control(no_limits);
  static const Engine engine(table());
  std::vector<Plan>& plans = one.plans;
  for (Plan& plan : plans) verify_plan(plan, "plan", bundle.manifest());
  for (Plan& plan : plans) keep_what_runs(plan);
  MemoryGuard guard(no_limits);
  Machine machine(bundle, one.answers ? nullptr : &one.method, one.answers ? &one.method.plans.front() : nullptr, plans, engine, guard,
                  control, "");
  const Poison poison(machine, plans);
  const Adapter adapter(one);
  machine.fill(adapter.source);
  const Plan& plan = plans[random(plans.size())];
  const auto has = [&](Section section) { return plan.has[static_cast<int>(section)]; };
  std::vector<Action> actions = {Action::train};
  if (has(Section::evaluate_step)) actions.push_back(Action::evaluate);
  if (has(Section::finish)) actions.push_back(Action::finish);
  if (has(Section::federated_measure)) actions.push_back(Action::federate);
  if (one.answers) actions = {Action::generate};
  const auto changed = static_cast<Section>(one.section);
  const Action action = one.section < 0 || one.answers      ? actions[random(actions.size())]
                        : changed == Section::evaluate_step ? Action::evaluate
                        : changed == Section::finish        ? Action::finish
                        : is_federated(changed)             ? Action::federate
                                                            : Action::train;
  switch (action) {
    case Action::train: {
      std::vector<Batch> batches;
      for (int64_t n = 0; n < one.method.training.accumulation; n++) batches.push_back(batch_of(one, plan, random));
      Outcome outcome = machine.train_step(batches, 0.1, 1, random());
      machine.flip();
      if (machine.replayable() && random(2)) {
        std::vector<float> recorded = std::move(outcome.recorded);
        recorded.resize(recorded.size() - std::min(recorded.size(), static_cast<size_t>(one.fewer_recorded)));
        recorded.shrink_to_fit();
        if (one.plans.size() == 1) machine.replay_step(recorded, 0.1, 1, random());
      }
      if (machine.accumulates()) {
        mark(plan, static_cast<int>(Section::micro_step), seen);
        mark(plan, static_cast<int>(Section::apply_step), seen);
      } else {
        mark(plan, static_cast<int>(Section::train_step), seen);
      }
      return true;
    }
    case Action::finish:
      for (const NamedTensor& piece : machine.adapter()) std::vector<float>(piece.data, piece.data + piece.elements());  // reads it
      mark(plan, static_cast<int>(Section::finish), seen);
      return true;
    case Action::evaluate:
      machine.evaluate_batch(batch_of(one, plan, random), random(2) ? &adapter.source : nullptr);
      mark(plan, static_cast<int>(Section::evaluate_step), seen);
      return true;
    case Action::federate: {
      const Received received = [&](const std::string&, uint8_t* to, size_t bytes) {
        std::fill(to, to + bytes, static_cast<uint8_t>(random(4)));
        return random(4) != 0;
      };
      const Direction direction{random(), 1, static_cast<int64_t>(random(4)), 0.5f, 0.25f, received};
      machine.measure({batch_of(one, plan, random)}, direction);
      mark(plan, static_cast<int>(Section::federated_measure), seen);
      if (machine.projects()) {
        machine.project(direction);
        mark(plan, static_cast<int>(Section::federated_project), seen);
      }
      machine.step_along(direction);
      mark(plan, static_cast<int>(Section::federated_apply), seen);
      return true;
    }
    case Action::generate: {
      std::vector<int64_t> prompt;
      for (uint64_t n = 1 + random(static_cast<uint64_t>(bundle.manifest().context_length)); n > 0; n--)
        prompt.push_back(static_cast<int64_t>(random(static_cast<uint64_t>(one.vocab_size))));
      machine.next_token_logits(prompt, adapter.source, kernels::Precision::Rounded);
      mark(plan, static_cast<int>(Section::prefill), seen);
      mark(plan, static_cast<int>(Section::decode), seen);
      if (!has(Section::decode_rows)) return true;
      const int64_t position = bundle.manifest().context_length - machine.rows();
      if (!machine.has_room_for_rows(position)) return true;
      machine.decode_rows({prompt.front()}, position, adapter.source);
      for (int64_t row = 0; row < machine.rows(); row++) machine.row_logits(row);
      mark(plan, static_cast<int>(Section::decode_rows), seen);
      return true;
    }
  }
  return false;
}

}  // namespace

int main(int, char** argv) {
  __sanitizer_set_death_callback(say_where);
  std::set_terminate([] {
    std::fprintf(stderr, "terminating: an exception that is no bespoke::Error\n");
    say_where();
    std::abort();
  });
  std::ifstream file(argv[1], std::ios::binary);
  Corpus corpus(nlohmann::json::parse(file));
  const long count = std::atol(argv[2]);
  Random random(std::strtoull(argv[3], nullptr, 10));
  std::map<std::string, fuzz::Counts> counts;
  std::map<std::string, long> errors;
  fuzz::Seen seen;
  while (executed < count) {
    Case one = corpus.draw(random);
    std::vector<fuzz::Counts*> mutated;
    for (uint64_t times = random(4) ? 1 : 2 + random(2); times > 0; times--) {
      const fuzz::Mutation& mutation = fuzz::mutations()[random(fuzz::mutations().size())];
      if (!mutation.change(one, corpus, random)) continue;
      running = mutation.name;
      mutated.push_back(&counts[mutation.name]);
    }
    if (mutated.empty()) continue;
    for (fuzz::Counts* tried : mutated) tried->tried++;
    corpus.bundle.set(one);
    try {
      if (!execute(corpus.bundle, one, random, seen)) continue;
      executed++;
      for (fuzz::Counts* passed : mutated) passed->passed++;
    } catch (const Error& error) {
      errors[name_of(error.kind)]++;
    }
  }
  std::cout << fuzz::summary(executed, counts, errors, seen).dump() << std::endl;
}
