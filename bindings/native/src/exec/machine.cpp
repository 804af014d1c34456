// SPDX-License-Identifier: Apache-2.0
#include "exec/machine.h"

#include "format/plan/plan_check.h"

#include <algorithm>
#include <cstring>

namespace bespoke {
namespace {

std::vector<NamedTensor> tensors_of(const Layout& layout, const uint8_t* base, bool adapter_only) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, entry] : layout.entries)
    if (!adapter_only || entry.role == Role::adapter)
      tensors.push_back({name, entry.shape, reinterpret_cast<const float*>(base + entry.offset)});
  return tensors;
}

std::vector<Plan> plans_of(Bundle& bundle, const Method& method) {
  std::vector<Plan> plans;
  for (const PlanRecord& record : method.plans) {
    plans.push_back(read_plan(bundle.file(record.file), record.file, bundle.manifest()));
    bundle.drop(record.file);
  }
  return plans;
}

}  // namespace

Machine::Machine(Bundle& bundle, const Method& method, const bespoke_engine& engine, MemoryGuard& guard, Control& control,
                 const std::string& scratch_path)
    : Machine(bundle, method, plans_of(bundle, method), engine, guard, control, scratch_path) {}

Machine::Machine(Bundle& bundle, const Method& method, std::vector<Plan> verified, const bespoke_engine& engine, MemoryGuard& guard,
                 Control& control, const std::string& scratch_path)
    : method_(method), control_(control), plans_(std::move(verified)), programs_(bundle, engine) {
  verify_method(method, plans_, bundle.manifest());
  std::vector<const Plan*> plans;
  size_t temporaries = 0;
  for (const Plan& plan : plans_) {
    plans.push_back(&plan);
    temporaries = std::max(temporaries, Interpreter::temporaries(plan, bundle.manifest()));
  }
  buffers_ = std::make_unique<Buffers>(plans, scratch_path, temporaries, programs_.workspace_bytes());
  programs_.use(buffers_->workspace(), buffers_->workspace_size());
  for (const Plan& plan : plans_)
    interpreters_.try_emplace(plan.sequence_length, plan, bundle, programs_, *buffers_, guard, control, spent_);
  if (!scratch_path.empty()) reserve(guard);
}

void Machine::reserve(MemoryGuard& guard) {
  Program* largest = nullptr;
  for (const Plan& plan : plans_)
    for (int section = 0; section <= static_cast<int>(Section::evaluate_step); section++)
      for (const Instruction& call : plan.sections[section]) {
        if (call.op != Op::call) continue;
        Program& program = programs_.find(plan.graphs[call.a].key);
        if (!largest || program.artifact->engine_bytes > largest->artifact->engine_bytes) largest = &program;
      }
  if (!largest || !largest->artifact->engine_bytes) return;
  guard.ask(static_cast<int64_t>(largest->artifact->engine_bytes), "Graph '" + largest->graph->name + "' of method '" + method_.name + "'");
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
    Outcome part = interpreters_.at(batch.sequence_length).run(accumulates() ? Section::micro_step : Section::train_step, with);
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

void Machine::replay_step(const std::vector<float>& recorded, double learning_rate, int64_t step, uint64_t seed) {
  Bindings with = bindings(nullptr, scalars(learning_rate, step, 1));
  with.seed = seed, with.step = static_cast<uint32_t>(step), with.recorded = &recorded;
  interpreters_.begin()->second.replay(with);
  flip();
}

std::pair<double, double> Machine::evaluate_batch(const Batch& batch, const AdapterView* adapter) {
  Bindings with = bindings(&batch, {});
  with.adapter = adapter;
  const Outcome outcome = interpreters_.at(batch.sequence_length).run(Section::evaluate_step, with);
  return {outcome.metrics.at("loss_sum"), outcome.metrics.at("correct")};
}

void Machine::fill(const TensorSource& tensors) {
  for (uint8_t* copy : {buffers_->current(), buffers_->following()})
    for (const auto& [name, entry] : buffers_->state.entries) {
      const auto found = tensors.find(name);
      if (found == tensors.end() && entry.role != Role::adapter) {
        std::memset(copy + entry.offset, 0, entry.bytes);
        continue;
      }
      refuse_another_shape(name, found == tensors.end() ? nullptr : &found->second, entry.shape);
      if (entry.bytes) std::memcpy(copy + entry.offset, found->second.data, entry.bytes);
    }
}

std::vector<NamedTensor> Machine::state() const { return tensors_of(buffers_->state, buffers_->current(), false); }
std::vector<NamedTensor> Machine::adapter() const { return tensors_of(buffers_->state, buffers_->current(), true); }
std::vector<NamedTensor> Machine::following() const { return tensors_of(buffers_->state, buffers_->following(), false); }
std::vector<NamedTensor> Machine::sums() const { return tensors_of(buffers_->step, buffers_->step_values(), false); }

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

std::vector<float> Machine::next_token_logits(const std::vector<int64_t>& prompt, int64_t length, const AdapterView& adapter) {
  Interpreter& interpreter = interpreters_.at(length);
  std::vector<float> logits;
  const size_t before = prompt.size() - 1, width = static_cast<size_t>(length);
  std::vector<int64_t> tokens(width, 0);
  size_t position = 0;
  for (const bool last : {false, true}) {
    std::fill(tokens.begin(), tokens.end(), 0);
    if (last)
      tokens[0] = prompt.back();
    else
      std::copy(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(before), tokens.begin());
    Bindings with;
    with.tensors["prompt_" + std::to_string(last ? 1 : length)] = tokens.data();
    with.scalars["position"] = static_cast<double>(position);
    with.adapter = &adapter;
    with.emitted = &logits;
    interpreter.run(last ? Section::decode : Section::prefill, with);
    position = before;
  }
  buffers_->end_session();
  return logits;
}

Bindings Machine::bindings(const Batch* batch, std::map<std::string, double> scalars) const {
  Bindings bindings;
  bindings.batch = batch;
  if (batch)
    bindings.tensors = {{"tokens", batch->tokens.data()}, {"targets", batch->targets.data()}, {"mask", batch->mask.data()}};
  bindings.scalars = std::move(scalars);
  return bindings;
}

std::map<std::string, double> Machine::scalars(double learning_rate, int64_t step, int64_t batch_tokens) const {
  std::map<std::string, double> all = method_.scalars;
  all["learning_rate"] = learning_rate;
  all["step"] = static_cast<double>(step);
  all["batch_tokens"] = static_cast<double>(batch_tokens);
  return all;
}

}  // namespace bespoke
