// SPDX-License-Identifier: Apache-2.0
// What a section is given: the memory and the numbers behind the names of its values.
#include <algorithm>
#include <cstring>

#include "exec/interpreter.h"
#include "format/plan/plan_check.h"
#include "format/plan/plan_rules.h"

namespace bespoke {

void refuse_another_shape(const std::string& name, const FloatTensor* tensor, const int64_t* shape, size_t rank) {
  if (tensor && (std::equal(tensor->shape.begin(), tensor->shape.end(), shape, shape + rank) || !in_force(Rule::state_shape))) return;
  const auto shown = [](const int64_t* extents, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; i++) text += (i ? ", " : "") + std::to_string(extents[i]);
    return "[" + text + "]";
  };
  throw Error(Kind::Adapter, "piece '" + name + "'", tensor ? "float32 " + shown(tensor->shape.data(), tensor->shape.size()) : "none",
              "float32 " + shown(shape, rank), "Use an adapter, or a state, of this bundle");
}

void Interpreter::bind(const Bindings& bindings) {
  for (uint32_t id : bound_) {
    const Value& value = plan_.values[id];
    const std::string& name = plan_.name(id);
    if (value.role == Role::scalar) {
      int64_t& slot = numbers_[static_cast<size_t>(number_of_[id])];
      const auto found = bindings.scalars.find(name);
      if (found == bindings.scalars.end()) continue;  // of another section; `scalar` complains where one is needed
      if (value.dtype == DType::int64) {
        slot = static_cast<int64_t>(found->second);
      } else {
        const auto single = static_cast<float>(found->second);
        std::memcpy(&slot, &single, sizeof single);
      }
    } else if (value.role == Role::batch) {
      if (name.find('*') != std::string::npos) {
        repeat(id, bindings);
        continue;
      }
      if (!array_name(name).empty()) {
        base_[id] = array(value, name, bindings);
        continue;
      }
      const auto found = bindings.tensors.find(name);
      base_[id] = found == bindings.tensors.end() ? nullptr : static_cast<uint8_t*>(const_cast<void*>(found->second));
    } else if (value.lifetime == Lifetime::state) {
      base_[id] = buffers_.current() + offset_[id];
    } else if (value.lifetime == Lifetime::session && bindings.emitted) {
      base_[id] = buffers_.session() + offset_[id];
    }
  }
  if (bindings.adapter) bind_adapter(*bindings.adapter);
  size_t taken = 0;
  for (uint32_t id : plan_.recorded) {
    base_[id] = buffers_.arena() + plan_.values[id].where;
    if (!bindings.recorded) continue;
    const size_t count = static_cast<size_t>(plan_.elements(id));
    if (taken + count > bindings.recorded->size() && in_force(Rule::recorded))
      throw Error(Kind::State, "journal", std::to_string(bindings.recorded->size()) + " recorded values", "those of the method's step",
                  "Reset the state");
    // Not in the arena: what is replayed before it may use the same bytes.
    base_[id] = reinterpret_cast<uint8_t*>(const_cast<float*>(bindings.recorded->data() + taken));
    taken += count;
  }
  if (bindings.recorded && taken != bindings.recorded->size() && in_force(Rule::recorded))
    throw Error(Kind::State, "journal", std::to_string(bindings.recorded->size()) + " recorded values",
                std::to_string(taken) + ", those of the method's step", "Reset the state");
}

// Both are in the order of names: an answer does this for each token, and looking up some hundred names would take longer.
void Interpreter::bind_adapter(const AdapterView& adapter) {
  auto next = adapter.begin();
  for (uint32_t id : pieces_) {
    const std::string& name = plan_.name(id);
    while (next != adapter.end() && next->first < name) ++next;
    const bool there = next != adapter.end() && next->first == name;
    refuse_another_shape(name, there ? &next->second : nullptr, plan_.shape(id), plan_.values[id].rank);
    base_[id] = reinterpret_cast<uint8_t*>(const_cast<float*>(next->second.data));
  }
}

// A batch tensor of the method's own; null where the batch has none of this dtype and size.
uint8_t* Interpreter::array(const Value& value, const std::string& name, const Bindings& bindings) const {
  if (!bindings.batch) return nullptr;
  const auto found = bindings.batch->arrays.find(array_name(name));
  if (found == bindings.batch->arrays.end()) return nullptr;
  const auto& [tokens, numbers] = found->second;
  const bool whole = value.dtype == DType::int64;
  if ((whole ? tokens.size() : numbers.size()) != static_cast<size_t>(plan_.batch_size * plan_.sequence_length)) return nullptr;
  const void* data = whole ? static_cast<const void*>(tokens.data()) : numbers.data();
  return static_cast<uint8_t*>(const_cast<void*>(data));
}

void Interpreter::refuse_unbound(uint32_t id) const {
  const Value& value = plan_.values[id];
  const std::string name = value.place == PlaceKind::named ? array_name(plan_.name(id)) : "";
  if (value.role == Role::batch && !name.empty())
    throw Error(Kind::Data, "Array '" + name + "' of method '" + plan_.method + "'", "rows without it", shown_type(plan_, Reference{id}),
                "Use another method: examples hold tokens and mask, and pairs of answers alone");
  throw Error(Kind::Plan, "plan of '" + plan_.method + "', value " + std::to_string(id), "no memory bound to it",
              "a tensor that the section is given", "Build the bundle again");
}

// The batch as often as the name says, one below the other.
void Interpreter::repeat(uint32_t value, const Bindings& bindings) {
  const BatchTensor tensor = batch_tensor(plan_, value);
  const auto found = bindings.tensors.find(tensor.base);
  base_[value] = nullptr;
  if (found == bindings.tensors.end() || tensor.copies < 1) return;
  std::vector<uint8_t>& copies = repeated_[value];
  copies.resize(plan_.bytes(value));
  const size_t bytes = copies.size() / static_cast<size_t>(tensor.copies);
  for (size_t done = 0; bytes && done < copies.size(); done += bytes) std::memcpy(copies.data() + done, found->second, bytes);
  base_[value] = copies.data();
}

}  // namespace bespoke
