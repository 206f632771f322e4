// Which of the compiled instruction sets this machine can run, best first.
#include <cstring>

#include "model.h"
#include "workspace.h"

namespace outdraft {

extern const Kernels kernels_portable;
#if defined(__x86_64__)
extern const Kernels kernels_avx512, kernels_avx2;
#endif

namespace {

struct Choice {
    const Kernels* kernels;
    bool usable;
};

template <class Visit>
const Kernels* search(Visit visit) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    const Choice choices[] = {{&kernels_avx512, avx512}, {&kernels_avx2, avx2}, {&kernels_portable, true}};
#else
    const Choice choices[] = {{&kernels_portable, true}};
#endif
    for (const Choice& choice : choices)
        if (choice.usable && visit(*choice.kernels)) return choice.kernels;
    return nullptr;
}

}  // namespace

const Kernels& best_kernels() {
    return *search([](const Kernels&) { return true; });
}

const Kernels* find_kernels(const char* name) {
    return search([&](const Kernels& kernels) { return std::strcmp(kernels.name, name) == 0; });
}

void FreeWorkspace::operator()(Workspace* space) const { delete space; }

}  // namespace outdraft
