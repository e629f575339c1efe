// Shared parts of the levels with AES instructions: operations on 64-bit words, unrolled loops, inner rounds.
#pragma once

#include <type_traits>
#include <utility>

#include "fss/aes.hpp"
#include "fss/sides.hpp"

namespace ppca {
namespace {

// Isa has the register type Vec, kBatch and the operations with special instructions; aes_portable.hpp describes the
// members of both.
template <class Isa> struct RegisterCipher : Isa {
    using Vec = typename Isa::Vec;
    using Isa::kBatch;
    static constexpr int kWidth = sizeof(Vec) / 16;
    static constexpr uint8_t kSide = sizeof(Vec);  // a step in the tables by side

    template <int N, class F> [[gnu::always_inline]] static void each(F f) {
        unroll(f, std::make_integer_sequence<int, N>());
    }

    struct Context {
        Vec first, inner[9], last;
        explicit Context(const Schedule& schedule)
            : first(Isa::spread_block(schedule.round_key[0])), last(Isa::spread_block(schedule.round_key[10])) {
            for (int round = 0; round < 9; ++round) inner[round] = Isa::spread_block(schedule.round_key[round + 1]);
        }
    };

    static Vec zero() { return Vec{}; }
    static Vec all_ones() { return ~Vec{}; }
    static Vec test(Vec word, int i) {
        const Halves bit = Halves{} + (0x80000000u >> i);
        return Vec((Halves(word) & bit) == bit);
    }
    static Vec bit_xor(Vec a, Vec b) { return a ^ b; }
    static Vec bit_and(Vec a, Vec b) { return a & b; }
    static Vec control(Vec x) { return x < 0; }
    static Vec halve(Vec x) { return Vec(Words(x) >> 1); }
    static Vec halve(Vec x, uint8_t side) { return Isa::shift_right(x, entry(side_tables<kWidth>.shift, side)); }
    static Vec mask(uint8_t side) { return entry(side_tables<kWidth>.mask, side); }
    static Vec add64(Vec a, Vec b) { return Vec(Words(a) + Words(b)); }
    static Vec sub64(Vec a, Vec b) { return Vec(Words(a) - Words(b)); }
    static Vec full64(Vec a) { return a == all_ones(); }
    static Vec high32(Vec a) { return Vec(Words(a) >> 32); }

    [[gnu::always_inline]] static void rounds(const Context& context, Vec (&x)[kBatch]) {
        each<9>([&](auto round) INLINE_LAMBDA {
            const Vec key = in_register(context.inner[round]);
            each<kBatch>([&](auto i) INLINE_LAMBDA { x[i] = Isa::round(x[i], key); });
        });
    }

private:
    using Words [[gnu::vector_size(sizeof(Vec))]] = uint64_t;
    using Halves [[gnu::vector_size(sizeof(Vec))]] = uint32_t;

    static Vec entry(const void* table, uint8_t side) {
        return *reinterpret_cast<const Vec*>(static_cast<const uint8_t*>(table) + side);
    }

    // Without this, the compiler keeps some round keys in registers and loads the others once per block instead of once
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
