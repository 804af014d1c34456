/* SPDX-License-Identifier: Apache-2.0
 *
 * What Swift calls of the MLX engine: src/engines/module.h of the core declares the same function.
 */
#ifndef C_BESPOKE_MLX_H
#define C_BESPOKE_MLX_H

#include <stddef.h>

struct bespoke_engine;

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `engine`. Not 0 where the engine cannot be had, with the reason in `message`. */
int bespoke_engine_module(struct bespoke_engine* _Nonnull engine, char* _Nonnull message, size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
