/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded: gives a process the heap of a large app before it begins, BESPOKE_HEAP_BYTES in blocks of 256 bytes, half of it holes of two
 * pages.
 */
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, HOLE = 32 };

__attribute__((constructor)) static void fill_heap(void) {
  const char* bytes = getenv("BESPOKE_HEAP_BYTES");
  const size_t count = bytes ? strtoull(bytes, NULL, 10) / BLOCK : 0;
  void** blocks = malloc(count * sizeof *blocks);
  if (!blocks) return;
  for (size_t i = 0; i < count; i++) {
    blocks[i] = malloc(BLOCK);
    memset(blocks[i], 1, BLOCK);
  }
  for (size_t i = 0; i < count; i++)
    if (i / HOLE % 2) free(blocks[i]);
  free(blocks);
}
