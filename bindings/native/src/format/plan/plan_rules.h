// SPDX-License-Identifier: Apache-2.0
// What a plan may hold (bindings/schema/plan_rules.json, written from sdk/bespoke/plan/kinds.py): what drives the verifier.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "format/plan/plan.h"

namespace bespoke {

struct Allowed {  // one kind of value
  Role role;
  Lifetime lifetime;
  PlaceKind place;
  DType dtype;
  int least_rank, most_rank;

  bool is(const Value& value) const {
    return role == value.role && lifetime == value.lifetime && place == value.place && dtype == value.dtype && value.rank >= least_rank &&
           value.rank <= most_rank;
  }
};

struct SectionRule {  // what a section may touch besides `section`, `state`, `bundle` values and constants, and what it must emit
  std::vector<Lifetime> lifetimes;
  bool batch, noise, weights, receives, sends;
  std::vector<Role> stores;  // the state that it may store
  bool options, arrays;      // the scalars and the batch tensors that a method declares
  std::string prompt;        // of how many tokens: "T", "1", "R" or none
  std::vector<std::string> scalars, emits;
};

struct PlanRules {
  std::vector<Allowed> values;
  std::map<std::string, DType> batch, scalars;
  std::string option_prefix;  // of scalars that a method declares
  DType option_dtype;
  std::string array_prefix;  // of batch tensors that a method declares
  std::vector<DType> array_dtypes;
  std::vector<std::string> numbers;  // emitted values of one element
  SectionRule sections[kSections];
  uint64_t value_bytes, region_bytes, sent_bytes;
  int64_t row, query, decode_rows, alignment;
};

const PlanRules& the_rules();
bool is_option(const PlanRules& rules, const std::string& scalar);
std::string array_name(const std::string& value);  // the method's name for a batch tensor of its own; empty for another value

struct BatchTensor {  // what the runtime binds under a name: `copies` of the batch's `base` below each other, an array, or a prompt
  std::string base;
  int64_t copies = 0;  // 0: a prompt
  DType dtype = DType::int64;
  unsigned __int128 rows = 0;  // 0: nothing is bound under the name
  int64_t length = 0;
};
BatchTensor batch_tensor(const Plan& plan, uint32_t value);

// The rules that a build can switch off to show what each of them is for.
#define BESPOKE_RULES(each)                                                                                                          \
  each(add_to) each(batch) each(batch_size) each(emit) each(load) each(name) each(noise) each(number) each(one_shape) each(overlap)  \
      each(place) each(record) each(recorded) each(region) each(scalar) each(sequence_length) each(state_shape) each(table_constant) \
          each(table_rank) each(table_recorded) each(table_session) each(vocab_size) each(weight_group) each(weight_shape)

#define BESPOKE_RULE(name) name,
enum class Rule : uint8_t { BESPOKE_RULES(BESPOKE_RULE) };
#undef BESPOKE_RULE

// Whether a rule is in force. Always, but in the build that executes plans without one (fuzz/execute.cpp): there BESPOKE_WITHOUT
// names one that is not.
#ifdef BESPOKE_RULE_SWITCHES
bool in_force(Rule rule);
bool is_let_through(const Value& value);  // of a kind that the table of kinds lacks, by a rule of "table_" and what it lets through
#else
constexpr bool in_force(Rule) { return true; }
constexpr bool is_let_through(const Value&) { return false; }
#endif

}  // namespace bespoke
