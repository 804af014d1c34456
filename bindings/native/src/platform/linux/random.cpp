// SPDX-License-Identifier: Apache-2.0
#include "platform/random.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "error.h"

namespace bespoke {

// By number: Android has a function for it from version 28 of its interface on.
void draw_from_system(void* bytes, size_t size) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (size > 0) {
    const long done = syscall(SYS_getrandom, at, size, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0)
      throw Error(Kind::State, "the system's random generator", "errno " + std::to_string(errno), "random bytes", "Try again later");
    at += done, size -= static_cast<size_t>(done);
  }
}

}  // namespace bespoke
