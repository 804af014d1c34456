// SPDX-License-Identifier: Apache-2.0
#include "state/reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "platform/descriptor.h"
#include "platform/files.h"

namespace bespoke {

const char* const kReserveFile = "reserve";

namespace {

// The index of the log takes 32 KB, a forgotten example some pages of the database, a forgotten run those of its journal.
constexpr size_t kReserveBytes = size_t{1} << 20;
constexpr size_t kLeastFree = 4 * kReserveBytes;  // with less, what is taken here another process may need

}  // namespace

void keep_reserve(const std::string& folder) noexcept {
  const std::string path = folder + "/" + kReserveFile;
  struct stat found{};
  struct statvfs disk{};
  if (lstat(path.c_str(), &found) == 0) return;
  if (statvfs(folder.c_str(), &disk) != 0 || disk.f_bavail * disk.f_frsize < kLeastFree) return;
  const Descriptor made(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (made.get() >= 0 && preallocate(made.get(), kReserveBytes) != 0) unlink(path.c_str());
}

bool spend_reserve(const std::string& folder) noexcept { return unlink((folder + "/" + kReserveFile).c_str()) == 0; }

}  // namespace bespoke
