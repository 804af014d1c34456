/* SPDX-License-Identifier: Apache-2.0
 *
 * bespoke's device core: one user's model. Opens a bundle and the user's state, trains, judges, and says what it did. C API 1.1:
 * what an app is compiled against today runs with every later library of version 1 (layout.txt).
 *
 * Threads   Any function may be called from any thread. Calls that compute (train, evaluate, verify, next, score, classify) run one at a
 *           time for each model: a second one waits for its turn as long as its bespoke_call says, and gets BESPOKE_BUSY then. Verbs of
 *           the store run meanwhile.
 *           Limit, pace and cancellation may change while a call runs.
 * Handles   are numbers that look like pointers and are never given twice. A call with one that is closed, or was never given, is
 *           BESPOKE_STATE_ERROR. A cancel token alone is a pointer.
 * State     While a model of this process has a state open, nothing else of this process opens files of that folder: no other SQLite and
 *           no second copy of this library. The system drops a process's locks on a file as soon as any descriptor of it is closed. Other
 *           processes may open it at any time.
 * Forks     A handle belongs to the process that opened it, because a fork has none of its locks. In a fork its functions answer
 *           BESPOKE_STATE_ERROR, bespoke_release and bespoke_session_close do nothing, and the states that were open cannot be opened.
 *           A fork may open models of other states, and so may what it executes.
 * Errors    Every function that can fail returns a bespoke_status, and fills `*error` where it is given. What it points to is freed with
 *           bespoke_error_free. No exception crosses this border. A null where none may be is BESPOKE_CONFIG_ERROR; null for `error`,
 *           `report` or what is freed or closed does nothing.
 * Structs   begin with `struct_size`, which is sizeof of the struct in the header that the caller was compiled with. They grow at
 *           their ends, or into `reserved`, which is 0. None ends in padding, whose bytes a later library could take for a field. What a
 *           caller's struct does not have yet counts as 0; what this library does not know yet must be 0.
 * Texts     go in as pointer and length, UTF-8, and need no 0 at their end; an empty one may be null. They come out with a 0 at their
 *           end and are freed with bespoke_free. MB = 10^6 bytes.
 * Documents are JSON. `(run)` behind a text that comes out says that its schema is bindings/schema/run.schema.json. Later versions add
 *           fields, and words where a schema lists them: ignore fields that you do not know, and expect words that you do not know.
 */
#ifndef BESPOKE_H
#define BESPOKE_H

#include "bespoke_base.h"
#include "bespoke_engine.h"

#ifdef __cplusplus
extern "C" {
#endif
BESPOKE_BEGIN

/* ---- a call ---------------------------------------------------------------------------------------------------------- */

/* Every function that can take a second takes a bespoke_call, or null. One that was cancelled or reached its deadline is
 * BESPOKE_CANCELLED, and nothing has changed; two differ: bespoke_train, which reports, and bespoke_forget_example. */

/* Ends the calls that it was given to, at the next instruction, in a committed state. It may be set before, during or after them,
 * from any thread and any signal handler, and stays set. Freed when no call has it any more. */
typedef struct bespoke_cancel bespoke_cancel;
BESPOKE_API bespoke_cancel* BESPOKE_NULL bespoke_cancel_new(void); /* null: no memory */
BESPOKE_API void bespoke_cancel_set(bespoke_cancel* BESPOKE_NULL cancel);
BESPOKE_API void bespoke_cancel_free(bespoke_cancel* BESPOKE_NULL cancel);

/* What begins; of a step: what has ended. */
BESPOKE_ENUM(bespoke_phase){
    BESPOKE_PHASE_OPEN = 0,   BESPOKE_PHASE_JUDGE = 1,  BESPOKE_PHASE_STEP = 2,
    BESPOKE_PHASE_COMMIT = 3, BESPOKE_PHASE_DECODE = 4, BESPOKE_PHASE_STORE = 5, /* files are copied, or examples tokenized again */
};

typedef struct bespoke_progress {
  size_t struct_size;
  bespoke_phase phase;
  int32_t reserved;        /* 0 */
  int64_t step, steps;     /* of the run: done, and planned; of a prompt that is read: tokens; of the store: bytes or examples; of a
                              check: golden vectors; of an evaluation: rows; 0 where there is none */
  double loss;             /* of the step that has ended; else NaN */
  int64_t footprint_bytes; /* of the process, as the system judges it */
} bespoke_progress;

typedef struct bespoke_call {
  size_t struct_size;
  bespoke_cancel* BESPOKE_NULL cancel; /* one that is set before the call begins: the call does nothing */
  double deadline_seconds; /* from the beginning of the call, with its waits; what it commits and judges is within it. 0: none */
  void* BESPOKE_NULL context;
  /* Called on the thread of the call; not 0 cancels it. Or null. It may call what never waits for this call: bespoke_interrupt,
   * bespoke_release, bespoke_cancel_set, bespoke_set_limit, bespoke_set_pace, from a call that computes the verbs of the store, and
   * everything of other models. What would wait for its own call is BESPOKE_BUSY. */
  int32_t (*BESPOKE_NULL progress)(void* BESPOKE_NULL context, const bespoke_progress* progress);
  double wait_seconds; /* how long a call that computes waits for its turn; turns come in the order in which they were asked for.
                          0: not at all, and BESPOKE_BUSY; less than 0: however long it takes */
  double busy_seconds; /* how long it waits for another process that uses the state. 0: 30; less than 0: however long it takes */
} bespoke_call;

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
  int32_t reserved;      /* 0 */
} bespoke_bundle;

/* What a limit counts: all of the process; or what is added to what it held when bespoke_open was called, or when the call that computes
 * began: for a process that is more than its model, an app's, a JVM's, Python's. */
BESPOKE_ENUM(bespoke_limit_counts){BESPOKE_LIMIT_OF_PROCESS = 0, BESPOKE_LIMIT_SINCE_OPEN = 1, BESPOKE_LIMIT_SINCE_CALL = 2};

typedef struct bespoke_options {
  size_t struct_size;
  double memory_mb;                          /* limit of the whole process; 0: the bundle's budget; negative: none */
  bespoke_text pin_sha256;                   /* of manifest.json, in hexadecimal, or empty */
  const uint8_t* BESPOKE_NULL public_key;    /* ed25519, 32 bytes, or null: the bundle's signature must be of this key */
  const bespoke_engine* BESPOKE_NULL engine; /* null: ExecuTorch, where the core was built with it. A core without it opens and does all
                                    verbs of the store; calls that compute are BESPOKE_MISSING_DEPENDENCY */
  int32_t threads;               /* that work at the same time, at most. 0: as many as this process has cores. The first steps of a
                                    run try 2, 4 and all of them, and the others use the fastest number. Answers leave out the cores of
                                    the lowest class where there are several, and use 2 to 4. ExecuTorch has one pool for the process:
                                    while a model that has computed is open, others share its threads (0, or the same number), or their
                                    calls are BESPOKE_CONFIG_ERROR */
  int32_t require_authenticated; /* not 0: BESPOKE_SIGNATURE_ERROR where neither pin nor key is given */
  bespoke_text cache;            /* a folder of the app's that an engine may fill and the system may empty, or empty: none; of the core's
                                    own engine then a folder in the state's */
  bespoke_limit_counts limit_counts; /* also of the limit that bespoke_set_limit sets */
  int32_t reserved;                  /* 0 */
} bespoke_options;

/* Opens a bundle and the user's state folder, which is made where there is none. `options` may be null. */
BESPOKE_CHECKED bespoke_status bespoke_open(const bespoke_bundle* bundle, bespoke_text state, const bespoke_options* BESPOKE_NULL options,
                                            const bespoke_call* BESPOKE_NULL call, bespoke_model* BESPOKE_NULL* BESPOKE_NONNULL model,
                                            bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Ends the calls that run on a model at their next instruction, in a committed state. Later calls run. */
BESPOKE_CHECKED bespoke_status bespoke_interrupt(bespoke_model* model, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Interrupts the calls of a model, waits for them at most `seconds` (less than 0: however long it takes) and closes it with its
 * sessions. When it returns BESPOKE_OK, the state can be opened again. BESPOKE_BUSY, and the model stays open, where a call still runs
 * then, and at once from within a call of this model, such as its progress. Null does nothing. */
BESPOKE_CHECKED bespoke_status bespoke_close(bespoke_model* BESPOKE_NULL model, double seconds,
                                             bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Closes a model without waiting, for a destructor: interrupts its calls and returns. The last call to end frees the model and its
 * locks, on its own thread. Until then opening the state is BESPOKE_BUSY. It may be called from anywhere, also within a call. */
BESPOKE_API void bespoke_release(bespoke_model* BESPOKE_NULL model);

/* Makes the bundle `folder` out of its archives (`bespoke pack` writes them), in the place of an older bundle or of nothing. Files that
 * the archives lack are taken from the bundle that is there, where their hash fits: with a delta, or a new method for the same weights.
 * All hashes are checked, and manifest.json by pin and key of `options`, of which nothing else is looked at. Killed anywhere, it leaves
 * the old bundle or the new one, whole. A model that has the old one open goes on with it. */
BESPOKE_CHECKED bespoke_status bespoke_install(const bespoke_text* BESPOKE_NULL archives, size_t count, bespoke_text folder,
                                               const bespoke_options* BESPOKE_NULL options, const bespoke_call* BESPOKE_NULL call,
                                               bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* What the open bundle is known by: "pin" (it is this very bundle), "signature" (it is of the owner of this key) or "none". Of both,
 * "pin": it admits one bundle, a key each that its owner ever signed. */
BESPOKE_API const char* bespoke_authenticated(const bespoke_model* model);

/* The limit of the whole process from now on, in MB; 0: the bundle's budget; negative: none. A call that runs and holds more already
 * ends with BESPOKE_BUDGET_EXCEEDED at its next instruction, in a committed state. */
BESPOKE_CHECKED bespoke_status bespoke_set_limit(bespoke_model* model, double memory_mb, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* The share of its time in which a call computes, more than 0 and at most 1 (what a model begins with): after each instruction it
 * rests for the remaining share. For a device that gets warm, or whose system counts processor time. */
BESPOKE_CHECKED bespoke_status bespoke_set_pace(bespoke_model* model, double share, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* ---- verbs of the store ------------------------------------------------------------------------------------------------ */

/* Any thread, also while a call computes. Where another process keeps the state busy for longer than `busy_seconds`:
 * BESPOKE_UNAVAILABLE, and nothing was changed. */

typedef struct bespoke_example {
  size_t struct_size;
  bespoke_text json; /* an object: {"messages": ...}, {"prompt": ..., "completion": ...}, {"text": ...} or {"tokens": ..., "mask": ...};
                        with a bundle that takes token ids only, the last. example.schema.json */
  bespoke_text id;   /* of the app's choice, 1 to 256 characters; empty: the sha256 of the example */
  bespoke_text use;  /* "train": it is never held out for validation; empty: as the split falls */
} bespoke_example;

/* Tokenizes an example and keeps it (added_example). The same id with the same content changes nothing. A text or a conversation that is
 * longer than the bundle's longest sequence becomes several rows; what finds no room in a row is cut, and the result says by how much, and
 * which keys say nothing here. BESPOKE_DATA_ERROR for what cannot be used, would train nothing, or has the id of another example. */
BESPOKE_CHECKED bespoke_status bespoke_add_example(bespoke_model* model, const bespoke_example* example,
                                                   const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL added,
                                                   bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Adds what a user made of an answer: `answer` is JSON, the messages of the chat up to and with the answer, `better` is what it should have
 * been (added_example). It is the example {"prompt": messages before, "chosen": better, "rejected": answer}, under the sha256 of its JSON.
 * A method built with preferences = "simpo" learns from both, every other from `better` alone. BESPOKE_DATA_ERROR where the last message
 * is none of the assistant's or says the same. */
BESPOKE_CHECKED bespoke_status bespoke_correct(bespoke_model* model, bespoke_text answer, bespoke_text better,
                                               const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL added,
                                               bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Adds several examples in one transaction (added_example, a list in their order): all of them, or none where one is refused, whose
 * number the error names, from 0. */
BESPOKE_CHECKED bespoke_status bespoke_add_examples(bespoke_model* model, const bespoke_example* BESPOKE_NULL const* BESPOKE_NULL examples,
                                                    size_t count, const bespoke_call* BESPOKE_NULL call,
                                                    char* BESPOKE_NULL* BESPOKE_NULL added,
                                                    bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* At most `most` examples (example_info, a list; 0: all) in the order in which they were added, from the one behind `after`, an id, on;
 * empty: from the first. For the next page give the last id of this one. BESPOKE_DATA_ERROR where there is no example of that id. */
BESPOKE_CHECKED bespoke_status bespoke_list_examples(bespoke_model* model, bespoke_text after, int64_t most,
                                                     char* BESPOKE_NULL* BESPOKE_NULL examples,
                                                     bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);
BESPOKE_CHECKED bespoke_status bespoke_count_examples(bespoke_model* model, int64_t* BESPOKE_NULL count,
                                                      bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Deletes an example at once, with every adapter that saw it, and stops a run that uses it (forgotten). When it returns, no file of the
 * state holds a byte of the example. One that is not there is no error. */
BESPOKE_CHECKED bespoke_status bespoke_forget_example(bespoke_model* model, bespoke_text id, const bespoke_call* BESPOKE_NULL call,
                                                      char* BESPOKE_NULL* BESPOKE_NULL forgotten,
                                                      bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* What the open bundle is (description): its model, context, methods, targets and licence. */
BESPOKE_CHECKED bespoke_status bespoke_describe(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL description,
                                                bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* How many tokens a prompt takes, as bespoke_session_feed would read it into an empty conversation. */
BESPOKE_CHECKED bespoke_status bespoke_count_tokens(bespoke_model* model, bespoke_text prompt, int64_t* BESPOKE_NULL tokens,
                                                    bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Gives the memory back that the model keeps between calls, and what the process has freed. The next answer computes its conversation
 * again. BESPOKE_BUSY while a call computes. */
BESPOKE_CHECKED bespoke_status bespoke_trim(bespoke_model* model, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* What training takes with each method by its plans for each budget of the bundle (planned_training, a list), those for the bundle's own
 * budget first. bespoke_train runs by the first of its method's whose estimate has room within the limit. All of a method's are over the
 * same weights and the same state: a run may go on by others than it began by, and computes the same but for rounding. */
BESPOKE_CHECKED bespoke_status bespoke_planned_training(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL planned,
                                                        bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* The unfinished run (run), or null. */
BESPOKE_CHECKED bespoke_status bespoke_current_run(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL run,
                                                   bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Accepted adapters (version, a list), oldest first; the last one answers. */
BESPOKE_CHECKED bespoke_status bespoke_list_versions(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL versions,
                                                     bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Ends the unfinished run, if there is one (`*ended` is 1 then): what it learned is dropped unless it was accepted.
 * BESPOKE_STATE_LOCKED while somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_abandon_run(bespoke_model* model, const bespoke_call* BESPOKE_NULL call, int32_t* BESPOKE_NULL ended,
                                                   bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Back to the adapter accepted before the one that answers: the one that answers now (version), or null, then the base does. Ends an
 * unfinished run. BESPOKE_STATE_LOCKED while somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_rollback(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                                char* BESPOKE_NULL* BESPOKE_NULL version, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Forgets everything that was learned; examples stay. BESPOKE_STATE_LOCKED while somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_reset(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                             bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Writes the adapter that answers into `folder`, for the original model: as "peft" (peft.PeftModel.from_pretrained), "mlx" (mlx_lm.load's
 * adapter_path) or "gguf" (adapter.gguf, for llama.cpp's --lora). The folder appears whole or not at all; an earlier export in the same
 * format is replaced. BESPOKE_ADAPTER_ERROR where the base model answers; `base` not 0 exports the bundle's initial adapter then, which
 * changes nothing. */
BESPOKE_CHECKED bespoke_status bespoke_export_adapter(bespoke_model* model, bespoke_text folder, bespoke_text format, int32_t base,
                                                      const bespoke_call* BESPOKE_NULL call,
                                                      bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Takes a folder of PEFT or mlx-lm as the adapter that answers, and gives its version. Another alpha, a lower rank and fewer linears than
 * the bundle's are taken as they are meant. BESPOKE_ADAPTER_ERROR for one of another base, a higher rank, other linears, or a kind of LoRA
 * that computes something else; `trust_base` not 0 takes one that does not say which base it was trained on. BESPOKE_STATE_LOCKED while
 * somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_import_adapter(bespoke_model* model, bespoke_text folder, int32_t trust_base,
                                                      const bespoke_call* BESPOKE_NULL call, int64_t* BESPOKE_NULL version,
                                                      bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Moves a state to a bundle with another base model: adapters go, examples are kept and tokenized again, all or nothing. All files of
 * the bundle are read and their hashes checked before. Of `options`, which may be null, pin, key and require_authenticated count: give
 * those that bespoke_open is given. No model has the state open. BESPOKE_DATA_ERROR, naming the example, where one does not fit the new
 * bundle; BESPOKE_STATE_LOCKED while somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_reset_for_new_base(const bespoke_bundle* bundle, bespoke_text state,
                                                          const bespoke_options* BESPOKE_NULL options,
                                                          const bespoke_call* BESPOKE_NULL call,
                                                          bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* ---- calls that compute ------------------------------------------------------------------------------------------------ */

typedef struct bespoke_training {
  size_t struct_size;
  bespoke_text method;   /* empty: that of the unfinished run, else the bundle's first */
  int64_t run_steps;     /* length of a run that starts here; 0: the bundle's settings decide. An unfinished run has its own */
  int64_t most_steps;    /* of this call, and the run goes on in the next one; 0: to the end of the run */
  int64_t seed;          /* of a run that starts here, where has_seed is not 0; else the bundle's */
  bespoke_text settings; /* JSON object of Training fields other than steps, for a run that starts here, or empty */
  int32_t has_seed;
  int32_t new_run; /* not 0: an unfinished run ends, and another one starts */
} bespoke_training;

/* Starts a run or continues the unfinished one; at the end the gate accepts or refuses. `*report` is JSON
 * (train_report). `training` and `call` may be null. A call that was cancelled or reached its deadline is no error:
 * the report says why it stopped. */
BESPOKE_CHECKED bespoke_status bespoke_train(bespoke_model* model, const bespoke_training* BESPOKE_NULL training,
                                             const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL report,
                                             bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* The error that bespoke_train would give for these settings, and does nothing else. */
BESPOKE_CHECKED bespoke_status bespoke_check_training(bespoke_model* model, const bespoke_training* BESPOKE_NULL training,
                                                      bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Loss, perplexity and next-token accuracy of the adapter that answers (evaluation): on `examples`, a JSON array of examples as
 * bespoke_add_example takes them, of which nothing is kept; where it is empty, on the user's of a split ("validation" or "train"),
 * or on the bundle's answers of the base model to other prompts ("behaviour"), with the base's own loss (`base_loss`).
 * BESPOKE_CANCELLED where it was ended before. */
BESPOKE_CHECKED bespoke_status bespoke_evaluate(bespoke_model* model, bespoke_text split, bespoke_text examples,
                                                const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL report,
                                                bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Runs the bundle's golden vectors (verify_report), one entry for each check. BESPOKE_GOLDEN_MISMATCH where one fails. */
BESPOKE_CHECKED bespoke_status bespoke_verify(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                              char* BESPOKE_NULL* BESPOKE_NULL report, bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* ---- federated learning (from 1.1 on) ---------------------------------------------------------------------------------- */

/* The core has no network of its own. The app carries what passes between it and the server of a bundle's federation:
 *
 *   request     what to do next: post a document, fetch a file, take part, wait
 *   respond     takes what came for it
 *   take_part   follows the rounds that have ended, and measures for the one that is open
 *
 * and again. A file may also be fetched while take_part computes: it waits for those that it needs. Without the user's consent all of
 * them are BESPOKE_CONFIG_ERROR, and so they are with a bundle that has no federation. */

/* Gives the user's consent, for the task that the bundle names. Show what `explanation` of bespoke_federation_status says first. */
BESPOKE_CHECKED bespoke_status bespoke_federation_join(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                                       bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Takes the consent back: what was to be sent is deleted, and the shared adapter. An adapter that was adopted goes on answering. What was
 * sent cannot be recalled, and what it cost stays spent. */
BESPOKE_CHECKED bespoke_status bespoke_federation_leave(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                                        bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* What the user takes part in, and what it has cost (federation_status). */
BESPOKE_CHECKED bespoke_status bespoke_federation_status(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL status,
                                                         bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* What to do next (federation_request). What is posted is a document of the device (device_document): numbers that were made are in it
 * again and again until the server confirms them. */
BESPOKE_CHECKED bespoke_status bespoke_federation_request(bespoke_model* model, char* BESPOKE_NULL* BESPOKE_NULL request,
                                                          bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Takes what came for a request: the server's answer, a signed (round_document), or bytes of a file. BESPOKE_SIGNATURE_ERROR where the
 * bundle's server has not signed it, BESPOKE_DATA_ERROR where it is not what a server may send. Nothing has changed then. An empty
 * response for a file says that the server no longer has it (HTTP 404 or 410): the next request asks the server again. */
BESPOKE_CHECKED bespoke_status bespoke_federation_respond(bespoke_model* model, bespoke_text request, bespoke_text response,
                                                          const bespoke_call* BESPOKE_NULL call,
                                                          bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Follows the rounds that have ended, and measures (federation_report). A number is clipped, noised and kept before it is offered.
 * BESPOKE_STATE_LOCKED while somebody trains. */
BESPOKE_CHECKED bespoke_status bespoke_federation_take_part(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                                            char* BESPOKE_NULL* BESPOKE_NULL report,
                                                            bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* Judges the shared adapter by the user's own examples, as bespoke_train judges what it learned (train_report). Where it is accepted it
 * answers from now on, and the next run starts from it. What a run learns from the user is never sent. BESPOKE_STATE_ERROR before the first
 * round and where a run is unfinished. */
BESPOKE_CHECKED bespoke_status bespoke_federation_adopt(bespoke_model* model, const bespoke_call* BESPOKE_NULL call,
                                                        char* BESPOKE_NULL* BESPOKE_NULL report,
                                                        bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* ---- answers ----------------------------------------------------------------------------------------------------------- */

typedef struct bespoke_generation {
  size_t struct_size;
  int64_t max_tokens;      /* of one answer; 0: as many as the context has room for */
  double temperature;      /* 0: the likeliest token, always */
  double top_p;            /* of the likeliest tokens those that hold this share together; 0: all */
  int64_t top_k;           /* of the likeliest tokens so many; 0: all */
  uint64_t seed;           /* it and the number of tokens before decide each draw */
  bespoke_text stop_texts; /* JSON array of texts that end an answer and are no part of it, or empty */
  int32_t notes;           /* not 0: each question is asked with the notes among the user's examples that are nearest to it */
  int32_t reserved;        /* 0 */
} bespoke_generation;

/* Why an answer ended. The list only grows. */
BESPOKE_ENUM(bespoke_answer_end){
    BESPOKE_GOES_ON = 0,          BESPOKE_END_STOP_TOKEN = 1, /* the model ended it */
    BESPOKE_END_STOP_TEXT = 2,    BESPOKE_END_MAX_TOKENS = 3,
    BESPOKE_END_CONTEXT_FULL = 4, /* no room for more: open another session with the last messages */
};

/* What an answer grew by. */
typedef struct bespoke_piece {
  size_t struct_size;
  bespoke_text text;        /* whole characters that the token completed, with a 0 behind them; empty until one is whole, and where the
                               bundle has no tokenizer */
  int64_t token;            /* its id; -1: none, a last piece without a token */
  int64_t tokens;           /* of the answer so far */
  bespoke_answer_end ended; /* BESPOKE_GOES_ON until the last piece */
  int32_t reserved;         /* 0 */
} bespoke_piece;

/* One conversation. It is pulled:
 *
 *   feed        messages, a text or token ids, as JSON; for the next turn those that are new
 *   next        one token of the answer and the text that it completes, again until `ended` is not BESPOKE_GOES_ON
 *
 * An answer is of one adapter, the one that answers when its first token is asked for; the next answer takes the newest again. Only where
 * that adapter is forgotten and the model trains in the middle of an answer, another one goes on with it. What a session holds between
 * calls is words: all sessions of a model share one machine, which goes while the model trains and comes back with the next token. The
 * answer becomes a part of the conversation; one that has not ended does as far as it went, when more is fed. */
typedef struct bespoke_session bespoke_session;

/* BESPOKE_GENERATION_ERROR for a setting out of its range, and for a bundle without a plan for answers. `generation` may be null. A
 * session ends with its model: its functions are BESPOKE_STATE_ERROR then, and it is still to be closed. */
BESPOKE_CHECKED bespoke_status bespoke_session_open(bespoke_model* model, const bespoke_generation* BESPOKE_NULL generation,
                                                    bespoke_session* BESPOKE_NULL* BESPOKE_NONNULL session,
                                                    bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);
/* Never waits: a call of the session that runs ends at its next instruction. */
BESPOKE_API void bespoke_session_close(bespoke_session* BESPOKE_NULL session);

/* Computes nothing. BESPOKE_DATA_ERROR for what cannot be used, BESPOKE_GENERATION_ERROR for a prompt that is longer than the context:
 * nothing was taken then. Where a later turn finds no room, its answer ends before it begins, "context_full": open another session with
 * as many of the last messages as are wanted. */
BESPOKE_CHECKED bespoke_status bespoke_session_feed(bespoke_session* session, bespoke_text prompt,
                                                    bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* `*piece` is the session's and valid until its next call. The first one after `feed` reads the prompt, which takes longest.
 * BESPOKE_CANCELLED, BESPOKE_BUSY and every other error say that
 * nothing was said: the same token may be asked for again. */
BESPOKE_CHECKED bespoke_status bespoke_session_next(bespoke_session* session, const bespoke_call* BESPOKE_NULL call,
                                                    const bespoke_piece* BESPOKE_NULL* BESPOKE_NULL piece,
                                                    bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* How likely the adapter that answers finds each of `answers` behind a prompt, as it was trained on both (score, a list in their order):
 * a JSON array of texts, or, to token ids, of arrays of token ids. The prompt is JSON, as for bespoke_session_feed. */
BESPOKE_CHECKED bespoke_status bespoke_score(bespoke_model* model, bespoke_text prompt, bespoke_text answers,
                                             const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL scores,
                                             bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* The likeliest of `labels`, a JSON array of texts, as an answer to a prompt (classification). It computes what is needed to know which
 * one that is, and no more. */
BESPOKE_CHECKED bespoke_status bespoke_classify(bespoke_model* model, bespoke_text prompt, bespoke_text labels,
                                                const bespoke_call* BESPOKE_NULL call, char* BESPOKE_NULL* BESPOKE_NULL classification,
                                                bespoke_error* BESPOKE_NULL* BESPOKE_NULL error);

/* ---- this library ------------------------------------------------------------------------------------------------------ */

BESPOKE_API const char* bespoke_version(void);
BESPOKE_API uint32_t bespoke_api_version(void);        /* BESPOKE_API_MAJOR << 16 | BESPOKE_API_MINOR of this library */
BESPOKE_API const char* bespoke_instruction_set(void); /* what the kernels use of this processor: "AVX2", "NEON", ... */

BESPOKE_END
#ifdef __cplusplus
}
#endif
#endif
