// SPDX-License-Identifier: Apache-2.0
// The file: a line with a version and the sha256 of all other lines, then a line a hash. Torn or damaged, it is no memory at all.
#include "format/known_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <sstream>

#include "format/hash.h"
#include "platform/descriptor.h"
#include "platform/files.h"

namespace bespoke {

namespace {

constexpr const char* kMark = "bespoke known hashes 1 ";
constexpr size_t kDigits = 64, kMostKnown = 4096, kMostBytes = 1 << 20;
constexpr int64_t kSecond = 1000000000, kSettled = 2 * kSecond;

int64_t system_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string sha256_of(const std::string& text) { return sha256_hex(bytes_of(text)); }

bool is_sha256(const std::string& text) {
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Descriptor opened(const std::string& path, int flags) {
  return Descriptor(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
}

// All of a small plain file, or nothing.
std::string read_whole(const std::string& path) {
  const Descriptor file = opened(path, O_RDONLY);
  struct stat found{};
  if (file.get() < 0 || fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return "";
  std::string text;
  char chunk[4096];
  while (text.size() <= kMostBytes) {
    const ssize_t got = read(file.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return "";
    if (got == 0) return text;
    text.append(chunk, static_cast<size_t>(got));
  }
  return "";
}

bool write_whole(const std::string& path, const std::string& text) {
  const Descriptor file = opened(path, O_WRONLY | O_CREAT);
  struct stat found{};
  if (file.get() < 0 || fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) || ftruncate(file.get(), 0) != 0) return false;
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += static_cast<size_t>(put);
  }
  return true;
}

}  // namespace

KnownHashes::KnownHashes(std::string path, Clock now) : path_(std::move(path)), now_(now ? now : system_clock_ns) {
  if (!path_.empty()) load();
}

std::optional<std::pair<KnownHashes::Place, KnownHashes::Version>> KnownHashes::look(int descriptor, uint64_t offset, uint64_t size) {
  struct stat found{};
  if (fstat(descriptor, &found) != 0 || !S_ISREG(found.st_mode) || others_may_write(found)) return std::nullopt;
  const FileTimes times = times_of(found);
  return {{{static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino), offset, size},
           {static_cast<uint64_t>(found.st_size), times.modified_ns, times.changed_ns}}};
}

std::string KnownHashes::of(int descriptor, uint64_t offset, uint64_t size, const std::function<std::string()>& compute) {
  const auto before = look(descriptor, offset, size);
  if (!before) return compute();
  const auto& [place, version] = *before;
  {
    const MutexLock locked(mutex_);
    const auto found = known_.find(place);
    if (found != known_.end() && found->second.version == version) {
      used_.insert(place);
      return found->second.sha256;
    }
  }
  const int64_t began = now_();
  const std::string sha256 = compute();  // not under the lock: it takes seconds
  const bool is_settled = version.modified_ns <= began - kSettled && version.changed_ns <= began - kSettled;
  if (is_settled) {  // what it became meanwhile has other times
    const MutexLock locked(mutex_);
    known_[place] = {version, sha256};
    used_.insert(place);
    is_new_ = true;
  }
  return sha256;
}

bool KnownHashes::save() noexcept {
  try {
    const MutexLock locked(mutex_);
    if (path_.empty() || !is_new_) return true;
    for (auto at = known_.begin(); at != known_.end() && known_.size() > kMostKnown;) {
      at = used_.count(at->first) ? std::next(at) : known_.erase(at);
    }
    const bool is_saved = write_whole(path_, text());
    is_new_ = !is_saved;
    return is_saved;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

std::string KnownHashes::text() const {
  std::ostringstream lines;
  for (const auto& [place, known] : known_) {
    const auto& [device, inode, offset, size] = place;
    lines << device << ' ' << inode << ' ' << offset << ' ' << size << ' ' << known.version.file_size << ' ' << known.version.modified_ns
          << ' ' << known.version.changed_ns << ' ' << known.sha256 << '\n';
  }
  return kMark + sha256_of(lines.str()) + "\n" + lines.str();
}

void KnownHashes::load() {
  const std::string all = read_whole(path_), mark = kMark;
  const size_t first = mark.size() + kDigits + 1;  // byte of the lines
  if (all.size() < first || all.compare(0, mark.size(), mark) != 0 || all[first - 1] != '\n') return;
  const std::string body = all.substr(first);
  if (all.compare(mark.size(), kDigits, sha256_of(body)) != 0) return;
  std::istringstream lines(body);
  for (std::string line; known_.size() < kMostKnown && std::getline(lines, line);) {
    std::istringstream fields(line);
    uint64_t device, inode, offset, size;
    Known known;
    fields >> device >> inode >> offset >> size >> known.version.file_size >> known.version.modified_ns >> known.version.changed_ns >>
        known.sha256;
    if (fields && is_sha256(known.sha256)) known_[{device, inode, offset, size}] = known;
  }
}

}  // namespace bespoke
