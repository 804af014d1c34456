/* SPDX-License-Identifier: Apache-2.0
 *
 * bespoke's device core: one user's model. Opens a bundle and the user's state, trains, judges, and says what it did. C API 1.0,
 * release candidate: what an app is compiled against today runs with every later library of version 1.
 *
 * Threads   Any function may be called from any thread. Calls that compute (train, evaluate, verify) run one at a time for each model:
 *           a second one gets BESPOKE_BUSY at once. Limit, pace and cancellation may change while a call runs. bespoke_close waits for the
 *           calls of its model; a handle is not to be used after it.
 * Errors    Every function that can fail returns a bespoke_status, and fills `*error` where it is given. What it points to is freed with
 *           bespoke_error_free. No exception crosses this border. A null where none may be is BESPOKE_CONFIG_ERROR; null for `error`,
 *           `report` or what is freed or closed does nothing.
 * Structs   begin with `struct_size`, which is sizeof of the struct in the header that the caller was compiled with. They grow at
 *           their ends. What a caller's struct does not have yet counts as 0; what this library does not know yet must be 0.
 * Texts     go in as pointer and length, UTF-8, and need no 0 at their end; an empty one may be null. They come out with a 0 at their
 *           end and are freed with bespoke_free. MB = 10^6 bytes.
 */
#ifndef BESPOKE_H
#define BESPOKE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define BESPOKE_API
#else
#define BESPOKE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ----------------------------------------------------------------------------------------------- */

/* The list only grows. What a value is called in Python and in other languages: bindings/schema/errors.json. */
typedef int32_t bespoke_status;
enum {
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
/* </statuses> */
};

/* The same names and four parts as in the Python SDK: what it is about, what was got, what was expected, what to do. */
typedef struct bespoke_error {
  size_t struct_size;
  bespoke_status status;
  const char *kind;     /* "BudgetExceeded", "StateLocked", ... */
  const char *subject;
  const char *got;
  const char *expected;
  const char *next_step;
} bespoke_error;

/* Every error is freed with it, also the one that says that there was no memory for an error: that one is not allocated. */
BESPOKE_API void bespoke_error_free(bespoke_error *error);

typedef struct bespoke_text {
  const char *data;
  size_t size; /* bytes */
} bespoke_text;

BESPOKE_API void bespoke_free(char *text);

/* ---- engines --------------------------------------------------------------------------------------------------------- */

enum { BESPOKE_FLOAT32 = 0, BESPOKE_FLOAT16 = 1, BESPOKE_UINT8 = 2, BESPOKE_INT64 = 3, BESPOKE_INT32 = 4 };

/* A dense tensor in row-major order. `data` is aligned to 4 bytes at least. */
typedef struct bespoke_tensor {
  void *data;
  const int64_t *shape;
  int32_t rank;
  int32_t dtype;
} bespoke_tensor;

#define BESPOKE_ENGINE_NO_MEMORY 2       /* the system gave none: training ends as where a budget is exceeded */
#define BESPOKE_ENGINE_OTHER_SIGNATURE 3 /* the program takes or gives other tensors; `message` says what: the bundle is refused */

/* What runs the compiled graphs of one target. The table and its `target` are copied: what was given may go when bespoke_open
 * returns. `context` is the core's from then on: `destroy` (it may be null) is called with it exactly once, after every `close`: by
 * bespoke_close, or by bespoke_open where that fails, but for a `struct_size` that is wrong. The core calls it from one thread; it may use threads of its own. Where a
 * function fails it returns one of the numbers above or another but 0, and writes a text of at most `message_size` bytes, its 0
 * included, to `message`. */
typedef struct bespoke_engine {
  size_t struct_size;
  const char *target;  /* artifacts of this target are handed to it */
  void *context;
  /* Opens an artifact whose bytes were held against the manifest's hash; they stay mapped until `close`. All programs share
   * `workspace`, of at least the artifact's workspace_bytes and aligned to 64: what is in it is lost between two runs. Of what a run
   * trains with, the artifact with the largest engine_bytes is opened first: memory that the engine keeps for all is best taken then. */
  int (*open)(void *context, const void *artifact, size_t size, void *workspace, size_t workspace_size, void **program,
              char *message, size_t message_size);
  /* Operands and results in the order of the artifact's signature. Results never overlap operands. Nobody else can tell what the
   * program itself takes and gives: where a count, dtype, shape or order of dimensions differs from its own, the engine returns
   * BESPOKE_ENGINE_OTHER_SIGNATURE before a byte is read or written. */
  int (*run)(void *context, void *program, const bespoke_tensor *operands, size_t operand_count,
             const bespoke_tensor *results, size_t result_count, char *message, size_t message_size);
  void (*close)(void *context, void *program);
  void (*destroy)(void *context);
} bespoke_engine;

/* ---- a model --------------------------------------------------------------------------------------------------------- */

typedef struct bespoke_model bespoke_model;

/* Where a bundle is. It is code: what is in it runs with the app's rights, and its hashes say that it is whole, not whose it is. Give a
 * pin or a key. A folder is never changed while a model may have it open: replace it by renaming another to its name, as `bespoke
 * build` does. A file that is cut short in place ends the process that has it mapped (SIGBUS). */
typedef struct bespoke_bundle {
  size_t struct_size;
  bespoke_text path;     /* a folder, a folder with weights.zip and method.zip in it, or a zip; empty: what follows */
  uint64_t offset, size; /* of a zip within an open file, for instance an asset that an APK stores uncompressed */
  int32_t descriptor;    /* of that file. It may be closed after bespoke_open */
} bespoke_bundle;

typedef struct bespoke_options {
  size_t struct_size;
  double memory_mb;              /* limit of the whole process; 0: the bundle's budget; negative: none */
  bespoke_text pin_sha256;       /* of manifest.json, in hexadecimal, or empty */
  const uint8_t *public_key;     /* ed25519, 32 bytes, or null: the bundle's signature must be of this key */
  const bespoke_engine *engine;  /* null: ExecuTorch, where the core was built with it */
  int32_t threads;               /* 0: as many as there are processors that this process may use. ExecuTorch has one pool for the
                                    process: while a model is open, others share its threads (0, or the same number) */
  int32_t require_authenticated; /* not 0: BESPOKE_SIGNATURE_ERROR where neither pin nor key is given */
} bespoke_options;

/* Opens a bundle and the user's state folder, which is made where there is none. `options` may be null. */
BESPOKE_API bespoke_status bespoke_open(const bespoke_bundle *bundle, bespoke_text state, const bespoke_options *options,
                                        bespoke_model **model, bespoke_error **error);
BESPOKE_API void bespoke_close(bespoke_model *model);

/* What the open bundle is known by: "pin" (it is this very bundle), "signature" (it is of the owner of this key) or "none". Of both,
 * "pin": it admits one bundle, a key each that its owner ever signed. */
BESPOKE_API const char *bespoke_authenticated(const bespoke_model *model);

/* The limit of the whole process from now on, in MB; 0: the bundle's budget; negative: none. A call that runs and holds more already
 * ends with BESPOKE_BUDGET_EXCEEDED at its next instruction, in a committed state. */
BESPOKE_API bespoke_status bespoke_set_limit(bespoke_model *model, double memory_mb, bespoke_error **error);

/* The share of its time in which a call computes, more than 0 and at most 1 (what a model begins with): after each instruction it
 * rests for the remaining share. For a device that gets warm, or whose system counts processor time. */
BESPOKE_API bespoke_status bespoke_set_pace(bespoke_model *model, double share, bespoke_error **error);

/* ---- calls that compute ------------------------------------------------------------------------------------------------ */

/* Ends the calls that it was given to, at the next instruction, in a committed state. It may be set before, during or after them,
 * from any thread and any signal handler, and stays set. Freed when no call has it any more. */
typedef struct bespoke_cancel bespoke_cancel;
BESPOKE_API bespoke_cancel *bespoke_cancel_new(void); /* null: no memory */
BESPOKE_API void bespoke_cancel_set(bespoke_cancel *cancel);
BESPOKE_API void bespoke_cancel_free(bespoke_cancel *cancel);

enum { BESPOKE_PHASE_OPEN = 0, BESPOKE_PHASE_JUDGE = 1, BESPOKE_PHASE_STEP = 2, BESPOKE_PHASE_COMMIT = 3 };

typedef struct bespoke_progress {
  size_t struct_size;
  int32_t phase;           /* what begins now; of a step: what has ended */
  int64_t step, steps;     /* of the run: done, and planned; 0 where there is no run */
  double loss;             /* of the step that has ended; else NaN */
  int64_t footprint_bytes; /* of the process, as the system judges it */
} bespoke_progress;

typedef struct bespoke_call {
  size_t struct_size;
  bespoke_cancel *cancel;  /* or null */
  double deadline_seconds; /* from the beginning of the call; what it commits and judges is within it. 0: none */
  void *context;
  /* Called on the thread of the call; not 0 cancels it. Or null. */
  int32_t (*progress)(void *context, const bespoke_progress *progress);
} bespoke_call;

typedef struct bespoke_training {
  size_t struct_size;
  bespoke_text method;   /* empty: that of the unfinished run, else the bundle's first */
  int64_t steps;         /* at most so many more; 0: to the end of the run */
  int64_t seed;          /* of a run that starts here, where has_seed is not 0; else the bundle's */
  int32_t has_seed;
  bespoke_text settings; /* JSON object of Training fields, for a run that starts here, or empty */
} bespoke_training;

/* Starts a run or continues the unfinished one; at the end the gate accepts or refuses. `*report` is JSON (the fields of
 * `bespoke train --format json`). `training` and `call` may be null. A call that was cancelled or reached its deadline is no error:
 * the report says why it stopped. */
BESPOKE_API bespoke_status bespoke_train(bespoke_model *model, const bespoke_training *training, const bespoke_call *call, char **report,
                                         bespoke_error **error);

/* Loss, perplexity and next-token accuracy of the adapter that answers, on the user's examples of a split ("validation" or
 * "train"), as JSON. BESPOKE_CANCELLED where it was ended before. */
BESPOKE_API bespoke_status bespoke_evaluate(bespoke_model *model, bespoke_text split, const bespoke_call *call, char **report,
                                            bespoke_error **error);

/* Runs the bundle's golden vectors: JSON, one entry for each check. BESPOKE_GOLDEN_MISMATCH where one fails. */
BESPOKE_API bespoke_status bespoke_verify(bespoke_model *model, const bespoke_call *call, char **report, bespoke_error **error);

/* ---- this library ------------------------------------------------------------------------------------------------------ */

BESPOKE_API const char *bespoke_version(void);
BESPOKE_API const char *bespoke_instruction_set(void); /* what the kernels use of this processor: "AVX2", "NEON", ... */

#ifdef __cplusplus
}
#endif
#endif
