// Products with block formats of GGUF files: a tile is one strip of 16 outputs times a few rows.
#pragma once
#if defined(__AVX2__) && !defined(__AVX512F__)
#include "block_strip_avx2.h"
#else
#include "block_strip.h"
#endif

namespace OD_ISA {

// R rows of a block of 64 outputs.
template <int R>
static inline void tile_blocks(const Matrix& m, int block, const Operand& x, int row, float* out, std::size_t stride) {
    const outdraft::BlockPart& part = m.part_of(block);
    const std::size_t strip = outdraft::format_of(part.type).strip_bytes(m.num_in), line = line_bytes(m);
    const std::uint8_t* w = part.data.get() + (block - part.first_block) * 4 * strip;
    for (int c = 0; c < 4; c++, w += strip) switch (part.type) {
#define OD_CASE(type) case Block::type: block_strip<Block::type, R>(w, m.num_in, x, row, line, out + 16 * c, stride); break;
            OD_CASE(q4_0) OD_CASE(q4_1) OD_CASE(q5_0) OD_CASE(q5_1) OD_CASE(q8_0) OD_CASE(q2_k) OD_CASE(q3_k)
            OD_CASE(q4_k) OD_CASE(q5_k) OD_CASE(q6_k) OD_CASE(iq4_nl) OD_CASE(iq4_xs) OD_CASE(mxfp4) OD_CASE(nvfp4)
#undef OD_CASE
        }
    if (part.factor != 1)
        for (int r = 0; r < R; r++)
            for (int i = 0; i < outdraft::kBlock; i++) out[r * stride + i] *= part.factor;
}

}  // namespace OD_ISA
