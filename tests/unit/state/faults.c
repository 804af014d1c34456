/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a process under test: at the k-th call that changes a file, kill it (before the call, after it, or in
 * the middle of a write) or let the call fail, or write a part and fail from then on. Also keeps a log of those calls, so
 * that their order can be checked. FAULTS_KIND=read or memory: it is the calls that read a file of a state, open or lock one that
 * are counted and fail instead, or the allocations of SQLite. A program that cannot call it is armed by FAULTS_ARM=call:mode:error from its start, and
 * leaves the log in the file FAULTS_LOG at its end.
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
#include <unistd.h>

enum { KILL_BEFORE = 0, KILL_AFTER = 1, KILL_TORN = 2, FAIL = 3, FAIL_FROM = 4, FAIL_SHORT = 5 };

static long hit = -1, count;
static int how, error_number, here;
static enum { CHANGES, READS, MEMORY } kind;
static char log_text[1 << 20];
static size_t log_length;

void faults_arm(long k, int mode, int error) { hit = k; how = mode; error_number = error; count = 0; log_length = 0; }
long faults_count(void) { return count; }
const char *faults_log(void) { log_text[log_length] = 0; return log_text; }

__attribute__((constructor)) static void arm_from_environment(void) {
    long k;
    int mode, error;
    const char *text = getenv("FAULTS_ARM"), *of = getenv("FAULTS_KIND");
    if (of) kind = !strcmp(of, "read") ? READS : !strcmp(of, "memory") ? MEMORY : CHANGES;
    if (text && sscanf(text, "%ld:%d:%d", &k, &mode, &error) == 3) faults_arm(k, mode, error);
}
__attribute__((destructor)) static void leave_log(void) {
    const char *path = getenv("FAULTS_LOG");
    hit = -1;
    FILE *file = path ? fopen(path, "w") : 0;
    if (!file) return;
    fwrite(log_text, 1, log_length, file);
    if (kind == MEMORY) fprintf(file, "%ld allocations\n", count);
    fclose(file);
}

static void die(void) { kill(getpid(), SIGKILL); }

/* 1: the call is to fail with errno set. */
static int before_kind(int of, const char *call, const char *path, int fd) {
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
    const char *base = strrchr(path, '/');
    if (log_length + 600 < sizeof log_text)
        log_length += snprintf(log_text + log_length, 600, "%s %s\n", call, base ? base + 1 : path);
    count++;
    if ((how == FAIL_FROM && count > hit) || (how == FAIL_SHORT && count - 1 > hit)) { errno = error_number; return 1; }
    if (count - 1 != hit) return 0;
    here = 1;
    if (how == KILL_BEFORE) die();
    if (how == FAIL) { errno = error_number; return 1; }
    return 0;
}
static int before(const char *call, const char *path, int fd) { return before_kind(CHANGES, call, path, fd); }
static void after(void) { if (here && how == KILL_AFTER) die(); }
static int torn(void) { return here && how == KILL_TORN; }
/* A disk that fills in the middle: some bytes of the write arrive, no later call succeeds. */
static size_t some(size_t n) { return here && how == FAIL_SHORT && n > 1 ? n / 2 : n; }

#define REAL(name, ...) static __typeof__(__VA_ARGS__) real; if (!real) real = (__typeof__(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t n) {
    REAL("write", ssize_t (*)(int, const void *, size_t));
    if (before("write", 0, fd)) return -1;
    if (torn()) { real(fd, data, n / 2); die(); }
    ssize_t done = real(fd, data, some(n));
    after();
    return done;
}
#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t n, off_t at) { \
        REAL(#name, ssize_t (*)(int, const void *, size_t, off_t)); \
        if (before("pwrite", 0, fd)) return -1; \
        if (torn()) { real(fd, data, n / 2, at); die(); } \
        ssize_t done = real(fd, data, some(n), at); \
        after(); \
        return done; \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define ONE_FD(name, label) \
    int name(int fd) { \
        REAL(#name, int (*)(int)); \
        if (before(label, 0, fd)) return -1; \
        int done = real(fd); \
        after(); \
        return done; \
    }
ONE_FD(fsync, "fsync")
ONE_FD(fdatasync, "fsync")

#define TRUNCATE(name) \
    int name(int fd, off_t size) { \
        REAL(#name, int (*)(int, off_t)); \
        if (before("ftruncate", 0, fd)) return -1; \
        int done = real(fd, size); \
        after(); \
        return done; \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

int rename(const char *from, const char *to) {
    REAL("rename", int (*)(const char *, const char *));
    if (before("rename", to, -1)) return -1;
    int done = real(from, to);
    after();
    return done;
}
int unlink(const char *path) {
    REAL("unlink", int (*)(const char *));
    if (before("unlink", path, -1)) return -1;
    int done = real(path);
    after();
    return done;
}

/* What is read, opened and locked: only files of a state, recognized by their names. */
static int of_a_state(const char *path) {
    const char *base = strrchr(path, '/');
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
#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t n, off_t at) { \
        REAL(#name, ssize_t (*)(int, void *, size_t, off_t)); \
        if (fd_of_a_state(fd) && before_kind(READS, "pread", 0, fd)) return -1; \
        return real(fd, data, n, at); \
    }
PREAD(pread)
PREAD(pread64)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(#name, int (*)(const char *, int, ...)); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        if (hit >= 0 && kind == READS && of_a_state(path) && before_kind(READS, "open", path, -1)) return -1; \
        return real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define MMAP(name) \
    void *name(void *place, size_t n, int protection, int flags, int fd, off_t at) { \
        REAL(#name, void *(*)(void *, size_t, int, int, int, off_t)); \
        if (fd >= 0 && fd_of_a_state(fd) && before_kind(READS, "mmap", 0, fd)) return MAP_FAILED; \
        return real(place, n, protection, flags, fd, at); \
    }
MMAP(mmap)
MMAP(mmap64)

#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        REAL(#name, int (*)(int, int, ...)); \
        va_list more; \
        va_start(more, command); \
        void *argument = va_arg(more, void *); \
        va_end(more); \
        if (command == F_SETLK && fd_of_a_state(fd) && before_kind(READS, "lock", 0, fd)) return -1; \
        return real(fd, command, argument); \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

/* The allocations of SQLite: those that its library asks for. */
extern void *__libc_malloc(size_t), *__libc_realloc(void *, size_t);
static int no_memory(void *caller) {
    Dl_info from;
    static __thread int inside;
    if (hit < 0 || kind != MEMORY || inside) return 0;
    inside = 1;
    int ours = dladdr(caller, &from) && from.dli_fname && strstr(from.dli_fname, "libsqlite3");
    inside = 0;
    if (!ours || count++ < hit || (how != FAIL_FROM && count - 1 > hit)) return 0;
    errno = ENOMEM;
    return 1;
}
void *malloc(size_t n) { return no_memory(__builtin_return_address(0)) ? 0 : __libc_malloc(n); }
void *realloc(void *old, size_t n) { return no_memory(__builtin_return_address(0)) ? 0 : __libc_realloc(old, n); }
