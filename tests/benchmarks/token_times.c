/* SPDX-License-Identifier: Apache-2.0
 *
 * token_times BUNDLE STATE PROMPT TOKENS: asks for answers until so many tokens were timed. Prints the nanoseconds of each, but for the
 * first of an answer, which reads the prompt. The Kotlin binding's TokenTimes does the same.
 */
#define _POSIX_C_SOURCE 199309L
#include <time.h>

#include "c_client.h"

enum { ANSWER = 64 }; /* tokens */

static long long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  bespoke_bundle bundle = {.struct_size = sizeof bundle, .path = text(argv[1])};
  bespoke_options options = {.struct_size = sizeof options, .threads = 1, .limit_counts = BESPOKE_LIMIT_SINCE_CALL};
  bespoke_model* model = NULL;
  check(bespoke_open(&bundle, text(argv[2]), &options, NULL, &model, &error));
  for (int left = atoi(argv[4]); left > 0;) {
    bespoke_generation generation = {.struct_size = sizeof generation, .max_tokens = ANSWER};
    bespoke_session* session = NULL;
    check(bespoke_session_open(model, &generation, &session, &error));
    check(bespoke_session_feed(session, text(argv[3]), &error));
    const bespoke_piece* piece = NULL;
    for (int place = 0; !piece || !piece->ended; place++) {
      const long long began = now();
      check(bespoke_session_next(session, NULL, &piece, &error));
      if (place && left-- > 0) printf("%lld\n", now() - began);
    }
    bespoke_session_close(session);
  }
  check(bespoke_close(model, -1, &error));
  return 0;
}
