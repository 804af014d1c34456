/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded: the n-th look at the clock that a thread takes, and each one after it, is a million seconds late. A call with a deadline
 * looks at it wherever it may end: so it is ended at each of these places in turn.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread long looks, most = -1;

void late_from(long n) { looks = 0, most = n; } /* of this thread; less than 0: never */
long looks_taken(void) { return looks; }

int clock_gettime(clockid_t clock, struct timespec* now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (!failed && clock == CLOCK_MONOTONIC && most >= 0 && looks++ >= most) now->tv_sec += 1000000;
  return failed;
}
