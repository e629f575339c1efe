#include "fss/levels.hpp"

#include <atomic>

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

const std::vector<const FssKernels*> levels = usable();
std::atomic<const FssKernels*> current{levels.front()};

}  // namespace

const FssKernels& fss() { return *current.load(std::memory_order_relaxed); }

std::vector<std::string> fss_levels() {
    std::vector<std::string> names;
    for (const FssKernels* level : levels) names.emplace_back(level->name);
    return names;
}

bool force_fss(const std::string& name) {
    for (const FssKernels* level : levels) {
        if (name == level->name || name == "auto") {
            current.store(level, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

}  // namespace ppca
