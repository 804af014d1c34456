/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of an engine: what runs the compiled graphs of one target. Apps need it only where they bring an engine of their own.
 */
#ifndef BESPOKE_ENGINE_H
#define BESPOKE_ENGINE_H

#include "bespoke_base.h"

#ifdef __cplusplus
extern "C" {
#endif
BESPOKE_BEGIN

BESPOKE_ENUM(bespoke_dtype){BESPOKE_FLOAT32 = 0, BESPOKE_FLOAT16 = 1, BESPOKE_UINT8 = 2, BESPOKE_INT64 = 3, BESPOKE_INT32 = 4};

#define BESPOKE_ENGINE_NO_MEMORY 2       /* the system gave none: training ends as where a budget is exceeded */
#define BESPOKE_ENGINE_OTHER_SIGNATURE 3 /* the program takes or gives other tensors; `message` says which: the bundle is refused */
/* The device lacks something, and the bundle is as it should be: the call ends with the status of the same name. */
#define BESPOKE_ENGINE_DISK_FULL 4          /* room for what the engine makes of the artifact */
#define BESPOKE_ENGINE_MISSING_DEPENDENCY 5 /* a library that the program needs */
#define BESPOKE_ENGINE_UNAVAILABLE 6        /* a folder, a driver, a chip that the program is for */

/* A dense tensor in row-major order. The same place is given in two ways: an engine takes the one that it can use. */
typedef struct bespoke_tensor {
  size_t struct_size;
  const char* name; /* of the graph's operand or result */
  const int64_t* shape;
  int32_t rank;
  bespoke_dtype dtype;
  void* BESPOKE_NULL memory; /* what `allocate` or `map_weights` gave; null: memory of the process, which the engine was not asked for */
  uint64_t offset;           /* of the tensor within it, in bytes */
  void* BESPOKE_NULL data;   /* where the processor sees it, aligned to 4 bytes at least; null where it does not */
} bespoke_tensor;

/* A compiled program, and what it must take and give. All of it is valid until `open` returns; `bytes`, `workspace` and the data of
 * baked operands are valid until `close`. */
typedef struct bespoke_artifact {
  size_t struct_size;
  const char* BESPOKE_NULL path; /* of its file; null where it lies in an archive */
  int32_t descriptor;            /* of the open file that it lies in, from `offset` on */
  uint64_t offset, size;
  const void* bytes; /* its `size` bytes, mapped; they were held against the manifest's hash. What path and descriptor
                        lead to was not: read it only where the platform cannot take bytes */
  const bespoke_tensor* BESPOKE_NULL const* BESPOKE_NULL operands; /* in the program's order; without a place */
  const bespoke_tensor* BESPOKE_NULL const* BESPOKE_NULL results;
  size_t operand_count, result_count;
  const bespoke_tensor* BESPOKE_NULL const* BESPOKE_NULL baked; /* weights for an engine to make part of the program, no operands; today
                                         there are none: those of a target that bakes are in the artifact, and are no operands either */
  size_t baked_count;
  void* BESPOKE_NULL workspace;   /* of the core, aligned to 64, as large as the target said when it compiled. All programs share it: */
  size_t workspace_bytes;         /* what is in it is lost between two runs */
  const char* BESPOKE_NULL cache; /* folder for what the engine makes of artifacts and wants to find again; null: none */
} bespoke_artifact;

/* What runs the compiled graphs of one target. The table and its `target` are copied: what was given may go when bespoke_open
 * returns. Where bespoke_open succeeds, `context` is the core's: `destroy`, which may be null, is called with it exactly once, after
 * everything else. Where bespoke_open fails, `context` is still the caller's, and `destroy` is not called. The core calls an engine from
 * one thread at a time; the engine may use threads of its own. Where a function fails it returns one of the numbers above or another but 0,
 * and writes a text of at most `message_size` bytes, its 0 included, to `message`. It throws nothing.
 *
 * An engine over memory of the process needs `open`, `run` and `close`, and leaves all behind `destroy` 0. */
typedef struct bespoke_engine {
  size_t struct_size;
  const char* target; /* artifacts of this target are handed to it; of an engine that runs graphs, its name */
  void* BESPOKE_NULL context;
  /* Nobody else can tell what the program itself takes and gives: where a count, dtype, shape or order of dimensions differs from the
   * artifact's, it is BESPOKE_ENGINE_OTHER_SIGNATURE. What a section of a plan runs is opened before its first call; of all that a run
   * trains with, the artifact with the largest engine_bytes is opened first: memory that the engine keeps for all is best taken then. */
  int (*open)(void* BESPOKE_NULL context, const bespoke_artifact* artifact, void* BESPOKE_NULL* BESPOKE_NONNULL program, char* message,
              size_t message_size);
  /* Operands and results as at `open`, now with their places, which hold until it is finished; the structs until it returns. Results
   * never overlap operands. */
  int (*run)(void* BESPOKE_NULL context, void* BESPOKE_NULL program, const bespoke_tensor* BESPOKE_NULL const* BESPOKE_NULL operands,
             size_t operand_count, const bespoke_tensor* BESPOKE_NULL const* BESPOKE_NULL results, size_t result_count, char* message,
             size_t message_size);
  void (*close)(void* BESPOKE_NULL context, void* BESPOKE_NULL program);
  void (*BESPOKE_NULL destroy)(void* BESPOKE_NULL context);

  /* Null where `run` returns when its results are there. Else: waits for all runs, which the engine makes in their order. The core
   * calls it before it reads or writes a value, and before it takes back what a run may still use. */
  int (*BESPOKE_NULL finish)(void* BESPOKE_NULL context, char* message, size_t message_size);

  /* Both null: the core maps memory of the process. Else: memory of the engine's for values (arena, state, KV cache), `size` bytes in
   * whole pages, 0 at first. `address`: where the processor sees it, aligned to a page; null: it does not, and the core reads and
   * writes through the two functions below, which an engine with such memory has. */
  int (*BESPOKE_NULL allocate)(void* BESPOKE_NULL context, size_t size, void* BESPOKE_NULL* BESPOKE_NONNULL memory,
                               void* BESPOKE_NULL* BESPOKE_NONNULL address, char* message, size_t message_size);
  void (*BESPOKE_NULL release)(void* BESPOKE_NULL context, void* memory);
  int (*BESPOKE_NULL read)(void* BESPOKE_NULL context, void* memory, uint64_t offset, void* to, size_t size, char* message,
                           size_t message_size);
  int (*BESPOKE_NULL write)(void* BESPOKE_NULL context, void* memory, uint64_t offset, const void* from, size_t size, char* message,
                            size_t message_size);

  /* Both null: weights are operands in memory of the process. Else: called as the plan loads and frees a group of weights, with the
   * mapped, read-only bytes of its file. */
  int (*BESPOKE_NULL map_weights)(void* BESPOKE_NULL context, const void* bytes, size_t size, void* BESPOKE_NULL* BESPOKE_NONNULL memory,
                                  char* message, size_t message_size);
  void (*BESPOKE_NULL unmap_weights)(void* BESPOKE_NULL context, void* memory);

  /* Null: all memory of the engine is the process's, and is still there when a run ends. Else: bytes that the engine held elsewhere (of a
   * graphics card), or took and gave back within a run, the most since it was last asked. Asked after each run; counts towards the
   * limit and in reports. What an artifact's engine_bytes says is then asked for before each run, and not once. */
  int64_t (*BESPOKE_NULL peak_bytes)(void* BESPOKE_NULL context);

  /* Not 0: the engine runs the exported programs that every bundle carries (torch.export's JSON, graphs/), of any targets: `open` gets
   * a graph's file, whose operands and results are in the graph's order. */
  int32_t runs_graphs;

  /* Null: what the core computes itself (noise), it computes on the thread of the call. Else: calls task(shared, i) once for each i below
   * `tasks`, on the engine's threads, and returns when all are done. */
  void (*BESPOKE_NULL parallel)(void* BESPOKE_NULL context, size_t tasks, void (*task)(void* BESPOKE_NULL shared, size_t index),
                                void* BESPOKE_NULL shared);

  /* Null: how many threads a run uses is the engine's matter. Else: says how many at most the runs that follow use, and returns how many
   * they will. 0: as many as suit work that nobody has timed. The core times training steps with several numbers and keeps the fastest.
   * Results must have the same bits with any. An engine may replace its threads here while no program is open. The core closes all
   * programs of the machine that trains before it asks for the number that it has chosen, and opens them again afterwards. */
  int32_t (*BESPOKE_NULL use_threads)(void* BESPOKE_NULL context, int32_t threads);
} bespoke_engine;

BESPOKE_END
#ifdef __cplusplus
}
#endif
#endif
