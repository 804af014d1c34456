// SPDX-License-Identifier: Apache-2.0
#include "platform/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "platform/descriptor.h"

namespace bespoke {

int sync_folder(const std::string& folder) {
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.get() >= 0 && fsync(opened.get()) == 0 ? 0 : errno;
}

namespace {

int lock(int descriptor, Lock kind, int how) {
  while (flock(descriptor, (kind == Lock::shared ? LOCK_SH : LOCK_EX) | how) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

}  // namespace

int try_lock(int descriptor, Lock kind) { return lock(descriptor, kind, LOCK_NB); }

int wait_for_lock(int descriptor, Lock kind) { return lock(descriptor, kind, 0); }

bool others_may_write(const struct stat& found) {
  return (found.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (found.st_uid != geteuid() && !is_system_user(found.st_uid));
}

void unlock(int descriptor) { flock(descriptor, LOCK_UN); }

}  // namespace bespoke
