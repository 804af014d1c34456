// SPDX-License-Identifier: Apache-2.0
// Where values live while plans run: one anonymous region for all of them and for the engine's programs, and one preallocated
// scratch file without a name that is mapped. The file holds checkpoints, sums over micro-batches, and two copies of adapter and
// optimizer state: `store` writes to the one that is not in use, and `flip` ends a step. So a step can be abandoned anywhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "format/plan/plan.h"
#include "platform/mapping.h"

namespace bespoke {

struct Layout {  // offsets of named values one after another
  struct Entry {
    size_t offset, bytes;
    std::vector<int64_t> shape;
    Role role;
  };
  std::map<std::string, Entry> entries;
  size_t size = 0;

  Layout(const std::vector<const Plan*>& plans, Lifetime lifetime);
};

class Buffers {
 public:
  // `temporaries`: bytes of the results that a call adds to values. `workspace`: what programs share.
  Buffers(const std::vector<const Plan*>& plans, const std::string& scratch_path, size_t temporaries, size_t workspace);

  uint8_t* arena() const { return region_.data(); }
  uint8_t* temporaries() const { return region_.data() + temporaries_at_; }
  uint8_t* workspace() const { return region_.data() + workspace_at_; }
  size_t workspace_size() const { return region_.size() - workspace_at_; }
  uint8_t* checkpoints() const { return file_.data(); }
  uint8_t* step_values() const { return file_.data() + steps_at_; }
  uint8_t* current() const { return file_.data() + copies_at_[current_]; }
  uint8_t* following() const { return file_.data() + copies_at_[1 - current_]; }
  uint8_t* session();  // the KV cache, made when it is first asked for
  void end_session() { session_ = WritablePages(); }

  void flip() { current_ = 1 - current_; }
  void begin_step();  // sums over micro-batches start at zero

  const Layout state, step, session_layout;

 private:
  WritablePages region_, file_, session_;
  size_t temporaries_at_ = 0, workspace_at_ = 0, steps_at_ = 0, copies_at_[2] = {0, 0};
  int current_ = 0;
};

}  // namespace bespoke
