// The 52-bit tiles of matmul_ifma.hpp in plain C++: slow, for tests of that arithmetic on every machine.
#include "ring/matmul_ifma.hpp"

namespace ppca {

namespace {

struct EmulatedIfma {
    struct lanes {
        std::uint64_t x[8];
    };
    static lanes zero() { return {}; }
    static lanes load(const std::uint64_t* p) {
        lanes v;
        __builtin_memcpy(v.x, p, sizeof v.x);
        return v;
    }
    static void store(std::uint64_t* p, const lanes& v) { __builtin_memcpy(p, v.x, sizeof v.x); }
    static lanes spread(std::uint64_t word) {
        lanes v;
        for (auto& x : v.x) x = word;
        return v;
    }
    // As the processor does, operands are cut to 52 bits and the sum wraps at 64.
    static unsigned __int128 product(std::uint64_t a, std::uint64_t b) {
        return static_cast<unsigned __int128>(a & kMask52) * (b & kMask52);
    }
    static lanes madd52lo(lanes c, const lanes& a, const lanes& b) {
        for (int i = 0; i < 8; ++i) c.x[i] += static_cast<std::uint64_t>(product(a.x[i], b.x[i])) & kMask52;
        return c;
    }
    static lanes madd52hi(lanes c, const lanes& a, const lanes& b) {
        for (int i = 0; i < 8; ++i) c.x[i] += static_cast<std::uint64_t>(product(a.x[i], b.x[i]) >> 52);
        return c;
    }
};

}  // namespace

constinit const RingKernels emulated_ifma_ring = {"emulated-ifma", ifma_backend<EmulatedIfma, 2>(),
                                                  ifma_backend<EmulatedIfma, 3>()};

}  // namespace ppca
