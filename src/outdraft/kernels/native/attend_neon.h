// The two products of attention for NEON, in registers of four: see tiles_avx2.h for why they are written out.
#pragma once
#include "attention.h"

namespace OD_ISA {

#define OD_UNROLL _Pragma("GCC unroll 16")

template <int NQ>
static inline void score_few(const Scratch& scratch, const bf16* half, int begin, int end, int d, f32x16* out) {
    const int words = d / 2;
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    for (int block = begin; block < end; block++)
        for (int side = 0; side < 2; side++) {  // eight positions each
            const auto* keys = reinterpret_cast<const std::uint32_t*>(scratch.keys.get() + std::size_t(block) * words) + 8 * side;
            float32x4_t sums[NQ][2][2];  // of even words, of odd ones
            OD_UNROLL for (int j = 0; j < NQ; j++)
                OD_UNROLL for (int i = 0; i < 4; i++) sums[j][i / 2][i % 2] = vdupq_n_f32(0);
            for (int i = 0; i < words; i += 2)
                OD_UNROLL for (int odd = 0; odd < 2; odd++)
                    OD_UNROLL for (int c = 0; c < 2; c++) {
                        const uint32x4_t word = vld1q_u32(keys + 16 * (i + odd) + 4 * c);
                        const float32x4_t low = vreinterpretq_f32_u32(vshlq_n_u32(word, 16));
                        const float32x4_t high = vreinterpretq_f32_u32(vandq_u32(word, upper));
                        OD_UNROLL for (int j = 0; j < NQ; j++) {
                            const bf16* pair = half + std::size_t(j) * d + 2 * (i + odd);
                            sums[j][odd][c] = vfmaq_n_f32(sums[j][odd][c], low, widen(pair[0]));
                            sums[j][odd][c] = vfmaq_n_f32(sums[j][odd][c], high, widen(pair[1]));
                        }
                    }
            OD_UNROLL for (int j = 0; j < NQ; j++) {
                float* to = reinterpret_cast<float*>(out + j * (end - begin) + block - begin) + 8 * side;
                OD_UNROLL for (int c = 0; c < 2; c++) vst1q_f32(to + 4 * c, vaddq_f32(sums[j][0][c], sums[j][1][c]));
            }
        }
}

// Sixteen values in four registers.
static inline void widen_into(float32x4_t (&to)[4], const bf16* p) {
    OD_UNROLL for (int c = 0; c < 4; c++) to[c] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * c), 16));
}
static inline void widen_into(float32x4_t (&to)[4], const std::int8_t* p) {
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), to[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), to[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

template <class T, int NQ, int C>
static inline void gather_values(const Scratch& scratch, const View<T>& view, const Query* queries, const float* weights,
                                 std::size_t stride, const float* inverse, int part, int first, int len) {
    for (int begin = part; begin < part + 16 * C; begin += 16) {
        float32x4_t sums[NQ][4];
        OD_UNROLL for (int j = 0; j < NQ; j++)
            OD_UNROLL for (int c = 0; c < 4; c++) sums[j][c] = vdupq_n_f32(0);
        for (int t = first; t < len; t++) {
            float32x4_t values[4];
            widen_into(values, view.values + scratch.offset[t] + begin);
            OD_UNROLL for (int j = 0; j < NQ; j++)
                OD_UNROLL for (int c = 0; c < 4; c++) sums[j][c] = vfmaq_n_f32(sums[j][c], values[c], weights[j * stride + t]);
        }
        OD_UNROLL for (int j = 0; j < NQ; j++)
            OD_UNROLL for (int c = 0; c < 4; c++)
                vst1q_f32(queries[j].out + begin + 4 * c, vmulq_n_f32(sums[j][c], inverse[j]));
    }
}

#undef OD_UNROLL

}  // namespace OD_ISA
