// SPDX-License-Identifier: Apache-2.0
#include "kernels/features.h"

#include <cstdlib>
#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "platform/processor.h"

namespace bespoke::kernels {
namespace {

bool is_masked(const char* feature) {
  const char* const masked = std::getenv("BESPOKE_MASKED_FEATURES");
  const size_t length = std::strlen(feature);
  for (const char* at = masked; at && (at = std::strstr(at, feature)) != nullptr; at += length) {
    const char before = at == masked ? ',' : at[-1], after = at[length];
    if (before == ',' && (after == ',' || after == '\0')) return true;
  }
  return false;
}

Features detected() {
  Features found{};
#if defined(__x86_64__)
  unsigned a, b, c, d;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
  found.avx2 = !is_masked("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  found.avx512 = !is_masked("avx512") && found.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  found.vnni = !is_masked("vnni") && found.avx512 && __builtin_cpu_supports("avx512vnni");
#if defined(BESPOKE_AMX)
  constexpr unsigned bf16 = 1u << 22, tiles = 1u << 24;
  found.amx = !is_masked("amx") && found.avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bf16) && (d & tiles) && get_amx_tiles();
#endif
#elif defined(__aarch64__)
  const ArmFeatures arm = get_arm_features();
  found.dotprod = !is_masked("dotprod") && arm.dot_products;
  found.i8mm = !is_masked("i8mm") && found.dotprod && arm.matrix_products;
#endif
  return found;
}

}  // namespace

const Features& features() {
  static const Features found = detected();
  return found;
}

}  // namespace bespoke::kernels
