// SPDX-License-Identifier: Apache-2.0
// Where values live while plans run: one anonymous region for all of them, one for the engine's programs, and one preallocated
// scratch file without a name that is mapped. The file holds checkpoints, sums over micro-batches, and two copies of adapter and
// optimizer state: `store` writes to the one that is not in use, and `flip` ends a step. So a step can be abandoned anywhere. What
// section `finish` stores is apart from both.
// Where the engine has memory of its own, values live there, and there is no file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exec/engine_memory.h"
#include "format/plan/plan.h"

namespace bespoke {

constexpr size_t kAlignment = 64;  // of a value in memory, as in plan/arena.py

inline size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

struct Layout {  // offsets of named values one after another
  struct Entry {
    size_t offset, bytes;
    std::vector<int64_t> shape;
    Role role;
  };
  std::map<std::string, Entry> entries;
  size_t size = 0;

  Layout(const std::vector<const Plan*>& plans, Lifetime lifetime);
  static Layout finished(const std::vector<const Plan*>& plans);  // of the adapter, where plans have a section that finishes it

 private:
  Layout() = default;
  void take(const Plan& plan, uint32_t value);
  void place();
};

class Buffers {
 public:
  // `temporaries`: bytes of the results that a call adds to values. `workspace`: what programs share.
  Buffers(const std::vector<const Plan*>& plans, EngineMemory& memory, const std::string& scratch_path, size_t temporaries,
          size_t workspace);

  uint8_t* arena() const { return arena_.data(); }
  uint8_t* temporaries() const { return arena_.data() + temporaries_at_; }
  uint8_t* workspace() const { return workspace_.data(); }
  size_t workspace_size() const { return workspace_.size(); }
  uint8_t* checkpoints() const { return file_.data(); }
  uint8_t* step_values() const { return file_.data() + steps_at_; }
  uint8_t* current() const { return file_.data() + copies_at_[current_]; }
  uint8_t* following() const { return file_.data() + copies_at_[1 - current_]; }
  uint8_t* finished() const { return file_.data() + finished_at_; }
  uint8_t* session();  // the KV cache, made when it is first asked for
  void end_session() { session_ = Region(); }

  // Values that the processor reads for longer: until it is asked for them again.
  const uint8_t* keep(const uint8_t* at, size_t size) { return memory_.keep(at, size); }

  void flip() { current_ = 1 - current_; }
  void begin_step();  // sums over micro-batches start at zero

  const Layout state, step, session_layout, finished_layout;

 private:
  Region region_of(size_t size);  // for values that need no file

  EngineMemory& memory_;
  Region arena_, file_, session_;
  WritablePages workspace_;
  size_t temporaries_at_ = 0, steps_at_ = 0, copies_at_[2] = {0, 0}, finished_at_ = 0;
  int current_ = 0;
};

}  // namespace bespoke
