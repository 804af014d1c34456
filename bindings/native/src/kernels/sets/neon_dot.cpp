// SPDX-License-Identifier: Apache-2.0
// arm64 with dot products of bytes (FEAT_DotProd: Cortex-A55 and A75 on, Apple A13 on): few rows in whole numbers, eight columns and a
// group at a time. Sixteen bytes of codes are a group, even summands in low nibbles and odd ones in high nibbles.
#include "kernels/drivers.h"
#include "kernels/loops/digits_neon.h"

namespace bespoke::kernels {
namespace {

struct Group {
  int8x16_t digits[DIGITS][2];  // the highest first; of even summands, of odd ones
  int32_t eight;                // 8 times the sum of the numbers: codes are 8 too large
  float scale;
};

void cut(const float* x, int64_t K, char* to) {
  for (int64_t k = 0; k < K; k += GROUP, to += sizeof(Group)) {
    Group& group = *reinterpret_cast<Group*>(to);
    float own[GROUP];
    const float* a = group_of(x, k, K, own);
    const Scale scale = scale_for<DIGITS>(top_of(a));
    int32x4_t v[8], sum = vdupq_n_s32(0);
    cut_group(a, scale.up, v);
    UNROLL for (int i = 0; i < 8; i++) sum = vaddq_s32(sum, v[i]);
    group.eight = static_cast<int32_t>(8 * static_cast<uint32_t>(vaddvq_s32(sum)));
    group.scale = scale.down;
    UNROLL for (int odd = 0; odd < 2; odd++) {
      int8x16_t digit[DIGITS];
      digits_of(v + 4 * odd, digit);
      UNROLL for (int d = 0; d < DIGITS; d++) group.digits[d][odd] = digit[d];
    }
  }
}

struct Sums {
  float32x4_t of[2];  // four columns each
};

// Eight columns from n on. The strides are 0 where there are fewer: then all are the same.
Sums eight_columns(const Weight& w, int64_t n, int64_t codes_stride, int64_t scales_stride, const Group* group) {
  const uint8_t* q = w.codes + n * w.codes_stride;
  const uint16_t* h = w.scales + n * w.scales_stride;
  const uint8x16_t nibble = vdupq_n_u8(15);
  const int64_t groups = (w.columns + GROUP - 1) / GROUP;
  float32x4_t total[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
  for (int64_t block = 0; block < groups; block += DEPTH / GROUP) {
    const int64_t end = smaller(block + DEPTH / GROUP, groups);
    float32x4_t sum[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    for (int64_t g = block; g < end; g++, group++, q += 16, h++) {
      int32x4_t s[8];
      int8x16_t even[8], odd[8];
      UNROLL for (int c = 0; c < 8; c++) {
        const uint8x16_t codes = vld1q_u8(q + c * codes_stride);
        even[c] = vreinterpretq_s8_u8(vandq_u8(codes, nibble)), odd[c] = vreinterpretq_s8_u8(vshrq_n_u8(codes, 4));
        s[c] = vdupq_n_s32(0);
      }
      float32x4_t scale[2];
      UNROLL for (int half = 0; half < 2; half++) {
        const uint16_t* p = h + 4 * half * scales_stride;
        uint16x4_t bits = vld1_dup_u16(p);
        bits = vld1_lane_u16(p + scales_stride, bits, 1);
        bits = vld1_lane_u16(p + 2 * scales_stride, bits, 2);
        bits = vld1_lane_u16(p + 3 * scales_stride, bits, 3);
        scale[half] = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(bits)), group->scale);
      }
      UNROLL for (int d = 0; d < DIGITS; d++) {
        const int8x16_t low = group->digits[d][0];
        UNROLL for (int c = 0; c < 8; c++) {
          if (d) s[c] = vshlq_n_s32(s[c], 8);
          s[c] = vdotq_s32(s[c], even[c], low);
        }
        load_later();
        const int8x16_t high = group->digits[d][1];
        UNROLL for (int c = 0; c < 8; c++) s[c] = vdotq_s32(s[c], odd[c], high);
        load_later();
      }
      UNROLL for (int half = 0; half < 2; half++) {
        const int32x4_t* t = s + 4 * half;
        const int32x4_t number = vsubq_s32(vpaddq_s32(vpaddq_s32(t[0], t[1]), vpaddq_s32(t[2], t[3])), vdupq_n_s32(group->eight));
        sum[half] = vfmaq_f32(sum[half], vcvtq_f32_s32(number), scale[half]);
      }
    }
    UNROLL for (int half = 0; half < 2; half++) total[half] = block ? vaddq_f32(total[half], sum[half]) : sum[half];
  }
  return {{total[0], total[1]}};
}

void columns(const Weight& w, int64_t n0, int64_t n1, const char* row, float* y) {
  const Group* group = reinterpret_cast<const Group*>(row);
  if (w.out < 8) {
    for (int64_t n = n0; n < n1; n++) y[n] = vgetq_lane_f32(eight_columns(w, n, 0, 0, group).of[0], 0);
    return;
  }
  for (int64_t n = n0; n < n1; n += 8) {
    const int64_t first = smaller(n, w.out - 8);
    const Sums sums = eight_columns(w, first, w.codes_stride, w.scales_stride, group);
    float own[8];
    float* to = n + 8 <= n1 ? y + n : own;
    vst1q_f32(to, sums.of[0]), vst1q_f32(to + 4, sums.of[1]);
    if (to == own)
      for (int64_t i = n; i < n1; i++) y[i] = own[i - first];
  }
}

constexpr VectorLoops few = {sizeof(Group), 1, cut, columns};

}  // namespace

bool neon_dot_vector(const Product& product) { return vector_product(few, product); }

}  // namespace bespoke::kernels
