// Which of the compiled instruction sets this machine can run, best first.
#include <cstring>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "model.h"
#include "workspace.h"

namespace outdraft {

extern const Kernels kernels_portable;
#if defined(__x86_64__)
extern const Kernels kernels_amx, kernels_avx512, kernels_avx2;
#elif defined(__aarch64__)
extern const Kernels kernels_neon_dot, kernels_neon;
#endif

namespace {

struct Choice {
    const Kernels* kernels;
    bool usable;
};

#if defined(__x86_64__)
// The matrix unit's state is large: Linux wants to be asked once before a process uses it.
bool may_use_amx() {
#if defined(__linux__)
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const unsigned bits = (1u << 22) | (1u << 24) | (1u << 25);  // AMX-BF16, AMX-TILE, AMX-INT8
    constexpr long request = 0x1023, tile_data = 18;             // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    static const bool granted = (d & bits) == bits && syscall(SYS_arch_prctl, request, tile_data) == 0;
    return granted;
#else
    return false;
#endif
}
#endif

#if defined(__aarch64__)
// Dot products of bytes: optional from Arm 8.2 on, always there from 8.4 on.
bool has_dot_products() {
#if defined(__linux__)
    constexpr unsigned long dot_products = 1ul << 20;  // HWCAP_ASIMDDP
    return getauxval(AT_HWCAP) & dot_products;
#elif defined(__APPLE__)
    int has = 0;
    std::size_t size = sizeof(has);
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has;
#else
    return false;
#endif
}
#endif

std::vector<Choice> look() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    const bool amx = avx512 && may_use_amx();
    return {{&kernels_amx, amx}, {&kernels_avx512, avx512}, {&kernels_avx2, avx2}, {&kernels_portable, true}};
#elif defined(__aarch64__)
    return {{&kernels_neon_dot, has_dot_products()}, {&kernels_neon, true}, {&kernels_portable, true}};
#else
    return {{&kernels_portable, true}};
#endif
}

template <class Visit>
const Kernels* search(Visit visit) {
    static const std::vector<Choice> choices = look();  // once: a virtual machine's cpuid takes tens of microseconds
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
