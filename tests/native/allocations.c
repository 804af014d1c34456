/* SPDX-License-Identifier: Apache-2.0
 *
 * allocations BUNDLE STATE answer PROMPT TOKENS, or BUNDLE STATE train EXAMPLE STEPS: prints how often memory was allocated, and how many
 * bytes, between one token or step and the next. It counts by standing in for malloc, also for the libraries. Of glibc alone.
 */
#include <errno.h>
#include <math.h>

#include "c_client.h"

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static _Atomic long long calls, bytes;

static void* counted(void* memory, size_t size) {
  calls++, bytes += (long long)size;
  return memory;
}

void* malloc(size_t size) { return counted(__libc_malloc(size), size); }
void* calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size), count * size); }
void* realloc(void* old, size_t size) { return counted(__libc_realloc(old, size), size); }
void* memalign(size_t alignment, size_t size) { return counted(__libc_memalign(alignment, size), size); }
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}

/* Since the last time; nothing the first time. */
static void tell(void) {
  static long long calls_then = -1, bytes_then;
  const long long calls_now = calls, bytes_now = bytes;
  if (calls_then >= 0) printf("%lld %lld\n", calls_now - calls_then, bytes_now - bytes_then);
  calls_then = calls, bytes_then = bytes; /* what printf takes is not counted */
}

static int32_t after_step(void* context, const bespoke_progress* progress) {
  (void)context;
  if (!isnan(progress->loss)) tell();
  return 0;
}

static void train(bespoke_model* model, const char* example, int steps) {
  const bespoke_example given = {.struct_size = sizeof given, .json = text(example), .use = text("train")};
  const bespoke_training training = {.struct_size = sizeof training, .run_steps = steps};
  const bespoke_call call = {.struct_size = sizeof call, .progress = after_step};
  char* said = NULL;
  check(bespoke_add_example(model, &given, NULL, &said, &error));
  check(bespoke_train(model, &training, &call, &said, &error));
}

static void answer(bespoke_model* model, const char* prompt, int tokens) {
  const bespoke_generation generation = {.struct_size = sizeof generation};
  bespoke_session* session = NULL;
  const bespoke_piece* piece = NULL;
  check(bespoke_session_open(model, &generation, &session, &error));
  check(bespoke_session_feed(session, text(prompt), &error));
  for (int i = 0; i < tokens; i++) {
    check(bespoke_session_next(session, NULL, &piece, &error));
    tell();
  }
  bespoke_session_close(session);
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const bespoke_bundle bundle = {.struct_size = sizeof bundle, .path = text(argv[1])};
  const bespoke_options options = {.struct_size = sizeof options, .memory_mb = -1, .threads = 2};
  bespoke_model* model = NULL;
  check(bespoke_open(&bundle, text(argv[2]), &options, NULL, &model, &error));
  (strcmp(argv[3], "train") ? answer : train)(model, argv[4], atoi(argv[5]));
  check(bespoke_close(model, -1, &error));
  return 0;
}
