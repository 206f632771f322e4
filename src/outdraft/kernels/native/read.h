// See read.cpp.
#pragma once
#include "model.h"

namespace outdraft {

// The exclusive or of the layers' and the head's packed weights (without scales), each member's share by itself.
std::uint64_t read_weights(const Model& model);

}  // namespace outdraft
