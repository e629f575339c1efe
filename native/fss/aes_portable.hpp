// The portable level: bitsliced AES on 64 blocks, constant time on any machine with 64-bit words.
#pragma once

#include <cstring>

#include "fss/aes.hpp"

namespace ppca {
namespace {

struct Cipher {
    static constexpr const char* kName = "portable";
    struct Vec {
        uint64_t lo, hi;
    };
    static constexpr int kWidth = 1;
    static constexpr int kBatch = 64;
    static constexpr uint8_t kSide = 1;

    template <int N, class F> static void each(F f) {
        for (int i = 0; i < N; ++i) f(i);
    }

    // Inner round keys as masks: bit plane j of byte p of round r is mask[r - 1][j][p], all zeros or all ones.
    struct Context {
        Vec first, last;
        uint64_t mask[9][8][16];
        explicit Context(const Schedule& schedule)
            : first(load(schedule.round_key[0])), last(load(schedule.round_key[10])) {
            for (int round = 0; round < 9; ++round)
                for (int bit = 0; bit < 8; ++bit)
                    for (int byte = 0; byte < 16; ++byte)
                        mask[round][bit][byte] = -uint64_t((schedule.round_key[round + 1][byte] >> bit) & 1);
        }
    };

    static Vec zero() { return {0, 0}; }
    static Vec load(const void* p) {
        Vec x;
        std::memcpy(&x, p, 16);
        return x;
    }
    static void store(void* p, Vec x) { std::memcpy(p, &x, 16); }
    template <class At> static Vec gather(At at) { return load(at(0)); }
    template <class At> static Vec gather64(At at) {
        Vec x{0, 0};
        std::memcpy(&x.lo, at(0), 8);
        return x;
    }
    static Vec counter(uint64_t lo, uint64_t hi) { return {lo, hi}; }
    static Vec spread(const uint32_t* w) { return {w[0], w[0]}; }
    static Vec test(Vec word, int i) {
        const uint64_t bit = -((word.lo >> (31 - i)) & 1);
        return {bit, bit};
    }
    static Vec bit_xor(Vec a, Vec b) { return {a.lo ^ b.lo, a.hi ^ b.hi}; }
    static Vec bit_and(Vec a, Vec b) { return {a.lo & b.lo, a.hi & b.hi}; }
    static Vec and_not(Vec mask, Vec a) { return {~mask.lo & a.lo, ~mask.hi & a.hi}; }
    static Vec low_word(uint64_t value) { return {value, 0}; }
    static Vec all_ones() { return {~0ull, ~0ull}; }
    static Vec control(Vec x) { return {-(x.lo >> 63), -(x.hi >> 63)}; }
    static Vec halve(Vec x) { return {x.lo >> 1, x.hi >> 1}; }
    static Vec halve(Vec x, uint8_t side) { return {x.lo >> side, x.hi >> side}; }
    static Vec mask(uint8_t side) { return side ? all_ones() : zero(); }
    static Vec add64(Vec a, Vec b) { return {a.lo + b.lo, a.hi + b.hi}; }
    static Vec sub64(Vec a, Vec b) { return {a.lo - b.lo, a.hi - b.hi}; }
    static Vec full64(Vec a) { return {-uint64_t(a.lo == ~0ull), -uint64_t(a.hi == ~0ull)}; }
    static Vec up64(Vec a) { return {0, a.lo}; }
    static Vec high32(Vec a) { return {a.lo >> 32, a.hi >> 32}; }

    static void rounds(const Context& context, Vec (&x)[kBatch]) {
        uint64_t plane[8][16];
        slice(x, plane);
        for (int round = 1; round <= 10; ++round) {
            substitute(plane);
            shift_rows(plane);
            if (round == 10) break;
            mix_columns(plane);
            for (int bit = 0; bit < 8; ++bit)
                for (int byte = 0; byte < 16; ++byte) plane[bit][byte] ^= context.mask[round - 1][bit][byte];
        }
        unslice(plane, x);
    }
    static Vec last(Vec x, Vec mask) { return bit_xor(x, mask); }

private:
    // Transposes a 64 x 64 bit matrix in place: bit j of word i swaps with bit i of word j.
    static void transpose(uint64_t a[64]) {
        uint64_t mask = 0x00000000ffffffffull;
        for (int step = 32; step != 0; step >>= 1, mask ^= mask << step) {
            for (int base = 0; base < 64; base += 2 * step) {
                for (int i = base; i < base + step; ++i) {
                    const uint64_t swap = ((a[i] >> step) ^ a[i + step]) & mask;
                    a[i] ^= swap << step;
                    a[i + step] ^= swap;
                }
            }
        }
    }

    static void slice(const Vec* x, uint64_t plane[8][16]) {
        uint64_t half[2][64];
        for (int i = 0; i < 64; ++i) {
            half[0][i] = x[i].lo;
            half[1][i] = x[i].hi;
        }
        for (int h = 0; h < 2; ++h) {
            transpose(half[h]);
            for (int i = 0; i < 64; ++i) plane[i & 7][8 * h + (i >> 3)] = half[h][i];
        }
    }

    static void unslice(const uint64_t plane[8][16], Vec* x) {
        uint64_t half[2][64];
        for (int h = 0; h < 2; ++h) {
            for (int i = 0; i < 64; ++i) half[h][i] = plane[i & 7][8 * h + (i >> 3)];
            transpose(half[h]);
        }
        for (int i = 0; i < 64; ++i) x[i] = {half[0][i], half[1][i]};
    }

    // Two byte positions at a time: every 64-bit machine of interest has 128-bit bitwise operations.
    static void substitute(uint64_t plane[8][16]) {
        using Pair [[gnu::vector_size(16)]] = uint64_t;
        for (int byte = 0; byte < 16; byte += 2) {
            Pair q[8];
            for (int bit = 0; bit < 8; ++bit) std::memcpy(&q[bit], &plane[bit][byte], 16);
            sbox(q);
            for (int bit = 0; bit < 8; ++bit) std::memcpy(&plane[bit][byte], &q[bit], 16);
        }
    }

    static void shift_rows(uint64_t plane[8][16]) {
        for (int bit = 0; bit < 8; ++bit) {
            uint64_t in[16];
            std::memcpy(in, plane[bit], sizeof in);
            for (int column = 0; column < 4; ++column)
                for (int row = 0; row < 4; ++row) plane[bit][4 * column + row] = in[(4 * (column + row) + row) & 15];
        }
    }

    static void mix_columns(uint64_t plane[8][16]) {
        for (int column = 0; column < 16; column += 4) {
            uint64_t a[8][4], pair[8][4];  // pair = a[row] ^ a[row + 1]
            for (int bit = 0; bit < 8; ++bit) {
                for (int row = 0; row < 4; ++row) a[bit][row] = plane[bit][column + row];
                for (int row = 0; row < 4; ++row) pair[bit][row] = a[bit][row] ^ a[bit][(row + 1) & 3];
            }
            for (int bit = 0; bit < 8; ++bit) {
                for (int row = 0; row < 4; ++row) {
                    uint64_t doubled = bit ? pair[bit - 1][row] : pair[7][row];
                    if (bit == 1 || bit == 3 || bit == 4) doubled ^= pair[7][row];
                    plane[bit][column + row] = doubled ^ a[bit][(row + 1) & 3] ^ pair[bit][(row + 2) & 3];
                }
            }
        }
    }
};

}  // namespace
}  // namespace ppca
