// SPDX-License-Identifier: Apache-2.0
#include "exec/interpreter.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"
#include "exec/noise.h"

namespace bespoke {

// bespoke.h numbers the types in this order.
static_assert(static_cast<int>(DType::float32) == BESPOKE_FLOAT32 && static_cast<int>(DType::float16) == BESPOKE_FLOAT16 &&
              static_cast<int>(DType::uint8) == BESPOKE_UINT8 && static_cast<int>(DType::int64) == BESPOKE_INT64 &&
              static_cast<int>(DType::int32) == BESPOKE_INT32);

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

size_t bytes_of(const TensorSpec& spec) {
  size_t size = bespoke::bytes_of(spec.dtype);
  for (int64_t extent : spec.shape) size *= static_cast<size_t>(extent);
  return size;
}

void add(float* to, const float* from, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] += from[i];
}

}  // namespace

Interpreter::Interpreter(const Plan& plan, Weights weights, Bundle& bundle, Programs& programs, Buffers& buffers, EngineMemory& memory,
                         MemoryGuard& guard, Control& control, Spent& spent)
    : plan_(plan), weights_(weights), bundle_(bundle), programs_(programs), buffers_(buffers), memory_(memory), guard_(guard),
      control_(control), spent_(spent), base_(plan.values.size(), nullptr), number_of_(plan.values.size(), -1),
      offset_(plan.values.size(), 0) {
  for (const GraphUse& use : plan.graphs) calls_.push_back("Graph '" + use.name + "' of method '" + plan.method + "'");
  graphs_.resize(plan.graphs.size(), nullptr);
  for (const auto& section : plan.sections)
    for (const Instruction& i : section) {
      if (i.op != Op::call || graphs_[i.call.graph]) continue;
      Program& program = programs.find(plan, i.call);
      (program.artifact.baked.empty() ? graphs_[i.call.graph] : baked_[i.call.first]) = &program;
    }
  for (uint32_t id = 0; id < plan.values.size(); id++) {
    const Value& value = plan.values[id];
    switch (value.place) {
      case PlaceKind::arena:
        base_[id] = buffers.arena() + value.where;
        continue;
      case PlaceKind::scratch:
        base_[id] = buffers.checkpoints() + value.where;
        continue;
      case PlaceKind::number:
        number_of_[id] = static_cast<int32_t>(numbers_.size());
        numbers_.push_back(value.where);
        continue;
      case PlaceKind::named:
        break;
    }
    const std::string& name = plan.name(id);
    if (value.role == Role::weight) {
      const size_t dot = name.find('.');
      group_of(name.substr(0, dot)).values.push_back({id, name.substr(dot + 1)});
    } else if (value.role == Role::scalar) {
      number_of_[id] = static_cast<int32_t>(numbers_.size());
      numbers_.push_back(0);
      bound_.push_back(id);
    } else if (value.lifetime == Lifetime::state) {
      offset_[id] = buffers.state.entries.at(name).offset;
      bound_.push_back(id);
    } else if (value.lifetime == Lifetime::step) {
      base_[id] = buffers.step_values() + buffers.step.entries.at(name).offset;
    } else {
      if (value.lifetime == Lifetime::session) offset_[id] = buffers.session_layout.entries.at(name).offset;
      bound_.push_back(id);  // a batch tensor, or a part of the session
    }
    if (value.role == Role::adapter) pieces_.push_back(id);
  }
  std::sort(pieces_.begin(), pieces_.end(), [&](uint32_t a, uint32_t b) { return plan.name(a) < plan.name(b); });
  for (uint32_t id = 0; id < plan.values.size(); id++)
    if (number_of_[id] >= 0) base_[id] = reinterpret_cast<uint8_t*>(&numbers_[static_cast<size_t>(number_of_[id])]);
  for (const auto& section : plan.sections)
    for (const Instruction& instruction : section)
      if (instruction.op == Op::store) stored_.push_back(plan.references[instruction.store.source].value);
  std::sort(stored_.begin(), stored_.end());
}

Interpreter::~Interpreter() {
  for (const auto& [_, group] : groups_) memory_.unmap(group.bytes);
}

size_t Interpreter::temporaries(const Plan& plan, const Manifest& manifest) {
  size_t most = 0;
  for (const auto& section : plan.sections)
    for (const Instruction& i : section) {
      if (i.op != Op::call) continue;
      const GraphRecord* graph = manifest.graph(plan.graphs[i.call.graph].key);
      size_t sum = 0;
      for (uint32_t n = 0; n < i.call.results; n++)
        if (plan.references[i.call.first + i.call.operands + n].how == How::add_to) sum += aligned(bytes_of(graph->outputs[n]));
      most = std::max(most, sum);
    }
  return most;
}

Outcome Interpreter::run(Section section, const Bindings& bindings) {
  const int number = static_cast<int>(section);
  if (!plan_.has[number])
    throw Error(Kind::Plan, "plan of '" + plan_.method + "'", "no such section", "the section that the runtime asks for",
                "Build the bundle again");
  stage_ = Stage::forward;
  finishes_ = section == Section::finish;
  return execute(plan_.sections[number], bindings);
}

void Interpreter::replay(const Bindings& bindings) {
  finishes_ = false;
  execute(plan_.replay, bindings);
}

// What the section was given is the caller's again when it is over, so no run of it may still read that then.
Outcome Interpreter::execute(const std::vector<Instruction>& code, const Bindings& bindings) {
  open(code);
  bind(bindings);
  try {
    Outcome outcome = steps(code, bindings);
    memory_.finish();
    return outcome;
  } catch (...) {
    memory_.settle();
    throw;
  }
}

// All programs before the first instruction: a bundle with one of another signature is refused before a step.
void Interpreter::open(const std::vector<Instruction>& code) {
  for (const Instruction& i : code) {
    if (i.op != Op::call || program_of(i.call).handle) continue;
    control_.check();
    guard_.ask(static_cast<int64_t>(programs_.growth_to_open(program_of(i.call))), calls_[i.call.graph]);
    programs_.open(program_of(i.call));
  }
}

Program& Interpreter::program_of(const Instruction::Call& call) const {
  return graphs_[call.graph] ? *graphs_[call.graph] : *baked_.at(call.first);
}

Outcome Interpreter::steps(const std::vector<Instruction>& code, const Bindings& bindings) {
  Outcome outcome;
  for (const Instruction& i : code) {
    control_.check();
    switch (i.op) {
      case Op::load:
        load(plan_.names[i.load.group]);
        break;
      case Op::free:
        if (i.free.is_a_group) free(plan_.names[i.free.of]);
        break;
      case Op::call:
        call(i.call);
        break;
      case Op::zero:
        memory_.zero(whole(i.zero.value), plan_.bytes(i.zero.value));
        break;
      case Op::noise:
        memory_.change(whole(i.noise.value), plan_.bytes(i.noise.value), [&](uint8_t* value) {
          noise(reinterpret_cast<float*>(value), plan_.elements(i.noise.value), bindings.seed, bindings.step, query_of(i.noise),
                i.noise.block, i.noise.tensor, i.noise.distribution, 0, programs_.parallel());
        });
        break;
      case Op::record: {
        const size_t bytes = plan_.bytes(i.record.value);
        memory_.write(whole(i.record.value), memory_.see(find(Reference{i.record.source}), bytes), bytes);
        const auto* values = reinterpret_cast<const float*>(memory_.see(whole(i.record.value), bytes));
        outcome.recorded.insert(outcome.recorded.end(), values, values + bytes / sizeof(float));
        break;
      }
      case Op::receive:
        memory_.change(whole(i.receive.value), plan_.bytes(i.receive.value), [&](uint8_t* value) {
          const size_t bytes = plan_.bytes(i.receive.value);
          if (!bindings.received || !bindings.received(plan_.names[i.receive.name], value, bytes)) std::memset(value, 0, bytes);
        });
        break;
      case Op::send: {
        const size_t bytes = plan_.bytes(i.send.source);
        const auto* values = reinterpret_cast<const float*>(memory_.see(whole(i.send.source), bytes));
        outcome.sent.insert(outcome.sent.end(), values, values + bytes / sizeof(float));
        break;
      }
      case Op::store: {
        const size_t bytes = plan_.bytes(i.store.state);
        memory_.write(stored_at(i.store.state), memory_.see(find(plan_.references[i.store.source]), bytes), bytes);
        break;
      }
      case Op::emit: {
        const auto* values = reinterpret_cast<const float*>(memory_.see(find(Reference{i.emit.source}), plan_.bytes(i.emit.source)));
        const int64_t count = plan_.elements(i.emit.source);
        if (count == 1)
          outcome.metrics[plan_.names[i.emit.name]] = static_cast<double>(*values);
        else if (bindings.emitted)
          column(i.emit.source, 0, *bindings.emitted);
        break;
      }
    }
  }
  return outcome;
}

// The number of the query that noise is drawn for, which a scalar may choose.
uint32_t Interpreter::query_of(const Instruction::Noise& noise) const {
  if (noise.scalar < 0) return noise.query;
  const int64_t scalar = numbers_[static_cast<size_t>(number_of_[static_cast<size_t>(noise.scalar)])];
  const int64_t most = the_rules().query - 1 - int64_t{noise.query};
  if (scalar >= -int64_t{noise.query} && scalar <= most) return static_cast<uint32_t>(int64_t{noise.query} + scalar);
  throw Error(Kind::Plan, "plan of '" + plan_.method + "', noise of value " + std::to_string(noise.value),
              "direction " + std::to_string(scalar), "one from 0 to " + std::to_string(most), "Give a smaller direction");
}

uint8_t* Interpreter::find(const Reference& reference) const {
  uint8_t* start = whole(reference.value);
  if (!start) refuse_unbound(reference.value);
  if (reference.rows < 0) return start;
  const int64_t rows = plan_.shape(reference.value)[0];
  int64_t first = reference.start;
  if (reference.scalar >= 0) {
    first += numbers_[static_cast<size_t>(number_of_[static_cast<size_t>(reference.scalar)])];
    if (first < 0 || first > rows - reference.rows)
      throw Error(Kind::Plan, "plan of '" + plan_.method + "', value " + std::to_string(reference.value),
                  "rows " + std::to_string(first) + " to " + std::to_string(first + reference.rows),
                  "a range within its " + std::to_string(rows) + " rows", "Keep the position within the context length");
  }
  return start + static_cast<size_t>(first) * (plan_.bytes(reference.value) / static_cast<size_t>(rows));
}

void Interpreter::call(const Instruction::Call& call) {
  Program& program = program_of(call);
  guard_.ask(static_cast<int64_t>(programs_.growth_to_run(program)), calls_[call.graph]);
  const Reference* references = plan_.references.data() + call.first;
  adds_.clear();
  for (uint32_t i = 0; i < call.operands; i++) memory_.place(find(references[i]), program.inputs[i]);
  size_t used = 0;
  for (uint32_t i = 0; i < call.results; i++) {
    const Reference& reference = references[call.operands + i];
    const TensorSpec& spec = program.graph.outputs[i];
    uint8_t* place;
    if (reference.how == How::add_to) {
      place = buffers_.temporaries() + used;
      adds_.emplace_back(place, i);
      used += aligned(bytes_of(spec));
    } else {
      place = find(reference);
    }
    memory_.place(place, program.outputs[i]);
  }
  const double began = now();
  programs_.run(program);
  for (const auto& [temporary, number] : adds_) {
    const size_t bytes = bytes_of(program.graph.outputs[number]);
    const auto* more = reinterpret_cast<const float*>(memory_.see(temporary, bytes));
    memory_.change(find(references[call.operands + number]), bytes,
                   [&](uint8_t* sum) { add(reinterpret_cast<float*>(sum), more, bytes / sizeof(float)); });
  }
  guard_.engine_holds(programs_.bytes_elsewhere());
  const double seconds = now() - began;
  const bool head = plan_.graphs[call.graph].name.compare(0, 5, "head_") == 0;
  if (head && !plan_.replayable) stage_ = Stage::backward;  // what follows it; a method of forward passes has none
  const bool updates = std::any_of(references + call.operands, references + call.operands + call.results,
                                   [&](const Reference& result) { return stores(result.value); });
  spent_.stages[static_cast<int>(head ? Stage::head : updates ? Stage::update : stage_)] += seconds;
  spent_.longest = std::max(spent_.longest, seconds);
  control_.rest(seconds);
}

// Of a piece of state: where its new content goes.
uint8_t* Interpreter::stored_at(uint32_t value) const {
  if (!finishes_) return buffers_.following() + offset_[value];
  return buffers_.finished() + buffers_.finished_layout.entries.at(plan_.name(value)).offset;
}

bool Interpreter::stores(uint32_t value) const { return std::binary_search(stored_.begin(), stored_.end(), value); }

Interpreter::Group& Interpreter::group_of(const std::string& name) {
  const auto known = groups_.find(name);
  if (known != groups_.end()) return known->second;
  return groups_.emplace(name, Group{bundle_.manifest().weights.at(name), "Weights '" + name + "'", {}, {}}).first->second;
}

void Interpreter::load(const std::string& name) {
  Group& group = group_of(name);
  guard_.ask(0, group.subject);
  if (weights_ == Weights::kept && group.bytes.data) return;
  if (!group.bytes.data) {
    group.bytes = bundle_.file(group.file);
    const Tensors& tensors = bundle_.tensors(group.file);
    for (const WeightValue& weight : group.values) {
      const auto found = tensors.find(weight.tensor);
      const int64_t* shape = plan_.shape(weight.value);
      const Value& value = plan_.values[weight.value];
      const bool same = found != tensors.end() && found->second.dtype == value.dtype &&
                        found->second.shape == std::vector<int64_t>(shape, shape + value.rank);
      if (!same && in_force(Rule::weight_shape))
        throw Error(Kind::Bundle, group.file + ", tensor '" + weight.tensor + "'", "none, or of another type or shape than the plan reads",
                    "the weights of the plan", "Build the bundle again");
      base_[weight.value] = const_cast<uint8_t*>(found->second.data);
    }
  }
  want_pages(group.bytes);
  memory_.map(group.bytes);
}

void Interpreter::free(const std::string& name) {
  if (weights_ == Weights::kept) return;
  const Bytes bytes = group_of(name).bytes;
  memory_.unmap(bytes);
  drop_pages(bytes);  // clean pages of a file: they leave this process, not the system's cache
}

}  // namespace bespoke
