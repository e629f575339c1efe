// Selection of the levels of the stream and FSS kernels that run on this machine.
#include "fss/levels.hpp"

namespace ppca {
namespace {

std::vector<const FssKernels*> usable() {
    std::vector<const FssKernels*> levels;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool aesni = __builtin_cpu_supports("aes") && __builtin_cpu_supports("sse4.2");
    if (aesni && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vaes")) levels.push_back(&vaes_fss);
    if (aesni) levels.push_back(&aesni_fss);
#endif
    levels.push_back(&portable_fss);
    return levels;
}

}  // namespace

Levels<FssKernels> fss_levels(usable());

}  // namespace ppca
