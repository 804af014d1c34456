/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a process under test: at the k-th call that changes a file, kill it (before the call, after it, or in
 * the middle of a write) or let the call fail, or write a part and fail from then on. Also keeps a log of those calls, so
 * that their order can be checked. FAULTS_KIND=read or memory: it is the calls that read a file of a state, open or lock one that
 * are counted and fail instead, or the allocations of SQLite. A program that cannot call it is armed by FAULTS_ARM=call:mode:error from its
 * start, and leaves the log in the file FAULTS_LOG at its end.
 *
 * FAULTS_UNDER=FOLDER: only calls on files below it count. FAULTS_SHARED=FILE: all processes that inherit this count together, and
 * log together, in this mapped file; a kill takes the process that armed them too, as a system does that ends an app.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { KILL_BEFORE = 0, KILL_AFTER = 1, KILL_TORN = 2, FAIL = 3, FAIL_FROM = 4, FAIL_SHORT = 5 };

struct faults {
  long hit, count;
  int how, error_number;
  pid_t armed_by;
  size_t log_length;
  char log_text[1 << 20];
};
static struct faults own = {.hit = -1}, *all = &own;
#define hit (all->hit)
#define count (all->count)
#define how (all->how)
#define error_number (all->error_number)
#define log_length (all->log_length)
#define log_text (all->log_text)
static __thread int here;
static enum { CHANGES, READS, MEMORY } kind;
static const char* under;

void faults_arm(long k, int mode, int error) {
  how = mode;
  error_number = error;
  count = 0;
  log_length = 0;
  all->armed_by = getpid();
  hit = k;
}
long faults_count(void) { return count; }
const char* faults_log(void) {
  log_text[log_length] = 0;
  return log_text;
}

static void share(const char* path) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void* shared = fd < 0 ? MAP_FAILED : mmap(0, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared == MAP_FAILED) {
    perror(path);
    _exit(125);
  }
  close(fd);
  all = shared;
}

__attribute__((constructor)) static void arm_from_environment(void) {
  long k;
  int mode, error;
  const char *text = getenv("FAULTS_ARM"), *of = getenv("FAULTS_KIND"), *shared = getenv("FAULTS_SHARED");
  under = getenv("FAULTS_UNDER");
  if (shared) share(shared);
  if (of) kind = !strcmp(of, "read") ? READS : !strcmp(of, "memory") ? MEMORY : CHANGES;
  if (text && sscanf(text, "%ld:%d:%d", &k, &mode, &error) == 3) faults_arm(k, mode, error);
}
__attribute__((destructor)) static void leave_log(void) {
  const char* path = getenv("FAULTS_LOG");
  if (all != &own) return;
  hit = -1;
  FILE* file = path ? fopen(path, "w") : 0;
  if (!file) return;
  fwrite(log_text, 1, log_length, file);
  if (kind == MEMORY) fprintf(file, "%ld allocations\n", count);
  fclose(file);
}

static void die(void) {
  if (all->armed_by != getpid() && all != &own) kill(all->armed_by, SIGKILL);
  kill(getpid(), SIGKILL);
}

/* 1: the call is to fail with errno set. */
static int before_kind(int of, const char* call, const char* path, int fd) {
  char of_fd[64], name[512];
  here = 0;
  if (hit < 0 || of != (int)kind) return 0;
  if (!path) {
    snprintf(of_fd, sizeof of_fd, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(of_fd, name, sizeof name - 1);
    name[n < 0 ? 0 : n] = 0;
    if (name[0] != '/' || (!strncmp(name, "/dev/", 5) && strncmp(name, "/dev/shm/", 9))) return 0; /* no file of a state */
    path = name;
  }
  if (under && (strncmp(path, under, strlen(under)) || path[strlen(under)] != '/')) return 0;
  const char* base = strrchr(path, '/');
  long number = __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
  if (log_length + 600 < sizeof log_text) log_length += snprintf(log_text + log_length, 600, "%s %s\n", call, base ? base + 1 : path);
  if ((how == FAIL_FROM && number >= hit) || (how == FAIL_SHORT && number > hit)) {
    errno = error_number;
    return 1;
  }
  if (number != hit) return 0;
  here = 1;
  if (how == KILL_BEFORE) die();
  if (how == FAIL) {
    errno = error_number;
    return 1;
  }
  return 0;
}
static int before(const char* call, const char* path, int fd) { return before_kind(CHANGES, call, path, fd); }
static void after(void) {
  if (here && how == KILL_AFTER) die();
}
static int torn(void) { return here && how == KILL_TORN; }
/* A disk that fills in the middle: some bytes of the write arrive, no later call succeeds. */
static size_t some(size_t n) { return here && how == FAIL_SHORT && n > 1 ? n / 2 : n; }

#define REAL(name, ...)                \
  static __typeof__(__VA_ARGS__) real; \
  if (!real) real = (__typeof__(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void* data, size_t n) {
  REAL("write", ssize_t (*)(int, const void*, size_t));
  if (before("write", 0, fd)) return -1;
  if (torn()) {
    real(fd, data, n / 2);
    die();
  }
  ssize_t done = real(fd, data, some(n));
  after();
  return done;
}
#define PWRITE(name)                                           \
  ssize_t name(int fd, const void* data, size_t n, off_t at) { \
    REAL(#name, ssize_t (*)(int, const void*, size_t, off_t)); \
    if (before("pwrite", 0, fd)) return -1;                    \
    if (torn()) {                                              \
      real(fd, data, n / 2, at);                               \
      die();                                                   \
    }                                                          \
    ssize_t done = real(fd, data, some(n), at);                \
    after();                                                   \
    return done;                                               \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

/* SQLite waits where a file is busy, and after some failed reads. Where reads fail nobody else is there: the wait is over at once. */
int nanosleep(const struct timespec* wanted, struct timespec* left) {
  REAL("nanosleep", int (*)(const struct timespec*, struct timespec*));
  return kind == READS ? 0 : real(wanted, left);
}

#define ONE_FD(name, label)              \
  int name(int fd) {                     \
    REAL(#name, int (*)(int));           \
    if (before(label, 0, fd)) return -1; \
    int done = real(fd);                 \
    after();                             \
    return done;                         \
  }
ONE_FD(fsync, "fsync")
ONE_FD(fdatasync, "fsync")

#define TRUNCATE(name)                         \
  int name(int fd, off_t size) {               \
    REAL(#name, int (*)(int, off_t));          \
    if (before("ftruncate", 0, fd)) return -1; \
    int done = real(fd, size);                 \
    after();                                   \
    return done;                               \
  }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char* from, const char* to) {
  REAL("rename", int (*)(const char*, const char*));
  if (before("rename", to, -1)) return -1;
  int done = real(from, to);
  after();
  return done;
}
/* Names relative to a folder: what rmtree removes, and two folders that change places. */
static const char* in_folder(int fd, const char* path, char* whole, size_t size) {
  char of_fd[64];
  if (path[0] == '/' || fd == AT_FDCWD) return path;
  snprintf(of_fd, sizeof of_fd, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(of_fd, whole, size - 1);
  if (n < 0) return path;
  snprintf(whole + n, size - n, "/%s", path);
  return whole;
}
int unlinkat(int fd, const char* path, int flags) {
  char whole[1024];
  REAL("unlinkat", int (*)(int, const char*, int));
  if (hit >= 0 && before("unlink", in_folder(fd, path, whole, sizeof whole), -1)) return -1;
  int done = real(fd, path, flags);
  after();
  return done;
}
int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  char whole[1024];
  REAL("renameat2", int (*)(int, const char*, int, const char*, unsigned));
  if (hit >= 0 && before("rename", in_folder(to_fd, to, whole, sizeof whole), -1)) return -1;
  int done = real(from_fd, from, to_fd, to, flags);
  after();
  return done;
}
int link(const char* from, const char* to) {
  REAL("link", int (*)(const char*, const char*));
  if (before("link", to, -1)) return -1;
  int done = real(from, to);
  after();
  return done;
}
int unlink(const char* path) {
  REAL("unlink", int (*)(const char*));
  if (before("unlink", path, -1)) return -1;
  int done = real(path);
  after();
  return done;
}

/* What is read, opened and locked: only files of a state, recognized by their names. */
static int of_a_state(const char* path) {
  const char* base = strrchr(path, '/');
  base = base ? base + 1 : path;
  return !strncmp(base, "state.sqlite", 12) || !strncmp(base, "slot_", 5) || !strncmp(base, "accepted_", 9) || strstr(base, ".lock");
}
static int fd_of_a_state(int fd) {
  char of_fd[64], name[512];
  snprintf(of_fd, sizeof of_fd, "/proc/self/fd/%d", fd);
  ssize_t n = hit < 0 || kind != READS ? -1 : readlink(of_fd, name, sizeof name - 1);
  name[n < 0 ? 0 : n] = 0;
  return n > 0 && of_a_state(name);
}
#define PREAD(name)                                                         \
  ssize_t name(int fd, void* data, size_t n, off_t at) {                    \
    REAL(#name, ssize_t (*)(int, void*, size_t, off_t));                    \
    if (fd_of_a_state(fd) && before_kind(READS, "pread", 0, fd)) return -1; \
    return real(fd, data, n, at);                                           \
  }
PREAD(pread)
PREAD(pread64)

#define OPEN(name)                                                                                        \
  int name(const char* path, int flags, ...) {                                                            \
    REAL(#name, int (*)(const char*, int, ...));                                                          \
    va_list more;                                                                                         \
    va_start(more, flags);                                                                                \
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;                                             \
    va_end(more);                                                                                         \
    if (hit >= 0 && kind == READS && of_a_state(path) && before_kind(READS, "open", path, -1)) return -1; \
    return real(path, flags, mode);                                                                       \
  }
OPEN(open)
OPEN(open64)

#define MMAP(name)                                                                            \
  void* name(void* place, size_t n, int protection, int flags, int fd, off_t at) {            \
    REAL(#name, void* (*)(void*, size_t, int, int, int, off_t));                              \
    if (fd >= 0 && fd_of_a_state(fd) && before_kind(READS, "mmap", 0, fd)) return MAP_FAILED; \
    return real(place, n, protection, flags, fd, at);                                         \
  }
MMAP(mmap)
MMAP(mmap64)

#define FCNTL(name)                                                                              \
  int name(int fd, int command, ...) {                                                           \
    REAL(#name, int (*)(int, int, ...));                                                         \
    va_list more;                                                                                \
    va_start(more, command);                                                                     \
    void* argument = va_arg(more, void*);                                                        \
    va_end(more);                                                                                \
    if (command == F_SETLK && fd_of_a_state(fd) && before_kind(READS, "lock", 0, fd)) return -1; \
    return real(fd, command, argument);                                                          \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

/* The allocations of SQLite: those that its library asks for. */
extern void *__libc_malloc(size_t), *__libc_realloc(void*, size_t);
static int no_memory(void* caller) {
  Dl_info from;
  static __thread int inside;
  if (hit < 0 || kind != MEMORY || inside) return 0;
  inside = 1;
  /* Python's SQLite; or the core, in which SQLite is and nothing else calls malloc but for what leaves the C API. */
  int ours = dladdr(caller, &from) && from.dli_fname && (strstr(from.dli_fname, "libsqlite3") || strstr(from.dli_fname, "libbespoke_core"));
  inside = 0;
  if (!ours || count++ < hit || (how != FAIL_FROM && count - 1 > hit)) return 0;
  errno = ENOMEM;
  return 1;
}
void* malloc(size_t n) { return no_memory(__builtin_return_address(0)) ? 0 : __libc_malloc(n); }
void* realloc(void* old, size_t n) { return no_memory(__builtin_return_address(0)) ? 0 : __libc_realloc(old, n); }
