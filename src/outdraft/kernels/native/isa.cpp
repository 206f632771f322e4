// The kernels for one instruction set: compiled once for each, with OD_ISA naming namespace and table.
#include "guess.h"
#include "peak.h"
#include "row_loss.h"

#define OD_TEXT(x) #x
#define OD_NAME(x) OD_TEXT(x)
#define OD_JOIN(a, b) a##b
#define OD_TABLE(isa) OD_JOIN(kernels_, isa)

namespace outdraft {
extern const Kernels OD_TABLE(OD_ISA);
const Kernels OD_TABLE(OD_ISA) = {OD_NAME(OD_ISA), OD_ISA::run, OD_ISA::logits, OD_ISA::multiply_alone, OD_ISA::feed,
                                OD_ISA::guess, OD_ISA::best_rows, OD_ISA::top_rows, OD_ISA::warp_rows, OD_ISA::race_alone,
                                OD_ISA::row_losses, OD_ISA::log_sums, OD_ISA::dot_work};
}  // namespace outdraft
