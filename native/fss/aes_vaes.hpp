// The VAES level: two blocks per 256-bit register, eight registers in flight. Members as in aes_portable.hpp.
#pragma once

#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "aes.hpp"
#include "sides.hpp"

namespace ppca {
namespace {

struct Cipher {
    static constexpr const char* kName = "vaes";
    using Vec = __m256i;
    static constexpr int kWidth = 2;
    static constexpr int kBatch = 8;
    static constexpr uint8_t kSide = 32;

    template <int N, class F> [[gnu::always_inline]] static void each(F f) {
        unroll(f, std::make_integer_sequence<int, N>());
    }

    struct Context {
        Vec first, inner[9], last;
        explicit Context(const Schedule& schedule) {
            const auto key = [&](int round) {
                const auto* p = reinterpret_cast<const __m128i*>(schedule.round_key[round]);
                return _mm256_broadcastsi128_si256(_mm_load_si128(p));
            };
            first = key(0);
            for (int round = 0; round < 9; ++round) inner[round] = key(round + 1);
            last = key(10);
        }
    };

    static Vec zero() { return _mm256_setzero_si256(); }
    static Vec load(const void* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static void store(void* p, Vec x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
    template <class At> [[gnu::always_inline]] static Vec gather(At at) {
        return pair(_mm_loadu_si128(block(at(0))), _mm_loadu_si128(block(at(1))));
    }
    template <class At> [[gnu::always_inline]] static Vec gather64(At at) {
        return pair(_mm_loadl_epi64(block(at(0))), _mm_loadl_epi64(block(at(1))));
    }
    static Vec counter(uint64_t lo, uint64_t hi) {
        const auto low = static_cast<long long>(lo);
        return _mm256_set_epi64x(static_cast<long long>(hi + 1), low, static_cast<long long>(hi), low);
    }
    static Vec spread(const uint32_t* w) {
        return pair(_mm_set1_epi32(static_cast<int>(w[0])), _mm_set1_epi32(static_cast<int>(w[1])));
    }
    static Vec test(Vec word, int i) {
        const Vec bit = _mm256_set1_epi32(static_cast<int>(0x80000000u >> i));
        return _mm256_cmpeq_epi32(_mm256_and_si256(word, bit), bit);
    }
    static Vec bit_xor(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
    static Vec bit_and(Vec a, Vec b) { return _mm256_and_si256(a, b); }
    static Vec and_not(Vec mask, Vec a) { return _mm256_andnot_si256(mask, a); }
    static Vec low_word(uint64_t value) {
        const auto low = static_cast<long long>(value);
        return _mm256_set_epi64x(0, low, 0, low);
    }
    static Vec all_ones() { return _mm256_set1_epi32(-1); }
    static Vec control(Vec x) { return _mm256_cmpgt_epi64(zero(), x); }
    static Vec halve(Vec x) { return _mm256_srli_epi64(x, 1); }
    static Vec halve(Vec x, uint8_t side) { return _mm256_srlv_epi64(x, entry(side_tables<kWidth>.shift, side)); }
    static Vec mask(uint8_t side) { return entry(side_tables<kWidth>.mask, side); }
    static Vec add64(Vec a, Vec b) { return _mm256_add_epi64(a, b); }
    static Vec sub64(Vec a, Vec b) { return _mm256_sub_epi64(a, b); }
    static Vec full64(Vec a) { return _mm256_cmpeq_epi64(a, all_ones()); }
    static Vec up64(Vec a) { return _mm256_slli_si256(a, 8); }
    static Vec high32(Vec a) { return _mm256_srli_epi64(a, 32); }

    [[gnu::always_inline]] static void rounds(const Context& context, Vec (&x)[kBatch]) {
        each<9>([&](auto round) INLINE_LAMBDA {
            const Vec key = in_register(context.inner[round]);
            each<kBatch>([&](auto i) INLINE_LAMBDA { x[i] = _mm256_aesenc_epi128(x[i], key); });
        });
    }
    static Vec last(Vec x, Vec mask) { return _mm256_aesenclast_epi128(x, mask); }

private:
    static Vec entry(const void* table, uint8_t side) {
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(static_cast<const uint8_t*>(table) + side));
    }
    static Vec pair(__m128i low, __m128i high) { return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1); }
    static const __m128i* block(const void* p) { return static_cast<const __m128i*>(p); }

    // Left alone, the compiler keeps some round keys in registers and loads the others once per block instead of once
    // per round, which makes the two load ports the bottleneck.
    [[gnu::always_inline]] static Vec in_register(Vec key) {
        asm volatile("" : "+x"(key));
        return key;
    }

    template <class F, int... I> [[gnu::always_inline]] static void unroll(F& f, std::integer_sequence<int, I...>) {
        (f(std::integral_constant<int, I>()), ...);
    }
};

}  // namespace
}  // namespace ppca
