// SPDX-License-Identifier: Apache-2.0
#include "exec/machine.h"

#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"
#include "kernels/precision.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>

namespace bespoke {
namespace {

std::vector<NamedTensor> tensors_of(Buffers& buffers, const Layout& layout, const uint8_t* at, bool adapter_only) {
  std::vector<NamedTensor> tensors;
  const uint8_t* base = buffers.keep(at, layout.size);
  for (const auto& [name, entry] : layout.entries)
    if (!adapter_only || entry.role == Role::adapter)
      tensors.push_back({name, entry.shape, reinterpret_cast<const float*>(base + entry.offset)});
  return tensors;
}

std::vector<Plan> plans_of(Bundle& bundle, const std::vector<PlanRecord>& records) {
  std::vector<Plan> plans;
  for (const PlanRecord& record : records) {
    plans.push_back(read_plan(bundle.file(record.file), record.file, bundle.manifest()));
    bundle.drop(record.file);
  }
  return plans;
}

}  // namespace

Machine::Machine(Bundle& bundle, const Method& method, const Engine& engine, MemoryGuard& guard, Control& control,
                 const std::string& scratch_path)
    : Machine(bundle, &method, nullptr, plans_of(bundle, method.plans), engine, guard, control, scratch_path) {}

Machine::Machine(Bundle& bundle, const PlanRecord& plan, const Engine& engine, MemoryGuard& guard, Control& control)
    : Machine(bundle, nullptr, &plan, plans_of(bundle, {plan}), engine, guard, control, "") {}

Machine::Machine(Bundle& bundle, const Method* method, const PlanRecord* answers, std::vector<Plan> verified, const Engine& engine,
                 MemoryGuard& guard, Control& control, const std::string& scratch_path)
    : method_(method), control_(control), context_length_(bundle.manifest().context_length), plans_(std::move(verified)),
      rows_(answers ? bespoke::decode_rows(plans_.front()) : 0), memory_(engine.table()), programs_(bundle, engine, memory_) {
  if (method)
    verify_method(*method, plans_, bundle.manifest());
  else
    verify_generation(*answers, plans_.front(), bundle.manifest());
  std::vector<const Plan*> plans;
  size_t temporaries = 0;
  for (const Plan& plan : plans_) {
    plans.push_back(&plan);
    temporaries = std::max(temporaries, Interpreter::temporaries(plan, bundle.manifest()));
  }
  buffers_ = std::make_unique<Buffers>(plans, memory_, scratch_path, temporaries, programs_.workspace_bytes());
  programs_.use(buffers_->workspace(), buffers_->workspace_size());
  const Weights weights = method ? Weights::given_back : Weights::kept;
  for (const Plan& plan : plans_)
    interpreters_.try_emplace(plan.sequence_length, plan, weights, bundle, programs_, *buffers_, memory_, guard, control, spent_);
  all_threads_ = pool_ = programs_.use_threads(std::numeric_limits<int32_t>::max());
  for (const Plan& plan : plans_) choices_.try_emplace(plan.sequence_length, all_threads_);
  if (!method || !scratch_path.empty()) reserve(guard);
}

void Machine::reserve(MemoryGuard& guard) {
  Program* largest = nullptr;
  for (const Plan& plan : plans_)
    for (const std::vector<Instruction>& section : plan.sections)
      for (const Instruction& i : section) {
        if (i.op != Op::call) continue;
        Program& program = programs_.find(plan, i.call);
        if (!largest || program.artifact.engine_bytes > largest->artifact.engine_bytes) largest = &program;
      }
  if (!largest || !largest->artifact.engine_bytes) return;
  guard.ask(static_cast<int64_t>(largest->artifact.engine_bytes),
            "Graph '" + largest->graph.name + "' of method '" + plans_.front().method + "'");
  programs_.open(*largest);
}

Outcome Machine::train_step(const std::vector<Batch>& batches, double learning_rate, int64_t step, uint64_t seed) {
  int64_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.tokens_trained;
  const auto bound = scalars(learning_rate, step, tokens);
  Outcome whole;
  if (accumulates()) buffers_->begin_step();
  for (const Batch& batch : batches) {
    Bindings with = bindings(&batch, bound);
    with.seed = seed, with.step = static_cast<uint32_t>(step);
    Outcome part = run_step(batch, with);
    for (const auto& [name, value] : part.metrics) whole.metrics[name] += value;
    whole.recorded.insert(whole.recorded.end(), part.recorded.begin(), part.recorded.end());
  }
  if (accumulates()) {
    Bindings with = bindings(nullptr, bound);
    with.seed = seed, with.step = static_cast<uint32_t>(step);
    const Outcome applied = interpreters_.at(batches.back().sequence_length).run(Section::apply_step, with);
    for (const auto& [name, value] : applied.metrics) whole.metrics[name] = value;
  }
  return whole;
}

Outcome Machine::run_step(const Batch& batch, const Bindings& with) {
  ThreadChoice& choice = choices_.at(batch.sequence_length);
  programs_.use_threads(choice.threads());
  const double before = seconds_of_calls();
  Outcome outcome = interpreters_.at(batch.sequence_length).run(accumulates() ? Section::micro_step : Section::train_step, with);
  choice.add(seconds_of_calls() - before);
  resize_pool();
  return outcome;
}

void Machine::resize_pool() {
  int32_t wanted = 1;
  for (const auto& [length, choice] : choices_) wanted = std::max(wanted, choice.is_trying() ? all_threads_ : choice.threads());
  if (wanted == pool_) return;
  pool_ = wanted;
  programs_.reopen_with(wanted);
}

// Rests are not among them.
double Machine::seconds_of_calls() const { return std::accumulate(std::begin(spent_.stages), std::end(spent_.stages), 0.0); }

void Machine::replay_step(const std::vector<float>& recorded, double learning_rate, int64_t step, uint64_t seed) {
  Bindings with = bindings(nullptr, scalars(learning_rate, step, 1));
  with.seed = seed, with.step = static_cast<uint32_t>(step), with.recorded = &recorded;
  interpreters_.begin()->second.replay(with);
  flip();
}

std::pair<double, double> Machine::evaluate_batch(const Batch& batch, const AdapterView* adapter) {
  Bindings with = bindings(&batch, {});
  AdapterView finished;
  if (!adapter && finish()) {
    for (const NamedTensor& piece : this->adapter()) finished.emplace(piece.name, FloatTensor{piece.data, piece.shape});
    adapter = &finished;
  }
  with.adapter = adapter;
  programs_.use_threads(choices_.at(batch.sequence_length).threads());
  const Outcome outcome = interpreters_.at(batch.sequence_length).run(Section::evaluate_step, with);
  return {outcome.metrics.at("loss_sum"), outcome.metrics.at("correct")};
}

bool Machine::learns_pairs() const {
  for (const Plan& plan : plans_)
    for (uint32_t id = 0; id < plan.values.size(); id++) {
      const Value& value = plan.values[id];
      if (value.role == Role::batch && value.place == PlaceKind::named && array_name(plan.name(id)) == kPairs) return true;
    }
  return false;
}

void Machine::flip() {
  finished_ = false;
  buffers_->flip();
}

void Machine::fill(const TensorSource& tensors) {
  finished_ = false;
  for (uint8_t* copy : {buffers_->current(), buffers_->following()})
    for (const auto& [name, entry] : buffers_->state.entries) {
      const auto found = tensors.find(name);
      if (found == tensors.end() && entry.role != Role::adapter) {
        memory_.zero(copy + entry.offset, entry.bytes);
        continue;
      }
      refuse_another_shape(name, found == tensors.end() ? nullptr : &found->second, entry.shape.data(), entry.shape.size());
      if (entry.bytes) memory_.write(copy + entry.offset, found->second.data, entry.bytes);
    }
}

std::vector<NamedTensor> Machine::state() const { return tensors_of(*buffers_, buffers_->state, buffers_->current(), false); }
std::vector<NamedTensor> Machine::adapter() {
  if (finish()) return tensors_of(*buffers_, buffers_->finished_layout, buffers_->finished(), true);
  return tensors_of(*buffers_, buffers_->state, buffers_->current(), true);
}
std::vector<NamedTensor> Machine::following() const { return tensors_of(*buffers_, buffers_->state, buffers_->following(), false); }
std::vector<NamedTensor> Machine::sums() const { return tensors_of(*buffers_, buffers_->step, buffers_->step_values(), false); }

bool Machine::finish() {
  if (!plans_.front().has[static_cast<int>(Section::finish)]) return false;
  if (finished_) return true;
  interpreters_.begin()->second.run(Section::finish, bindings(nullptr, method_->scalars));
  return finished_ = true;
}

std::vector<int64_t> Machine::sequence_lengths() const {
  std::vector<int64_t> lengths;
  for (const auto& entry : interpreters_) lengths.push_back(entry.first);
  return lengths;
}

std::map<std::string, double> Machine::seconds_by_stage() const {
  std::map<std::string, double> seconds;
  for (int stage = 0; stage < kStages; stage++) seconds[kStageNames[stage]] = spent_.stages[stage];
  return seconds;
}

void Machine::prefill(const std::vector<int64_t>& tokens, int64_t position, const AdapterView& adapter, kernels::Precision precision) {
  const kernels::RunsWith with(precision);
  for (auto next = tokens.begin(); next != tokens.end();) {
    const bool fits = position + chunk() <= context_length_;
    const ptrdiff_t count = fits ? std::min(tokens.end() - next, static_cast<ptrdiff_t>(chunk())) : 1;
    std::vector<int64_t> piece(next, next + count);
    if (fits) piece.resize(static_cast<size_t>(chunk()));  // what is padded is written over by what follows
    run_prompt(fits ? Section::prefill : Section::decode, piece, position, adapter);
    next += count;
    position += count;
  }
}

const std::vector<float>& Machine::decode(int64_t token, int64_t position, const AdapterView& adapter) {
  run_prompt(Section::decode, {token}, position, adapter);
  return logits_;
}

const std::vector<float>& Machine::decode_rows(std::vector<int64_t> tokens, int64_t position, const AdapterView& adapter) {
  tokens.resize(static_cast<size_t>(rows_));
  run_prompt(Section::decode_rows, tokens, position, adapter);
  return logits_;
}

const std::vector<float>& Machine::row_logits(int64_t row) {
  for (const Instruction& i : plans_.front().sections[static_cast<int>(Section::decode_rows)])
    if (i.op == Op::emit && plans_.front().names[i.emit.name] == "logits") interpreters_.at(chunk()).column(i.emit.source, row, logits_);
  return logits_;
}

void Machine::run_prompt(Section section, const std::vector<int64_t>& tokens, int64_t position, const AdapterView& adapter) {
  Bindings with;
  with.tensors["prompt_" + std::to_string(tokens.size())] = tokens.data();
  with.scalars["position"] = static_cast<double>(position);
  with.adapter = &adapter;
  with.emitted = &logits_;
  programs_.use_threads(0);  // another machine of the same engine may have trained meanwhile
  interpreters_.at(chunk()).run(section, with);
}

std::vector<float> Machine::next_token_logits(const std::vector<int64_t>& prompt, const AdapterView& adapter,
                                              kernels::Precision precision) {
  prefill({prompt.begin(), prompt.end() - 1}, 0, adapter, precision);
  const std::vector<float> logits = decode(prompt.back(), static_cast<int64_t>(prompt.size()) - 1, adapter);
  buffers_->end_session();
  return logits;
}

Bindings Machine::bindings(const Batch* batch, std::map<std::string, double> scalars) const {
  Bindings bindings;
  bindings.batch = batch;
  if (batch) bindings.tensors = {{"tokens", batch->tokens.data()}, {"targets", batch->targets.data()}, {"mask", batch->mask.data()}};
  bindings.scalars = std::move(scalars);
  return bindings;
}

std::map<std::string, double> Machine::scalars(double learning_rate, int64_t step, int64_t batch_tokens) const {
  std::map<std::string, double> all = method_->scalars;
  all["learning_rate"] = learning_rate;
  all["step"] = static_cast<double>(step);
  all["batch_tokens"] = static_cast<double>(batch_tokens);
  return all;
}

}  // namespace bespoke
