// SPDX-License-Identifier: Apache-2.0
// Which of the compiled instruction sets this processor has. Nothing here may use more than the least of them.
#include "table.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "platform/processor.h"

namespace bespoke::kernels {

#if defined(__x86_64__)
namespace {
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#if defined(BESPOKE_AMX)
bool has_amx() {
  constexpr unsigned bf16 = 1u << 22, tiles = 1u << 24;
  unsigned a, b, c, d;
  return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & bf16) && (d & tiles) && get_amx_tiles();
}
#endif
}  // namespace
#endif

const Table* table_of(InstructionSet which) {
  switch (which) {
    case InstructionSet::Baseline:
      return &baseline_table;
#if defined(__x86_64__)
    case InstructionSet::Avx2:
      return has_avx2() ? &avx2_table : nullptr;
    case InstructionSet::Avx512:
      return has_avx512() ? &avx512_table : nullptr;
#if defined(BESPOKE_AMX)
    case InstructionSet::Amx:
      return has_amx() ? &amx_table : nullptr;
#endif
#elif defined(__aarch64__)
    case InstructionSet::Neon:
      return &neon_table;
#endif
    default:
      return nullptr;
  }
}

const Table& best_table() {
  constexpr InstructionSet best_first[] = {InstructionSet::Amx, InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Neon};
  for (InstructionSet which : best_first)
    if (const Table* table = table_of(which)) return *table;
  return baseline_table;
}

InstructionSet instruction_set(const Table& table) { return table.set; }

const char* name_of(InstructionSet which) {
  switch (which) {
    case InstructionSet::Avx2:
      return "AVX2";
    case InstructionSet::Avx512:
      return "AVX-512";
    case InstructionSet::Neon:
      return "NEON";
    case InstructionSet::Amx:
      return "AMX";
    default:
      return "baseline";
  }
}

}  // namespace bespoke::kernels
