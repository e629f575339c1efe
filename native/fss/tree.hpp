// The binary tree of both FSS schemes, and what both parties need to evaluate it. Generation is in generate.hpp.
//
// A node of depth d stands for a prefix of d bits. At every node each party has a seed of two 64-bit words, whose top
// bits are its two control bits. Off the path of the secret alpha both parties have the same seed, so all values
// derived there cancel. On the path the seeds at depth d differ by a secret Delta_d, which has both control bits. With
//
//     P, P'        AES under the two public keys of the run (TreeKey), without the first and the last round key (which
//                  would add constants to input and output)
//     x / 2        both words of x shifted right by one bit
//
// the children of a node with seed s are, before correction,
//
//     left  P(s) ^ s        right  P(s) ^ s / 2        so that  left ^ right = s ^ s / 2 =: R(s),
//
// one block for both. Each level has a correction word of 16 bytes; each half is applied if its control bit is set. It
// makes the child off the path agree. The child on the path then differs by Delta_{d+1} = R(Delta_d). R is linear and
// invertible (it is the Gray code) and keeps top bits. The payload mask of a node is P'(s) ^ s. A payload correction
// word, applied by XOR in the same way, makes the difference of the two masks on the path equal to the payload (as
// integers mod 2^k). It is the XOR of two values of which the other party cannot predict one, so it hides as well as a
// sum and costs nothing to apply.
//
// The correlated tree is that of Guo, Yang, Wang, Zhang, Xie, Liu and Zhao ("Half-Tree: halving the cost of tree
// expansion in COT and DPF", Eurocrypt 2023) with another linear map. The payload per level is that of the incremental
// DPF of Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai ("Lightweight techniques for private heavy hitters", IEEE S&P
// 2021). The DCF has the payload alpha_d at the prefix of length d:
//
//     [y < alpha] = sum over the levels d with y_d = 0 of [the first d bits of y and alpha agree] * alpha_d.
//
// Cost per level: 4 blocks to generate, 1 or 2 to evaluate. The DCF of Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and
// Rathee (Eurocrypt 2021) takes 8 and 2.
//
// Security, with P and P' as ideal permutations. One party's view is its root and the correction words; its own seeds
// s_d on the path follow from them. The other party's seeds are h_d = s_d ^ Delta_d, and the words of depth d are
//
//     P(h_d) ^ L(Delta_d) ^ (a function of s_d)    and    P'(h_d) ^ h_d, plus or minus the payload, ^ (one of s_d),
//
// where L(x) is x or x / 2, whichever belongs to the child off the path. Compare this with a view of uniformly random
// words, which does not depend on alpha, and draw Delta_0 after it. The two differ only in two cases: if some h_d meets
// a point at which P (or P') was queried by the adversary or for another depth; or if P(h_d), which the view shows
// offset by L(Delta_d), meets the answer to such a query. Delta_d has 126 uniform bits, Delta_d / 2 has 124, and the
// s_d are uniform. So q queries succeed with probability about q * 2^-124 per level and key. (The offset is needed:
// from P(h_d) itself, h_d would follow by inverting P. So both maps of the children, and their sum R, must preserve
// Delta_d.)
//
// One query serves against all keys made under the same P: with N levels of keys visible the bound is N q * 2^-124.
// (Guo, Katz, Wang, Weng and Yu, "Better concrete security for half-gates garbling (in the multi-instance setting)",
// Crypto 2020, show such an attack on garbled circuits.) So P and P' are new in every run: their AES keys are a hash of
// a nonce that one server draws at the start and sends to the others (protocol/party.py). With AES as an ideal cipher,
// queries under the keys of other runs, or from before the nonce was drawn, say nothing about these permutations. So N
// counts the keys of one run, and q the queries made for this run alone.
#pragma once

#include <cstring>

#include "fss/cipher.hpp"
#include "fss/kernels.hpp"

namespace ppca {

using u128 = unsigned __int128;

namespace {

static inline u128 load128(const void* p) {
    u128 value;
    std::memcpy(&value, p, 16);
    return value;
}

// x mod 2^bits with its top bit moved to bit 127, so that bit d from the top is level d.
static inline u128 align_top(u128 x, int bits) { return x << (128 - bits); }

// The bits of levels 8i .. 8i + 7 of an aligned integer, top first. (From memory: shifts of 128 bits take longer.)
static inline uint8_t path_byte(const u128& aligned, int i) {
    return reinterpret_cast<const uint8_t*>(&aligned)[15 - i];
}

// P and P' in the form of the instruction-set level, built once per call.
struct Permutations {
    C::Context tree, payload;
    explicit Permutations(const TreeKey& key) : tree(key.tree), payload(key.payload) {}
};

// The keys of a group of lanes. Lanes past the end repeat the last key; their results are discarded.
struct KeyLanes {
    const uint8_t* key[kLanes];

    KeyLanes(const uint8_t* keys, size_t size, size_t begin, size_t end, size_t per_key) {
        const uint8_t* at = keys + size * (begin / per_key);
        size_t used = begin % per_key;
        for (size_t l = 0; l < size_t(kLanes); ++l) {
            key[l] = at;
            if (begin + l + 1 < end && ++used == per_key) {
                used = 0;
                at += size;
            }
        }
    }

    // The blocks at distance `at` from the keys of Vec r.
    [[gnu::always_inline]] Vec word(int r, size_t at) const {
        return C::gather([&](int l) INLINE_LAMBDA { return key[r * C::kWidth + l] + at; });
    }

    // Prefetches a cache line for every second lane, at this distance from its key. The keys of a batch are too many
    // streams for the hardware prefetcher. (Inlined: the compiler drops calls of functions that only prefetch.)
    [[gnu::always_inline]] void prefetch(size_t at, int odd) const {
        for (int l = odd; l < kLanes; l += 2) __builtin_prefetch(key[l] + at, 0, 2);
    }
};

// Facts about eight levels of a public path, indexed by these levels as a byte, top bit first.
struct PathBytes {
    uint64_t right[256];  // byte i is 1 if level i goes right
    uint8_t left_count[256];
    alignas(16) uint16_t left[256][8];  // the levels that go left, in order, times 16

    consteval PathBytes() : right(), left_count(), left() {
        for (unsigned path = 0; path < 256; ++path) {
            for (unsigned i = 0; i < 8; ++i) {
                if (path << i & 0x80) right[path] |= uint64_t(1) << (8 * i);
                else left[path][left_count[path]++] = uint16_t(16 * i);
            }
        }
    }
};
inline constexpr PathBytes path_bytes;

// The sides that public paths take at every level, one path per lane.
struct Sides {
    uint8_t side[C::kBatch][128];

    Sides(const u128 aligned[kLanes], int bits) {
        for (int r = 0; r < C::kBatch; ++r) {
            for (int byte = 0; byte < (bits + 7) / 8; ++byte) {
                uint64_t sides = 0;
                for (int l = 0; l < C::kWidth; ++l)
                    sides |= path_bytes.right[path_byte(aligned[r * C::kWidth + l], byte)] * (C::kSide << l);
                std::memcpy(side[r] + 8 * byte, &sides, 8);
            }
        }
    }
};

// The mask of the last round that turns P(seed) into the corrected child on `side`; `word` is the correction word.
[[gnu::always_inline]] static inline Vec child_mask(Vec seed, uint8_t side, Vec word) {
    return C::bit_xor(C::halve(seed, side), C::bit_and(C::control(seed), word));
}

// The mask of the last round that turns P'(seed) into the corrected payload.
[[gnu::always_inline]] static inline Vec payload_mask(Vec seed, Vec word) {
    return C::bit_xor(seed, C::bit_and(C::control(seed), word));
}

// Payload correction words at the addresses at(l).
template <int Limbs, class At> [[gnu::always_inline]] static inline Vec payload_word(At at) {
    if constexpr (Limbs == 1) return C::gather64(at);
    else return C::gather(at);
}

// Selects a if mask is all ones, otherwise b.
[[gnu::always_inline]] static inline Vec select(Vec mask, Vec a, Vec b) {
    return C::bit_xor(C::bit_and(mask, a), C::and_not(mask, b));
}

// A sum of payloads in each block of a Vec, for up to 2^32 terms. In Z_2^128 the carry between the two 64-bit words is
// not computed at every addition. The sum of the upper halves of each word is kept in addition to the wrapped sum of
// the words. At the end the two give the sum of the lower halves, and hence the exact sum of the words.
template <int Limbs> struct Sum;

template <> struct Sum<1> {
    Vec wrapped = C::zero();
    [[gnu::always_inline]] void add(Vec x) { wrapped = C::add64(wrapped, x); }
};

template <> struct Sum<2> {
    Vec wrapped = C::zero(), upper = C::zero();
    [[gnu::always_inline]] void add(Vec x) {
        wrapped = C::add64(wrapped, x);
        upper = C::add64(upper, C::high32(x));
    }
};

// The sum in block l.
template <int Limbs> static inline u128 read_sum(const Sum<Limbs>& sum, size_t l) {
    const auto word = [&](size_t i) INLINE_LAMBDA {
        uint64_t x;
        std::memcpy(&x, reinterpret_cast<const uint8_t*>(&sum) + 8 * i, 8);
        return x;
    };
    const uint64_t low = word(2 * l);
    if constexpr (Limbs == 1) {
        return low;
    } else {
        const uint64_t upper = word(2 * (C::kWidth + l));
        const u128 exact = (u128(upper) << 32) + static_cast<uint64_t>(low - (upper << 32));
        return exact + (u128(word(2 * l + 1)) << 64);
    }
}

template <int Limbs> static inline u128 load_element(const uint64_t* p) {
    if constexpr (Limbs == 1) return *p;
    else return load128(p);
}

template <int Limbs> static inline void store_share(uint64_t* out, u128 value, int party) {
    if (party) value = -value;
    std::memcpy(out, &value, 8 * Limbs);
}

// Adds value * weights[t] to out[t].
template <int Limbs>
static inline void add_weighted(uint64_t* out, const uint64_t* weights, size_t outputs, u128 value) {
    for (size_t t = 0; t < outputs; ++t) {
        const u128 sum = load_element<Limbs>(out + Limbs * t) + value * load_element<Limbs>(weights + Limbs * t);
        std::memcpy(out + Limbs * t, &sum, 8 * Limbs);
    }
}

}  // namespace
}  // namespace ppca
