/* SPDX-License-Identifier: Apache-2.0
 *
 * bespoke's device core: opens a bundle and one user's state, trains, judges, and says what it did.
 *
 * Every function that can fail returns 0 or the code of an error, and fills `*error` where it is given; what it points to is
 * freed with bespoke_error_free. No exception crosses this border. Models of one process do not know of each other, but for the
 * threads of ExecuTorch (`threads` below). A model may be used by one thread at a time; bespoke_stop alone may be called from any
 * thread and any signal handler. A null where none may be is a ConfigError; null for `error`, `report` or what is freed, closed or
 * stopped does nothing. Texts are UTF-8 and end with 0. MB = 10^6 bytes.
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

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

/* The same names, codes and four parts as in the Python SDK: what it is about, what was got, what was expected, what to do. */
typedef struct bespoke_error {
  int code;             /* what the command line ends with: 2 settings, 5 data, 6 plan, 8 bundle, 9 state, 10 budget, 12 adapter */
  const char *kind;     /* "BudgetExceeded", "StateLocked", ... */
  const char *subject;
  const char *got;
  const char *expected;
  const char *next_step;
} bespoke_error;

/* Every error is freed with it, also the one that says that there was no memory for an error: that one is not allocated. */
BESPOKE_API void bespoke_error_free(bespoke_error *error);

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
  size_t struct_size;  /* sizeof(bespoke_engine) */
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

typedef struct bespoke_options {
  size_t struct_size;            /* sizeof(bespoke_options) */
  double memory_mb;              /* limit of the whole process; 0: the bundle's budget; negative: none */
  int threads;                   /* 0: as many as there are processors that this process may use. ExecuTorch has one pool for the
                                    process: while a model is open, others share its threads (0, or the same number) */
  const char *pin_sha256;        /* of manifest.json, in hexadecimal, or null */
  const uint8_t *public_key;     /* ed25519, 32 bytes, or null: the bundle's signature must be of this key */
  const bespoke_engine *engine;  /* null: ExecuTorch, where the core was built with it */
  int require_authenticated;     /* not 0: SignatureError where neither pin nor key is given */
} bespoke_options;

/* Opens a bundle and the user's state folder, which is made where there is none. `options` may be null. A bundle is code: what is in
 * it runs with the app's rights, and its hashes say that it is whole, not whose it is. Give a pin or a key. The folder of a bundle is
 * never changed while a model may have it open: replace it by renaming another to its name, as `bespoke build` does. A file that is
 * cut short in place ends the process that has it mapped (SIGBUS). */
BESPOKE_API int bespoke_open(const char *bundle, const char *state, const bespoke_options *options, bespoke_model **model,
                             bespoke_error **error);
BESPOKE_API void bespoke_close(bespoke_model *model);

/* What the open bundle is known by: "pin" (it is this very bundle), "signature" (it is of the owner of this key) or "none". Of both,
 * "pin": it admits one bundle, a key each that its owner ever signed. */
BESPOKE_API const char *bespoke_authenticated(const bespoke_model *model);

typedef struct bespoke_training {
  size_t struct_size;    /* sizeof(bespoke_training) */
  const char *method;    /* null: that of the unfinished run, else the bundle's first */
  int64_t steps;         /* at most so many more; 0: to the end of the run */
  int64_t seed;          /* of a run that starts here; negative: the bundle's */
  const char *settings;  /* JSON object of Training fields, for a run that starts here, or null */
  void *context;
  void (*on_step)(void *context, int64_t step, double loss); /* or null */
} bespoke_training;

/* Starts a run or continues the unfinished one; at the end the gate accepts or refuses. `*report` is JSON (the fields of
 * `bespoke train --format json`), freed with bespoke_text_free. `training` may be null. */
BESPOKE_API int bespoke_train(bespoke_model *model, const bespoke_training *training, char **report, bespoke_error **error);

/* Loss, perplexity and next-token accuracy of the adapter that answers, on the user's examples of a split ("validation" or
 * "train"), as JSON. */
BESPOKE_API int bespoke_evaluate(bespoke_model *model, const char *split, char **report, bespoke_error **error);

/* Runs the bundle's golden vectors: JSON, one entry for each check. GoldenMismatch where one fails. */
BESPOKE_API int bespoke_verify(bespoke_model *model, char **report, bespoke_error **error);

/* Ends the call that runs at the next instruction, in a committed state. What comes while none runs does nothing: a stop that is late
 * does not end the next call. */
BESPOKE_API void bespoke_stop(bespoke_model *model);

BESPOKE_API void bespoke_text_free(char *text);
BESPOKE_API const char *bespoke_version(void);
BESPOKE_API const char *bespoke_instruction_set(void); /* what the kernels use of this processor: "AVX2", "NEON", ... */

#ifdef __cplusplus
}
#endif
#endif
