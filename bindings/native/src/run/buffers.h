// SPDX-License-Identifier: Apache-2.0
// Where values live while plans run: one anonymous region for all of them and for the engine's programs, and one preallocated
// scratch file without a name that is mapped. The file holds checkpoints, sums over micro-batches, and two copies of adapter and
// optimizer state: `store` writes to the one that is not in use, and `flip` ends a step. So a step can be abandoned anywhere.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "format/plan.h"

namespace bespoke {

class Mapping {  // pages of our own, given back when it goes
 public:
  Mapping() = default;
  static Mapping anonymous(size_t size);
  // A file that is unlinked as soon as it is mapped: a killed process leaves none. DiskFull before a byte of it is used.
  static Mapping file(const std::string& path, size_t size);
  Mapping(Mapping&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  void give_back() const;  // anonymous pages, whose content is lost

 private:
  Mapping(uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

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
  // `temporaries`: bytes of the results that a call adds to values. `engine_scratch`: what programs share.
  Buffers(const std::vector<const Plan*>& plans, const std::string& scratch_path, size_t temporaries, size_t engine_scratch);

  uint8_t* arena() const { return region_.data(); }
  uint8_t* temporaries() const { return region_.data() + temporaries_at_; }
  uint8_t* engine_scratch() const { return region_.data() + scratch_at_; }
  size_t engine_scratch_size() const { return region_.size() - scratch_at_; }
  uint8_t* checkpoints() const { return file_.data(); }
  uint8_t* step_values() const { return file_.data() + steps_at_; }
  uint8_t* current() const { return file_.data() + copies_at_[current_]; }
  uint8_t* following() const { return file_.data() + copies_at_[1 - current_]; }
  uint8_t* session();  // the KV cache, made when it is first asked for
  void end_session() { session_ = Mapping(); }

  void flip() { current_ = 1 - current_; }
  void begin_step();  // sums over micro-batches start at zero
  void give_back() const { region_.give_back(); }

  const Layout state, step, session_layout;

 private:
  Mapping region_, file_, session_;
  size_t temporaries_at_ = 0, scratch_at_ = 0, steps_at_ = 0, copies_at_[2] = {0, 0};
  int current_ = 0;
};

}  // namespace bespoke
