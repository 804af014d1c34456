// SPDX-License-Identifier: Apache-2.0
#include "engines/executorch/packed_weights.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "engines/failure.h"
#include "format/hash.h"
#include "format/known_hashes.h"
#include "kernels/int4.h"
#include "platform/files.h"
#include "platform/mapping.h"

namespace bespoke {
namespace {

constexpr int kMostProcesses = 16;  // that have the same weights open, each with a file of its own
constexpr size_t kHashLength = 64, kPageBytes = 4096;

[[noreturn]] void fail(const std::string& what, int reason) {
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  throw Failure{what + ": " + std::strerror(reason), full ? BESPOKE_ENGINE_DISK_FULL : BESPOKE_ENGINE_UNAVAILABLE};
}

// Layouts differ by processor and by XNNPACK's version; XNNPACK itself looks at a number of 32 bits.
std::string file_name(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string said = std::string(BESPOKE_EXECUTORCH_VERSION) + ' ' + kernels::name_of(kernels::instruction_set(kernels::best_table()));
  for (const std::string& name : names) said += ' ' + name;
  return sha256_hex(bytes_of(said)).substr(0, 32);
}

void make_folder(const std::string& folder) {
  for (size_t end = folder.find('/', 1);; end = folder.find('/', end + 1)) {
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) fail("the folder for packed weights, " + part, errno);
    if (end == std::string::npos) return;
  }
}

size_t size_of(int descriptor) {
  struct stat found{};
  return fstat(descriptor, &found) == 0 ? static_cast<size_t>(found.st_size) : 0;
}

// Each call that computes opens its programs again: what has not changed since is not hashed again.
KnownHashes& known_hashes() {
  static KnownHashes of_this_process("");
  return of_this_process;
}

std::string hash_of(const std::string& path) {  // empty: it cannot be read
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const size_t size = file.get() < 0 ? 0 : size_of(file.get());
  MappedFile mapped;
  if (!size || mapped.map(file.get(), 0, size) != 0) return "";
  return known_hashes().of(file.get(), 0, size, [&] {
    std::string hash = sha256_hex(mapped.bytes());
    drop_pages(mapped.bytes());
    return hash;
  });
}

Mutex& registry_lock() {
  static Mutex one;
  return one;
}

// Of this process, by the path without a number.
std::map<std::string, std::weak_ptr<PackedWeights>>& registry() REQUIRES(registry_lock()) {
  static std::map<std::string, std::weak_ptr<PackedWeights>> one;
  return one;
}

}  // namespace

std::shared_ptr<PackedWeights> PackedWeights::in(const std::string& folder, std::vector<std::string> names, size_t bytes) {
  const size_t count = names.size();
  const std::string base = folder + "/" + file_name(std::move(names));
  const MutexLock held(registry_lock());
  if (auto known = registry()[base].lock()) return known;
  make_folder(folder);
  for (int number = 0; number < kMostProcesses; number++) {
    const std::string path = base + (number ? "-" + std::to_string(number) : "");
    Descriptor seal(open((path + ".sha256").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (seal.get() < 0) fail("the file " + path + ".sha256", errno);
    const int taken = try_lock(seal.get(), Lock::exclusive);
    if (taken == EWOULDBLOCK) continue;
    if (taken) fail("the lock on " + path + ".sha256", taken);
    std::shared_ptr<PackedWeights> made(new PackedWeights(path + ".packed", std::move(seal), count, bytes));
    registry()[base] = made;
    return made;
  }
  throw Failure{"packed weights are open in " + std::to_string(kMostProcesses) + " processes already: " + base, BESPOKE_ENGINE_UNAVAILABLE};
}

PackedWeights::PackedWeights(std::string path, Descriptor seal, size_t count, size_t bytes)
    : path_(std::move(path)), seal_(std::move(seal)), count_(count), bytes_(bytes), sealed_(is_sealed()) {
  if (sealed_) return;
  if (ftruncate(seal_.get(), 0) != 0) fail("the seal of " + path_, errno);
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) fail("packed weights that are damaged, " + path_, errno);
}

bool PackedWeights::is_sealed() const {
  char said[kHashLength];
  if (pread(seal_.get(), said, sizeof said, 0) != static_cast<ssize_t>(sizeof said)) return false;
  return hash_of(path_) == std::string(said, sizeof said);
}

int PackedWeights::take_room() {
  if (sealed_ || no_room_) return no_room_;
  const Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) return 0;  // XNNPACK could not make it: `packed` sees that
  no_room_ = keep_room(file.get(), room());
  return no_room_;
}

// At most: with scales, two numbers a row, and whole pages.
size_t PackedWeights::room() const { return 2 * bytes_ + 2 * kPageBytes * (count_ + 1); }

void PackedWeights::packed(bool loaded) {
  const std::string folder = path_.substr(0, path_.rfind('/'));
  if (no_room_) fail("no room for " + std::to_string(room() / 1'000'000 + 1) + " MB of packed weights in " + folder, no_room_);
  if (!loaded || sealed_) return;
  const Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  const size_t size = file.get() < 0 ? 0 : size_of(file.get());
  if (size < bytes_) throw Failure{"XNNPACK packed its weights into memory: it could not write to " + folder, BESPOKE_ENGINE_UNAVAILABLE};
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0 || sync_file(file.get()) != 0) fail("packed weights, " + path_, errno);
  const std::string hash = hash_of(path_);
  if (pwrite(seal_.get(), hash.data(), hash.size(), 0) != static_cast<ssize_t>(kHashLength)) fail("the seal of " + path_, errno);
  sealed_ = true;
}

}  // namespace bespoke
