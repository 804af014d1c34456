// SPDX-License-Identifier: Apache-2.0
#include "run/buffers.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"
#include "mapped.h"

namespace bespoke {
namespace {

constexpr size_t kAlignment = 64;  // as plan/arena.py

size_t aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

size_t largest(const std::vector<const Plan*>& plans, uint64_t Estimate::*bytes) {
  size_t most = 0;
  for (const Plan* plan : plans) most = std::max<size_t>(most, plan->estimate.*bytes);
  return most;
}

[[noreturn]] void no_memory(size_t size) {
  throw Error(Kind::Budget, "memory", "no room for " + std::to_string(size / 1000000) + " MB more",
              "room within the limit that the system sets", "Raise the limit or use a bundle built for a smaller budget");
}

[[noreturn]] void no_file(const std::string& path, size_t size, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    const std::string megabytes = std::to_string(size / 1000000 + 1) + " MB";
    throw Error(Kind::DiskFull, path, "a disk without room for " + megabytes + " of scratch", megabytes + " free",
                "Free some space and train again; what was committed is intact");
  }
  throw Error(Kind::State, path, std::strerror(error), "a file that can be preallocated and mapped",
              "Put the state folder on a local file system");
}

}  // namespace

Mapping Mapping::anonymous(size_t size) {
  if (!size) return {};
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) no_memory(size);
#ifdef MADV_NOHUGEPAGE
  madvise(data, size, MADV_NOHUGEPAGE);  // a huge page would count whole from its first byte on
#endif
  return {static_cast<uint8_t*>(data), size};
}

Mapping Mapping::file(const std::string& path, size_t size) {
  if (path.empty()) return anonymous(size);
  if (!size) return {};
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0) no_file(path, size, errno);
#if defined(__APPLE__)
  int error = ftruncate(descriptor, static_cast<off_t>(size)) ? errno : 0;
#else
  int error = posix_fallocate(descriptor, 0, static_cast<off_t>(size));  // a full disk is an error here, not a SIGBUS in a step
#endif
  void* data = error ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (!error && data == MAP_FAILED) error = errno;
  unlink(path.c_str());
  close(descriptor);
  if (error) no_file(path, size, error);
  return {static_cast<uint8_t*>(data), size};
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, size_);
}

void Mapping::give_back() const {
  if (data_) madvise(data_, size_, MADV_DONTNEED);
}

Layout::Layout(const std::vector<const Plan*>& plans, Lifetime lifetime) {
  for (const Plan* plan : plans)
    for (uint32_t id = 0; id < plan->values.size(); id++) {
      const Value& value = plan->values[id];
      if (value.lifetime != lifetime || value.place != PlaceKind::named) continue;
      entries[plan->name(id)] = {0, plan->bytes(id), {plan->shape(id), plan->shape(id) + value.rank}, value.role};
    }
  for (auto& [name, entry] : entries) {
    entry.offset = size;
    size += std::max(kAlignment, aligned(entry.bytes));
  }
}

Buffers::Buffers(const std::vector<const Plan*>& plans, const std::string& scratch_path, size_t temporaries, size_t engine_scratch)
    : state(plans, Lifetime::state), step(plans, Lifetime::step), session_layout(plans, Lifetime::session) {
  temporaries_at_ = whole_pages(largest(plans, &Estimate::arena_bytes));
  scratch_at_ = temporaries_at_ + whole_pages(temporaries);
  region_ = Mapping::anonymous(scratch_at_ + whole_pages(engine_scratch + kReadBehind));
  steps_at_ = whole_pages(largest(plans, &Estimate::scratch_bytes));
  copies_at_[0] = steps_at_ + whole_pages(step.size);
  copies_at_[1] = copies_at_[0] + whole_pages(state.size);
  file_ = Mapping::file(scratch_path, copies_at_[1] + whole_pages(state.size + kReadBehind));
}

uint8_t* Buffers::session() {
  if (!session_.data()) session_ = Mapping::anonymous(whole_pages(std::max(kAlignment, session_layout.size)));
  return session_.data();
}

void Buffers::begin_step() {
  for (const auto& [_, entry] : step.entries) std::memset(step_values() + entry.offset, 0, entry.bytes);
}

}  // namespace bespoke
