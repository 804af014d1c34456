// SPDX-License-Identifier: Apache-2.0
#include "exec/buffers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.h"

namespace bespoke {
namespace {

size_t largest(const std::vector<const Plan*>& plans, uint64_t Estimate::* bytes) {
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
  if (is_withheld(error)) throw withheld(error, path);
  throw Error(Kind::State, path, std::strerror(error), "a file that can be preallocated and mapped",
              "Put the state folder on a local file system");
}

WritablePages anonymous(size_t size) {
  WritablePages pages;
  if (pages.map_anonymous(size)) no_memory(size);
  return pages;
}

WritablePages scratch(const std::string& path, size_t size) {
  if (path.empty()) return anonymous(size);
  WritablePages pages;
  if (const int failed = pages.map_scratch(path, size)) no_file(path, size, failed);
  return pages;
}

}  // namespace

Layout::Layout(const std::vector<const Plan*>& plans, Lifetime lifetime) {
  for (const Plan* plan : plans)
    for (uint32_t id = 0; id < plan->values.size(); id++) {
      const Value& value = plan->values[id];
      if (value.lifetime == lifetime && value.place == PlaceKind::named) take(*plan, id);
    }
  place();
}

Layout Layout::finished(const std::vector<const Plan*>& plans) {
  Layout layout;
  for (const Plan* plan : plans) {
    if (!plan->has[static_cast<int>(Section::finish)]) continue;
    for (uint32_t id = 0; id < plan->values.size(); id++)
      if (plan->values[id].role == Role::adapter) layout.take(*plan, id);
  }
  layout.place();
  return layout;
}

void Layout::take(const Plan& plan, uint32_t value) {
  entries[plan.name(value)] = {
      0, plan.bytes(value), {plan.shape(value), plan.shape(value) + plan.values[value].rank}, plan.values[value].role};
}

void Layout::place() {
  for (auto& [name, entry] : entries) {
    entry.offset = size;
    size += std::max(kAlignment, aligned(entry.bytes));
  }
}

Buffers::Buffers(const std::vector<const Plan*>& plans, EngineMemory& memory, const std::string& scratch_path, size_t temporaries,
                 size_t workspace)
    : state(plans, Lifetime::state), step(plans, Lifetime::step), session_layout(plans, Lifetime::session),
      finished_layout(Layout::finished(plans)), memory_(memory) {
  temporaries_at_ = whole_pages(largest(plans, &Estimate::arena_bytes));
  arena_ = region_of(temporaries_at_ + whole_pages(temporaries + kReadBehind));
  workspace_ = anonymous(whole_pages(workspace + kReadBehind));
  steps_at_ = whole_pages(largest(plans, &Estimate::scratch_bytes));
  copies_at_[0] = steps_at_ + whole_pages(step.size);
  copies_at_[1] = copies_at_[0] + whole_pages(state.size);
  finished_at_ = copies_at_[1] + whole_pages(state.size);
  const size_t size = finished_at_ + whole_pages(finished_layout.size + kReadBehind);
  file_ = memory.allocates() ? Region(memory, size) : Region(scratch(scratch_path, size));
}

Region Buffers::region_of(size_t size) { return memory_.allocates() ? Region(memory_, size) : Region(anonymous(size)); }

uint8_t* Buffers::session() {
  if (!session_.data()) session_ = region_of(whole_pages(std::max(kAlignment, session_layout.size)));
  return session_.data();
}

void Buffers::begin_step() {
  for (const auto& [_, entry] : step.entries) memory_.zero(step_values() + entry.offset, entry.bytes);
}

}  // namespace bespoke
