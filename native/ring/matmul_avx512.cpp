// The 52-bit tiles of matmul_ifma.hpp on AVX-512 IFMA.
#include <immintrin.h>

#include "ring/matmul_backend.hpp"
#include "ring/matmul_ifma.hpp"

namespace ppca {

namespace {

struct Ifma {
    using lanes = __m512i;
    static lanes zero() { return _mm512_setzero_si512(); }
    static lanes load(const std::uint64_t* p) { return _mm512_load_si512(p); }
    static void store(std::uint64_t* p, lanes x) { _mm512_store_si512(p, x); }
    static lanes spread(std::uint64_t word) { return _mm512_set1_epi64(static_cast<long long>(word)); }
    static lanes madd52lo(lanes c, lanes a, lanes b) { return _mm512_madd52lo_epu64(c, a, b); }
    static lanes madd52hi(lanes c, lanes a, lanes b) { return _mm512_madd52hi_epu64(c, a, b); }
};

}  // namespace

constinit const RingKernels avx512ifma_ring = {"avx512ifma", ifma_backend<Ifma, 2>(), ifma_backend<Ifma, 3>()};

}  // namespace ppca
