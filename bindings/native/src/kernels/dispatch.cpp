// SPDX-License-Identifier: Apache-2.0
// Which tables this processor can run. Nothing here may use more than the least of them.
#include "kernels/features.h"
#include "kernels/table.h"

namespace bespoke::kernels {
namespace {

// A table with another product, or another one for few rows, or one of rounded rows.
Table changed(Table table, InstructionSet set, void (*product)(const Product&), bool (*vector)(const Product&),
              void (*rounded)(const Product&) = nullptr) {
  table.set = set, table.product = product, table.vector = vector, table.rounded = rounded;
  return table;
}

}  // namespace

const Table* table_of(InstructionSet which) {
  const Features& has = features();
  switch (which) {
    case InstructionSet::Baseline:
      return &baseline_table;
#if defined(__x86_64__)
    case InstructionSet::Avx2:
      return has.avx2 ? &avx2_table : nullptr;
    case InstructionSet::Avx512: {
      static const Table table = changed(avx512_table, which, avx512_table.product, avx2_table.vector);
      return has.avx512 ? &table : nullptr;
    }
    case InstructionSet::Avx512Vnni: {
      static const Table table = changed(avx512_table, which, avx512_table.product, avx512_vnni_vector, avx512_vnni_rounded);
      return has.vnni ? &table : nullptr;
    }
#if defined(BESPOKE_AMX)
    case InstructionSet::Amx: {
      static const Table table = changed(avx512_table, which, amx_product, has.vnni ? avx512_vnni_vector : avx2_table.vector);
      return has.amx ? &table : nullptr;
    }
#endif
#elif defined(__aarch64__)
    case InstructionSet::Neon:
      return &neon_table;
    case InstructionSet::NeonDot: {
      static const Table table = changed(neon_table, which, neon_table.product, neon_dot_vector);
      return has.dotprod ? &table : nullptr;
    }
    case InstructionSet::NeonI8mm: {
      static const Table table = changed(neon_table, which, neon_i8mm_product, neon_dot_vector, neon_i8mm_rounded);
      return has.i8mm ? &table : nullptr;
    }
#endif
    default:
      return nullptr;
  }
}

const Table& best_table() {
  constexpr InstructionSet best_first[] = {InstructionSet::Amx,  InstructionSet::Avx512Vnni, InstructionSet::Avx512,
                                           InstructionSet::Avx2, InstructionSet::NeonI8mm,   InstructionSet::NeonDot,
                                           InstructionSet::Neon};
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
    case InstructionSet::Avx512Vnni:
      return "AVX-512 VNNI";
    case InstructionSet::Amx:
      return "AMX";
    case InstructionSet::Neon:
      return "NEON";
    case InstructionSet::NeonDot:
      return "NEON dotprod";
    case InstructionSet::NeonI8mm:
      return "NEON i8mm";
    default:
      return "baseline";
  }
}

}  // namespace bespoke::kernels
