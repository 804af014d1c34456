/* SPDX-License-Identifier: Apache-2.0
 * The three functions of libsodium's utils.c that verifying a signature calls. That file would bring its allocator, its random numbers
 * and, through its initialization, every algorithm that it has. */
#include <sodium/utils.h>

/* Through volatile, as libsodium does: the compiler may not leave it out. */
void sodium_memzero(void *const memory, const size_t size) {
  volatile unsigned char *at = memory;
  for (size_t i = 0; i < size; i++) at[i] = 0;
}

/* In the same time whatever the bytes are. */
int sodium_memcmp(const void *const left, const void *const right, size_t size) {
  const volatile unsigned char *a = left, *b = right;
  unsigned char differ = 0;
  for (size_t i = 0; i < size; i++) differ |= a[i] ^ b[i];
  return differ ? -1 : 0;
}

int sodium_is_zero(const unsigned char *bytes, const size_t size) {
  volatile unsigned char some = 0;
  for (size_t i = 0; i < size; i++) some |= bytes[i];
  return some == 0;
}
