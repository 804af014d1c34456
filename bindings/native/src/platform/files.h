// SPDX-License-Identifier: Apache-2.0
// What differs between systems where files must survive a power cut or be shared between processes. Functions that can fail return 0 or
// an errno: what it means for a caller's file is the caller's to say.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bespoke {

[[nodiscard]] int sync_file(int descriptor);               // its content and size are on the medium when this returns 0
[[nodiscard]] int sync_folder(const std::string& folder);  // so are the names in it
[[nodiscard]] int preallocate(int descriptor,
                              size_t size);  // a new file: a full disk is an error here, not a SIGBUS when a page is written
// Room for a file's first `size` bytes, whatever its own size: it is not changed, and cutting the file gives back what it does not need.
[[nodiscard]] int keep_room(int descriptor, size_t size);

// Advisory locks between processes: flock, because the kernel releases it when its holder dies, however it dies. EWOULDBLOCK where
// another descriptor has it.
enum class Lock { shared, exclusive };
int try_lock(int descriptor, Lock kind);
[[nodiscard]] int wait_for_lock(int descriptor, Lock kind);
void unlock(int descriptor);  // also of the copies that forks have; closing a descriptor alone does not

// Two files or folders of one file system change their names in one step; an errno where the system or the file system cannot do that.
[[nodiscard]] int exchange_names(const std::string& one, const std::string& other);

struct FileTimes {                  // nanoseconds since 1970
  int64_t modified_ns, changed_ns;  // its content; anything of it, which the system alone sets
};
FileTimes times_of(const struct stat& found);

bool others_may_write(const struct stat& found);  // users other than this one, root and the system's own

bool is_system_user(uid_t user);  // who installs apps, for instance

// Seconds since 1970 at which this system was started: a process number means nothing across that. 0: it does not say.
int64_t system_started_at();

}  // namespace bespoke
