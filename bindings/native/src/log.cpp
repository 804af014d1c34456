// SPDX-License-Identifier: Apache-2.0
#include "log.h"

#include "locks.h"

namespace bespoke {

namespace {

struct Log {
  Mutex mutex;
  bespoke_log write GUARDED_BY(mutex) = nullptr;
  void* context GUARDED_BY(mutex) = nullptr;
};

Log& log_of_process() {
  static Log& made = *new Log;  // never destroyed: a thread may still compute while the process ends
  return made;
}

}  // namespace

bool write_to_log(bespoke_log_level level, const char* text) {
  Log& log = log_of_process();
  const MutexLock held(log.mutex);
  if (!log.write) return false;
  log.write(log.context, level, text);
  return true;
}

}  // namespace bespoke

void bespoke_set_log(bespoke_log log, void* context) {
  bespoke::Log& set = bespoke::log_of_process();
  const bespoke::MutexLock held(set.mutex);
  set.write = log, set.context = context;
}
