// A layer's packed weights as one block of bytes, as it lies in a file: read back, it is used where it lies.
//
//   [ header | matrix: data, scales, halves, correction, bias | three more | norms | a spare line ]
// Every part begins at a multiple of 64 bytes.
#pragma once
#include "model.h"

namespace outdraft {

std::size_t image_bytes(const LayerWeights& layer, const Shape& shape);
void write_image(const LayerWeights& layer, const Shape& shape, std::uint8_t* to);
// Weights that point into the image, which must outlive them. Throws where the bytes are no image of a layer (or of the
// head) of this shape.
LayerWeights lend_image(std::uint8_t* from, std::size_t bytes, const Shape& shape, bool is_head);
// Any change of one 8-byte word changes it; as quick as memory is read.
std::uint64_t checksum(const std::uint8_t* from, std::size_t bytes);

}  // namespace outdraft
