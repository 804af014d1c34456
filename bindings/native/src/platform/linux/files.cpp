// SPDX-License-Identifier: Apache-2.0
#include "platform/files.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace bespoke {

int sync_file(int descriptor) { return fsync(descriptor) == 0 ? 0 : errno; }

int preallocate(int descriptor, size_t size) { return posix_fallocate(descriptor, 0, static_cast<off_t>(size)); }

int keep_room(int descriptor, size_t size) {
  if (fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size)) == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  struct statvfs found{};  // a file system that takes room only when it is written to
  if (fstatvfs(descriptor, &found) != 0) return errno;
  return found.f_bavail * found.f_frsize < size ? ENOSPC : 0;
}

#if defined(__ANDROID__) && __ANDROID_API__ < 30  // its library has no such function, and its filter kills who calls the system itself
int exchange_names(const std::string&, const std::string&) { return ENOSYS; }
#else
int exchange_names(const std::string& one, const std::string& other) {
  return renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}
#endif

FileTimes times_of(const struct stat& found) {
  const auto ns = [](const timespec& time) { return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec; };
  return {ns(found.st_mtim), ns(found.st_ctim)};
}

#ifdef __ANDROID__
bool is_system_user(uid_t user) { return user < 10000; }  // AID_APP_START
#else
bool is_system_user(uid_t user) { return user == 0; }
#endif

int64_t system_started_at() {
  std::ifstream lines("/proc/stat");
  for (std::string line; std::getline(lines, line);)
    if (line.compare(0, 6, "btime ") == 0) return std::strtoll(line.c_str() + 6, nullptr, 10);
  return 0;
}

}  // namespace bespoke
