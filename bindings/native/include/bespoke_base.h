/* SPDX-License-Identifier: Apache-2.0
 *
 * What bespoke.h and bespoke_engine.h share: how functions, enums and pointers are declared, statuses, errors and texts.
 */
#ifndef BESPOKE_BASE_H
#define BESPOKE_BASE_H

#include <stddef.h>
#include <stdint.h>

/* The version of this API. A library runs with clients of its own major version that are as old as it or older. */
#define BESPOKE_API_MAJOR 1
#define BESPOKE_API_MINOR 1

#if defined(_WIN32)
#define BESPOKE_API
#else
#define BESPOKE_API __attribute__((visibility("default")))
#endif

/* A caller that drops a status does not learn that nothing was done. */
#if defined(__GNUC__)
#define BESPOKE_CHECKED BESPOKE_API __attribute__((warn_unused_result))
#else
#define BESPOKE_CHECKED BESPOKE_API
#endif

/* Each enum is 32 bits wide, has a name and is open: later libraries add values. */
#if defined(__clang__)
#define BESPOKE_ENUM(name)                                       \
  enum __attribute__((enum_extensibility(open))) name : int32_t; \
  typedef enum name name;                                        \
  enum __attribute__((enum_extensibility(open))) name : int32_t
#elif defined(__cplusplus)
#define BESPOKE_ENUM(name) enum name : int32_t
#else
#define BESPOKE_ENUM(name) \
  typedef int32_t name;    \
  enum
#endif

/* Between these a pointer is never null, but where it says BESPOKE_NULL. */
#if defined(__clang__)
#define BESPOKE_NULL _Nullable
#define BESPOKE_NONNULL _Nonnull /* a place that must be given */
#if __has_warning("-Wfixed-enum-extension")
#define BESPOKE_FIXED_ENUM _Pragma("clang diagnostic ignored \"-Wfixed-enum-extension\"")
#else /* its name in newer ones: clang 22 */
#define BESPOKE_FIXED_ENUM _Pragma("clang diagnostic ignored \"-Wc23-extensions\"")
#endif
#define BESPOKE_BEGIN                                                                              \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wnullability-extension\"") \
      BESPOKE_FIXED_ENUM _Pragma("clang assume_nonnull begin")
#define BESPOKE_END _Pragma("clang assume_nonnull end") _Pragma("clang diagnostic pop")
#else
#define BESPOKE_NULL
#define BESPOKE_NONNULL
#define BESPOKE_BEGIN
#define BESPOKE_END
#endif

#ifdef __cplusplus
extern "C" {
#endif
BESPOKE_BEGIN

/* The list only grows. What a value is called in Python and in other languages: bindings/schema/errors.json. */
BESPOKE_ENUM(bespoke_status){
    BESPOKE_OK = 0,
    /* <statuses> */
    BESPOKE_INTERNAL_ERROR = 1,
    BESPOKE_CONFIG_ERROR = 2,
    BESPOKE_MISSING_DEPENDENCY = 3,
    BESPOKE_DATA_ERROR = 4,
    BESPOKE_PLAN_ERROR = 5,
    BESPOKE_UNSUPPORTED = 6,
    BESPOKE_BUNDLE_ERROR = 7,
    BESPOKE_BUNDLE_VERSION_ERROR = 8,
    BESPOKE_SIGNATURE_ERROR = 9,
    BESPOKE_GOLDEN_MISMATCH = 10,
    BESPOKE_STATE_ERROR = 11,
    BESPOKE_STATE_LOCKED = 12,
    BESPOKE_DISK_FULL = 13,
    BESPOKE_BUDGET_EXCEEDED = 14,
    BESPOKE_ADAPTER_ERROR = 15,
    BESPOKE_BUSY = 16,
    BESPOKE_CANCELLED = 17,
    BESPOKE_UNAVAILABLE = 18,
    BESPOKE_GENERATION_ERROR = 19,
    /* </statuses> */
};

/* The same names and four parts as in the Python SDK: what it is about, what was got, what was expected, what to do. Verbs and settings
 * that they name are called as in C. */
typedef struct bespoke_error {
  size_t struct_size;
  bespoke_status status;
  const char* kind; /* "BudgetExceeded", "StateLocked", ... */
  const char* subject;
  const char* got;
  const char* expected;
  const char* next_step;
  const char* BESPOKE_NULL
      references; /* null, or JSON (error_references): the parts that name verbs and settings, for a binding that says them in
        its own language's words: {"next_step": ["...", {"do": "forget", "arguments": ["id"]}, "...", {"setting": "memory_mb",
        "value": 64}]}. What they are called in each language: bindings/schema/remedies.json */
} bespoke_error;

/* Every error is freed with it, also the one that says that there was no memory for an error: that one is not allocated. */
BESPOKE_API void bespoke_error_free(bespoke_error* BESPOKE_NULL error);

typedef struct bespoke_text {
  const char* BESPOKE_NULL data; /* null where size is 0 */
  size_t size;                   /* bytes */
} bespoke_text;

BESPOKE_API void bespoke_free(char* BESPOKE_NULL text);

BESPOKE_ENUM(bespoke_log_level){
    BESPOKE_LOG_DEBUG = 1,
    BESPOKE_LOG_INFO = 2,
    BESPOKE_LOG_ERROR = 3,
};

/* Takes a line that a part of the library writes for developers. It is called on any thread, for one line at a time. `text` is valid
 * during the call. It must not call this API. */
typedef void (*bespoke_log)(void* BESPOKE_NULL context, bespoke_log_level level, const char* text);

/* Sets where the lines of this process go: those of ExecuTorch, which says why it refuses a program. Null: to stderr. The log that was
 * set before is not called any more when this returns. */
BESPOKE_API void bespoke_set_log(bespoke_log BESPOKE_NULL log, void* BESPOKE_NULL context);

BESPOKE_END
#ifdef __cplusplus
}
#endif
#endif
