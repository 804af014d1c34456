// SPDX-License-Identifier: Apache-2.0
#pragma once
#include_next <fcntl.h>

#define F_PREALLOCATE 42
#define F_FULLFSYNC 51
#define F_ALLOCATEALL 0x00000004
#define F_PEOFPOSMODE 3

typedef struct fstore {
  unsigned int fst_flags;
  int fst_posmode;
  off_t fst_offset;
  off_t fst_length;
  off_t fst_bytesalloc;
} fstore_t;
