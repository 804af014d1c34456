// SPDX-License-Identifier: Apache-2.0
#include "exec/engine_memory.h"

#include <string>

#include "error.h"

namespace bespoke {
namespace {

[[noreturn]] void no_memory(const std::string& got) {
  throw Error(Kind::Budget, "memory", got, "room within the limit that the system sets",
              "Raise the limit or use a bundle built for a smaller budget");
}

}  // namespace

void EngineMemory::check(int failed, const char* message) const {
  if (failed == BESPOKE_ENGINE_NO_MEMORY) no_memory(message);
  if (failed)
    throw Error(Kind::Plan, std::string("engine '") + engine_.target + "'", message, "a call that the engine can make",
                "Report this together with the bundle");
}

uint8_t* EngineMemory::allocate(size_t size) {
  if (!size) return nullptr;
  Region region{size, nullptr, {}};
  void* address = nullptr;
  char message[256] = "";
  check(engine_.allocate(engine_.context, size, &region.memory, &address, message, sizeof message), message);
  try {
    if (!address && (!engine_.read || !engine_.write))
      check(1, "memory that the processor does not see, and no functions to read and write it");
    if (!address && region.nowhere.map_addresses(size)) no_memory("no room for " + std::to_string(size / 1000000) + " MB more");
    auto* data = address ? static_cast<uint8_t*>(address) : region.nowhere.data();
    if (!regions_.emplace(data, std::move(region)).second) check(1, "memory that it gave before");
    return data;
  } catch (...) {
    engine_.release(engine_.context, region.memory);
    throw;
  }
}

void EngineMemory::release(uint8_t* data) {
  const auto found = regions_.find(data);
  if (found == regions_.end()) return;
  settle();
  engine_.release(engine_.context, found->second.memory);
  regions_.erase(found);
}

void EngineMemory::map(Bytes group) {
  if (!engine_.map_weights || regions_.count(group.data)) return;
  Region& region = regions_[group.data];
  region.size = group.size;
  char message[256] = "";
  const int failed = engine_.map_weights(engine_.context, group.data, group.size, &region.memory, message, sizeof message);
  if (failed) regions_.erase(group.data);
  check(failed, message);
}

void EngineMemory::unmap(Bytes group) {
  const auto found = engine_.map_weights ? regions_.find(group.data) : regions_.end();
  if (found == regions_.end()) return;
  settle();
  engine_.unmap_weights(engine_.context, found->second.memory);
  regions_.erase(found);
}

void EngineMemory::place(uint8_t* at, bespoke_tensor& tensor) const {
  const auto* region = region_of(at);
  tensor.memory = region ? region->second.memory : nullptr;
  tensor.offset = region ? static_cast<uint64_t>(at - region->first) : 0;
  tensor.data = region && region->second.nowhere.data() ? nullptr : at;
}

void EngineMemory::finish() {
  if (!running_) return;
  running_ = false;
  char message[256] = "";
  check(engine_.finish(engine_.context, message, sizeof message), message);
}

void EngineMemory::settle() noexcept {
  if (!running_) return;
  running_ = false;
  char message[256];
  engine_.finish(engine_.context, message, sizeof message);
}

const uint8_t* EngineMemory::see(const uint8_t* at, size_t size) {
  finish();
  if (!hidden(at)) return at;
  seen_.resize(size);
  read(at, seen_.data(), size);
  return seen_.data();
}

const uint8_t* EngineMemory::keep(const uint8_t* at, size_t size) {
  finish();
  if (!hidden(at)) return at;
  std::vector<uint8_t>& copy = kept_[at];
  copy.resize(size);
  read(at, copy.data(), size);
  return copy.data();
}

void EngineMemory::write(uint8_t* to, const void* from, size_t size) {
  finish();
  const auto* region = hidden(to);
  if (!region) {
    std::memmove(to, from, size);
    return;
  }
  char message[256] = "";
  check(
      engine_.write(engine_.context, region->second.memory, static_cast<uint64_t>(to - region->first), from, size, message, sizeof message),
      message);
}

void EngineMemory::read(const uint8_t* at, uint8_t* to, size_t size) {
  const auto* region = hidden(at);
  char message[256] = "";
  check(engine_.read(engine_.context, region->second.memory, static_cast<uint64_t>(at - region->first), to, size, message, sizeof message),
        message);
}

const std::pair<const uint8_t* const, EngineMemory::Region>* EngineMemory::region_of(const uint8_t* at) const {
  if (regions_.empty()) return nullptr;
  auto after = regions_.upper_bound(at);
  if (after == regions_.begin()) return nullptr;
  --after;
  return static_cast<size_t>(at - after->first) < after->second.size ? &*after : nullptr;
}

const std::pair<const uint8_t* const, EngineMemory::Region>* EngineMemory::hidden(const uint8_t* at) const {
  const auto* region = region_of(at);
  return region && region->second.nowhere.data() ? region : nullptr;
}

}  // namespace bespoke
