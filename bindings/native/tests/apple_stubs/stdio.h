// SPDX-License-Identifier: Apache-2.0
#pragma once
#include_next <stdio.h>

#define RENAME_SWAP 0x00000002

#ifdef __cplusplus
extern "C"
#endif
    int renamex_np(const char*, const char*, unsigned int);
