/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine in a library of its own, libbespoke_engine_NAME beside the core's: whoever wants it opens it by its name, and the core is
 * linked to nothing that it needs. It exports this one function.
 */
#ifndef BESPOKE_ENGINES_MODULE_H
#define BESPOKE_ENGINES_MODULE_H

#include "bespoke.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BESPOKE_ENGINE_MODULE_FUNCTION "bespoke_engine_module"

/* Fills `engine`, which goes into bespoke_options. Not 0 where the engine cannot be had, with the reason in `message`. */
typedef int (*bespoke_engine_module_function)(bespoke_engine* engine, char* message, size_t message_size);
BESPOKE_API int bespoke_engine_module(bespoke_engine* engine, char* message, size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
