/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a program and watches its memory from outside, from before its exec to its exit.
 *
 *     watch_memory REPORT CGROUP PROGRAM [ARGUMENT...]      CGROUP: a folder to enter first, or "-"
 *
 * Every millisecond RssAnon + RssShmem + VmSwap of /proc/PID/status, from a descriptor that stays open; a second thread reads
 * smaps every 200 ms for mapped pages that are dirty, which takes milliseconds and must leave no gap in the first. REPORT gets one
 * JSON object. SIGTERM and SIGINT go on to the program; it ends with the program's exit status.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INTERVAL_NS 1000000L
#define SMAPS_INTERVAL_NS 200000000L

static pid_t child;
static atomic_int ended;

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void sleep_until(long long moment) {
  const struct timespec t = {moment / 1000000000LL, moment % 1000000000LL};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
  }
}

static void forward(int number) { kill(child, number); }

static long long kilobytes(const char* text, const char* label) {
  const char* found = strstr(text, label);
  return found ? atoll(found + strlen(label)) * 1024 : 0;
}

/* What smaps says, at the readings where it says most. Shared memory without a file is in RssShmem, and in the sum only. */
static long long dirty_peak, sum_peak, smaps_readings;

static int is_shmem(const char* map) {
  return strstr(map, "/dev/zero") || strstr(map, "/memfd:") || strstr(map, "/SYSV") || strstr(map, "/dev/shm/");
}

static void* read_smaps(void* unused) {
  char path[64], line[4096];
  snprintf(path, sizeof path, "/proc/%d/smaps", child);
  while (!atomic_load(&ended)) {
    long long dirty = 0, anonymous = 0, shmem = 0, map_dirty = 0, map_anonymous = 0, inode = 0;
    int map_shmem = 0;
    FILE* file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
      unsigned long from, to;
      const int header = sscanf(line, "%lx-%lx %*4s %*x %*x:%*x %lld", &from, &to, &inode) >= 2;
      if (header) map_dirty = map_anonymous = 0, map_shmem = is_shmem(line);
      if (!strncmp(line, "Private_Dirty:", 14) || !strncmp(line, "Shared_Dirty:", 13)) map_dirty += kilobytes(line, ":");
      if (!strncmp(line, "Anonymous:", 10)) map_anonymous = kilobytes(line, ":");
      if (!strncmp(line, "Swap:", 5)) anonymous += kilobytes(line, ":");
      if (!strncmp(line, "VmFlags:", 8)) { /* a map's last line; what a private map copied from its file is anonymous */
        anonymous += map_anonymous;
        if (inode && map_dirty > map_anonymous) *(map_shmem ? &shmem : &dirty) += map_dirty - map_anonymous;
      }
    }
    if (file) fclose(file);
    smaps_readings++;
    if (dirty > dirty_peak) dirty_peak = dirty;
    if (dirty + anonymous + shmem > sum_peak) sum_peak = dirty + anonymous + shmem;
    sleep_until(now_ns() + SMAPS_INTERVAL_NS);
  }
  return unused;
}

static int start(char** arguments, const char* cgroup) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (strcmp(cgroup, "-")) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    const int file = open(path, O_WRONLY);
    if (file < 0 || write(file, "0", 1) != 1) return perror(path), 125;
    close(file);
  }
  execv(arguments[0], arguments);
  perror(arguments[0]);
  return 127;
}

int main(int count, char** arguments) {
  if (count < 4) return fprintf(stderr, "usage: watch_memory REPORT CGROUP PROGRAM [ARGUMENT...]\n"), 2;
  child = fork();
  if (child < 0) return perror("fork"), 1;
  if (child == 0) _exit(start(arguments + 3, arguments[2]));
  signal(SIGTERM, forward);
  signal(SIGINT, forward);
  char path[64], status[8192];
  snprintf(path, sizeof path, "/proc/%d/status", child);
  const int file = open(path, O_RDONLY);
  if (file < 0) return perror(path), 1;
  pthread_t reader;
  pthread_create(&reader, NULL, read_smaps, NULL);
  /* Ahead of what is watched, where the system allows it: with all cores busy a reading would come late. */
  prctl(PR_SET_TIMERSLACK, 1UL);
  const struct sched_param first = {.sched_priority = 1};
  const int ahead = sched_setscheduler(0, SCHED_FIFO, &first) == 0;

  const long long began = now_ns();
  long long next = began, last = began, longest = 0, late = 0, readings = 0, peak = -1, anonymous = 0, shmem = 0, swap = 0, at = 0,
            file_peak = 0;
  for (siginfo_t info = {0}; waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;) {
    const ssize_t size = pread(file, status, sizeof status - 1, 0);
    if (size <= 0) break;
    status[size] = 0;
    const long long moment = now_ns(), a = kilobytes(status, "RssAnon:"), s = kilobytes(status, "RssShmem:"),
                    w = kilobytes(status, "VmSwap:");
    const long long mapped = kilobytes(status, "RssFile:");
    if (a + s + w > peak) peak = a + s + w, anonymous = a, shmem = s, swap = w, at = moment - began;
    if (mapped > file_peak) file_peak = mapped;
    if (readings++ && moment - last > longest) longest = moment - last;
    late += moment - last > 2 * INTERVAL_NS;
    last = moment;
    next += INTERVAL_NS;
    if (next < now_ns()) next = now_ns();
    sleep_until(next);
  }
  const double seconds = (now_ns() - began) / 1e9;
  int code = 0;
  struct rusage usage;
  while (wait4(child, &code, 0, &usage) < 0 && errno == EINTR) {
  }
  atomic_store(&ended, 1);
  pthread_join(reader, NULL);

  FILE* report = fopen(arguments[1], "w");
  if (!report) return perror(arguments[1]), 1;
  fprintf(
      report,
      "{\"peak_bytes\": %lld, \"anonymous\": %lld, \"shmem\": %lld, \"swap\": %lld, \"peak_at_seconds\": %.3f, \"file_peak_bytes\": %lld, "
      "\"readings\": %lld, \"seconds\": %.3f, \"longest_gap_ms\": %.2f, \"late_readings\": %lld, \"ahead\": %s, "
      "\"dirty_mapped_peak_bytes\": %lld, \"anonymous_and_dirty_peak_bytes\": %lld, \"smaps_readings\": %lld, "
      "\"disk_bytes_read\": %lld, \"disk_bytes_written\": %lld, \"cpu_seconds\": %.3f, \"major_faults\": %ld}\n",
      peak, anonymous, shmem, swap, at / 1e9, file_peak, readings, seconds, longest / 1e6, late, ahead ? "true" : "false", dirty_peak,
      sum_peak, smaps_readings, usage.ru_inblock * 512LL, usage.ru_oublock * 512LL,
      usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6, usage.ru_majflt);
  fclose(report);
  if (WIFSIGNALED(code)) return 128 + WTERMSIG(code);
  return WEXITSTATUS(code);
}
