// SPDX-License-Identifier: Apache-2.0
#include "platform/files.h"

#include <fcntl.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace bespoke {

// fsync leaves data in the drive's cache. File systems that are not on a drive refuse F_FULLFSYNC, and fsync is all they have.
int sync_file(int descriptor) {
  if (fcntl(descriptor, F_FULLFSYNC) == 0) return 0;
  return (errno == ENOTSUP || errno == EINVAL || errno == ENOTTY) && fsync(descriptor) == 0 ? 0 : errno;
}

int preallocate(int descriptor, size_t size) {
  fstore_t room = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, static_cast<off_t>(size), 0};
  if (fcntl(descriptor, F_PREALLOCATE, &room) == -1) return errno;
  return ftruncate(descriptor, static_cast<off_t>(size)) == 0 ? 0 : errno;
}

int keep_room(int descriptor, size_t size) {
  fstore_t room = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, static_cast<off_t>(size), 0};
  return fcntl(descriptor, F_PREALLOCATE, &room) == -1 ? errno : 0;
}

int exchange_names(const std::string& one, const std::string& other) {
  return renamex_np(one.c_str(), other.c_str(), RENAME_SWAP) == 0 ? 0 : errno;
}

FileTimes times_of(const struct stat& found) {
  const auto ns = [](const timespec& time) { return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec; };
  return {ns(found.st_mtimespec), ns(found.st_ctimespec)};
}

bool is_system_user(uid_t user) { return user < 500; }  // accounts of people, and of apps on iOS ("mobile", 501), begin there

int64_t system_started_at() {
  timeval started{};
  size_t size = sizeof started;
  int what[] = {CTL_KERN, KERN_BOOTTIME};
  return sysctl(what, 2, &started, &size, nullptr, 0) == 0 ? static_cast<int64_t>(started.tv_sec) : 0;
}

}  // namespace bespoke
