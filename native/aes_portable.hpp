// The portable level: bitsliced AES on 64 blocks, constant time on any machine with 64-bit words.
//
// This header, aes_sse.hpp and aes_avx.hpp each define one `Cipher` policy with the same members; prg.hpp, dcf.hpp and dpf.hpp
// are templates over it. A Vec holds kWidth blocks; a batch is kBatch Vecs that are encrypted together. The operations
// act on each 128-bit block of a Vec alone:
//
//   load / store            kWidth consecutive blocks in memory
//   gather(p, at)           block l from address p[l] + at (no alignment needed); gather64 loads 8 bytes, zero extended
//   counter(lo, hi)         block l = (lo, hi + l)
//   spread(w)               block l = four copies of the 32-bit word w[l]
//   next_bit(path)          all ones where the top bit of the word in `path` is set; shifts `path` left by one
//   tweak(bit)              bit & 1                     control(x, bit)   all ones where bit [bit ? 1 : 0] of x is set
//   clear(x)                x without its two low bits  low32 / high32    the two halves of every 64-bit word
//   encrypt / hash          x[i] = AES(x[i])  /  x[i] = AES(x[i]) ^ x[i], in place, for i < kBatch
#pragma once

#include <cstring>

#include "aes.hpp"

namespace ppca {
namespace {

struct PortableCipher {
    struct Vec {
        uint64_t lo, hi;
    };
    static constexpr int kWidth = 1;
    static constexpr int kBatch = 64;
    static constexpr const char* kName = "portable";

    // Round keys as masks: bit plane j of byte p of round r is mask[r][j][p], all zeros or all ones.
    struct Context {
        uint64_t mask[11][8][16];
        explicit Context(const Schedule& schedule) {
            for (int round = 0; round < 11; ++round)
                for (int bit = 0; bit < 8; ++bit)
                    for (int byte = 0; byte < 16; ++byte)
                        mask[round][bit][byte] = -uint64_t((schedule.round_key[round][byte] >> bit) & 1);
        }
    };

    static Vec zero() { return {0, 0}; }
    static Vec load(const Block* p) { return {p->lo, p->hi}; }
    static void store(Block* p, Vec x) { *p = {x.lo, x.hi}; }
    static Vec gather(const uint8_t* const* p, size_t at) {
        Vec x;
        std::memcpy(&x, p[0] + at, 16);
        return x;
    }
    static Vec gather64(const uint8_t* const* p, size_t at) {
        Vec x{0, 0};
        std::memcpy(&x.lo, p[0] + at, 8);
        return x;
    }
    static Vec counter(uint64_t lo, uint64_t hi) { return {lo, hi}; }
    static Vec spread(const uint32_t* w) { return {w[0] * 0x100000001ull, w[0] * 0x100000001ull}; }
    static Vec next_bit(Vec& path) {
        const uint64_t bit = -(path.lo >> 63);
        path.lo <<= 1;
        return {bit, bit};
    }
    static Vec bit_xor(Vec a, Vec b) { return {a.lo ^ b.lo, a.hi ^ b.hi}; }
    static Vec bit_and(Vec a, Vec b) { return {a.lo & b.lo, a.hi & b.hi}; }
    static Vec and_not(Vec mask, Vec a) { return {~mask.lo & a.lo, ~mask.hi & a.hi}; }
    static Vec low_word(uint64_t value) { return {value, 0}; }
    static Vec all_ones() { return {~0ull, ~0ull}; }
    static Vec tweak(Vec bit) { return {bit.lo & 1, 0}; }
    static Vec control(Vec x, Vec bit) {
        const uint64_t mask = -((x.lo >> (bit.lo & 1)) & 1);
        return {mask, mask};
    }
    static Vec clear(Vec x) { return {x.lo & ~3ull, x.hi}; }
    static Vec add64(Vec a, Vec b) { return {a.lo + b.lo, a.hi + b.hi}; }
    static Vec low32(Vec a) { return {a.lo & 0xffffffff, a.hi & 0xffffffff}; }
    static Vec high32(Vec a) { return {a.lo >> 32, a.hi >> 32}; }

    static void hash(const Context& context, Vec* x) {
        Vec in[kBatch];
        std::memcpy(in, x, sizeof in);
        encrypt(context, x);
        for (int i = 0; i < kBatch; ++i) x[i] = bit_xor(x[i], in[i]);
    }

    static void encrypt(const Context& context, Vec* x) {
        uint64_t plane[8][16];
        slice(x, plane);
        for (int bit = 0; bit < 8; ++bit)
            for (int byte = 0; byte < 16; ++byte) plane[bit][byte] ^= context.mask[0][bit][byte];
        for (int round = 1; round <= 10; ++round) {
            substitute(plane);
            shift_rows(plane);
            if (round < 10) mix_columns(plane);
            for (int bit = 0; bit < 8; ++bit)
                for (int byte = 0; byte < 16; ++byte) plane[bit][byte] ^= context.mask[round][bit][byte];
        }
        unslice(plane, x);
    }

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

    static void substitute(uint64_t plane[8][16]) {
        for (int byte = 0; byte < 16; ++byte) {
            uint64_t q[8];
            for (int bit = 0; bit < 8; ++bit) q[bit] = plane[bit][byte];
            sbox(q);
            for (int bit = 0; bit < 8; ++bit) plane[bit][byte] = q[bit];
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
