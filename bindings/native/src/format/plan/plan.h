// SPDX-License-Identifier: Apache-2.0
// A plan as fixed records: what bindings/schema/plan.schema.json describes, in a few tens of bytes an instruction.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "bytes.h"
#include "enums.h"

namespace bespoke {

constexpr int kSections = std::size(kSectionNames);

inline size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float16:
      return 2;
    case DType::uint8:
      return 1;
    case DType::int64:
      return 8;
  }
  return 0;
}

struct Value {
  uint32_t shape;  // index of its first extent in Plan::extents
  uint8_t rank;
  DType dtype;
  Role role;
  Lifetime lifetime;
  PlaceKind place;
  int64_t where;  // offset in arena or scratch, the number, or the index of its name in Plan::names
};

struct Reference {  // an operand or a result: the whole value, or rows [start + scalar, start + scalar + rows)
  uint32_t value;
  int32_t start = 0;
  int32_t rows = -1;    // -1: all
  int32_t scalar = -1;  // value id of an integer scalar known at run time, -1: none
  How how = How::make;  // of a result
};

struct Instruction {
  struct Call {
    uint32_t graph;
    uint32_t first;  // of its references in Plan::references: operands, then results
    uint32_t operands, results;
  };
  struct Load {
    uint32_t group;  // its name, in Plan::names
  };
  struct Zero {
    uint32_t value;
  };
  struct Noise {
    uint32_t value, query;
    int32_t scalar;  // value id of an integer scalar that is added to the query, -1: none
    uint16_t block, tensor;
    Distribution distribution;
  };
  struct Record {
    uint32_t source, value;
  };
  struct Store {
    uint32_t state;
    uint32_t source;  // in Plan::references
  };
  struct Emit {
    uint32_t name;  // in Plan::names
    uint32_t source;
  };
  struct Receive {
    uint32_t value;
    uint32_t name;  // in Plan::names
  };
  struct Send {
    uint32_t source;
  };
  struct Free {
    uint32_t of;      // a value, or the name of a group in Plan::names
    bool is_a_group;  // frees of values are not kept: their places are written again
  };

  Op op;
  union {  // as `op` says
    Call call;
    Load load;
    Zero zero;
    Noise noise;
    Record record;
    Store store;
    Emit emit;
    Receive receive;
    Send send;
    Free free;
  };
};

struct GraphUse {
  std::string key, name;
  uint64_t workspace_bytes;
};

struct Estimate {
  uint64_t arena_bytes, workspace_bytes, engine_bytes, constant_bytes, step_bytes, state_bytes, session_bytes, scratch_bytes, peak_bytes,
      work_flops;
};

struct Plan {
  std::string method;
  int64_t sequence_length = 0, batch_size = 0;
  bool replayable = false;
  Estimate estimate{};
  std::vector<GraphUse> graphs;
  std::vector<std::string> names;
  std::vector<int64_t> extents;
  std::vector<Value> values;
  std::vector<Reference> references;
  std::vector<Instruction> sections[kSections];
  bool has[kSections] = {};
  std::vector<Instruction> replay;  // of train_step: recorded values to stores (sdk/bespoke/plan/replay.py); empty: not replayable
  std::vector<uint32_t> recorded;   // ids of the values that the journal keeps, in its order

  const int64_t* shape(uint32_t value) const { return extents.data() + values[value].shape; }
  int64_t elements(uint32_t value) const {
    int64_t n = 1;
    for (int i = 0; i < values[value].rank; i++) n *= shape(value)[i];
    return n;
  }
  size_t bytes(uint32_t value) const { return static_cast<size_t>(elements(value)) * bytes_of(values[value].dtype); }
  const std::string& name(uint32_t value) const { return names[static_cast<size_t>(values[value].where)]; }
};

struct Manifest;

// Reads and verifies a plan, streaming: never more than its records and one instruction at a time. PlanError naming value and rule.
Plan read_plan(Bytes document, const std::string& subject, const Manifest& manifest);

}  // namespace bespoke
