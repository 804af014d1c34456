// SPDX-License-Identifier: Apache-2.0
// Memory that an engine owns, and the order of things: the processor touches no value before the engine has finished. A value has an
// address also where the engine alone can see it: one in pages that nobody may touch, from which the engine's handle is found.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "bespoke.h"
#include "bytes.h"
#include "platform/mapping.h"

namespace bespoke {

class EngineMemory {
 public:
  explicit EngineMemory(const bespoke_engine& engine) : engine_(engine) {}
  EngineMemory(const EngineMemory&) = delete;

  bool allocates() const { return engine_.allocate; }
  uint8_t* allocate(size_t size);  // zero at first
  void release(uint8_t* region);

  // The bytes of a group of weights are within the engine's reach, or no longer. Nothing happens where it maps none.
  void map(Bytes group);
  void unmap(Bytes group);

  void place(uint8_t* at, bespoke_tensor& tensor) const;  // says where the tensor is

  void began() { running_ = engine_.finish; }  // a run that may not be over
  void finish();
  void settle() noexcept;  // the same where an error is on its way

  // What the processor does with values, after the engine has finished.
  const uint8_t* see(const uint8_t* at, size_t size);   // until it is asked for the next one
  const uint8_t* keep(const uint8_t* at, size_t size);  // until it is asked for this one again
  void write(uint8_t* to, const void* from, size_t size);
  void zero(uint8_t* at, size_t size) {
    change(at, size, [size](uint8_t* bytes) { std::memset(bytes, 0, size); });
  }
  template <class Change>
  void change(uint8_t* at, size_t size, Change change) {
    finish();
    if (!hidden(at)) return change(at);
    changed_.resize(size);
    read(at, changed_.data(), size);
    change(changed_.data());
    write(at, changed_.data(), size);
  }

 private:
  struct Region {
    size_t size;
    void* memory;
    WritablePages nowhere;  // addresses for what the processor does not see
  };

  // The region that an address lies in, or null.
  const std::pair<const uint8_t* const, Region>* region_of(const uint8_t* at) const;
  const std::pair<const uint8_t* const, Region>* hidden(const uint8_t* at) const;
  void read(const uint8_t* at, uint8_t* to, size_t size);
  void check(int failed, const char* message) const;

  const bespoke_engine& engine_;
  std::map<const uint8_t*, Region> regions_;  // by their first address
  std::map<const uint8_t*, std::vector<uint8_t>> kept_;
  std::vector<uint8_t> seen_, changed_;
  bool running_ = false;
};

// Of a region of values: the engine's, or pages of ours.
class Region {
 public:
  Region() = default;
  explicit Region(WritablePages pages) : pages_(std::move(pages)), data_(pages_.data()) {}
  Region(EngineMemory& memory, size_t size) : memory_(&memory), data_(memory.allocate(size)) {}
  Region(Region&& other) noexcept { *this = std::move(other); }
  Region& operator=(Region&& other) noexcept {
    std::swap(pages_, other.pages_);
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Region() {
    if (memory_) memory_->release(data_);
  }

  uint8_t* data() const { return data_; }

 private:
  WritablePages pages_;
  EngineMemory* memory_ = nullptr;
  uint8_t* data_ = nullptr;
};

}  // namespace bespoke
