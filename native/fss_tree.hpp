// The binary tree behind both FSS schemes: walking it (one party) and generating its keys (the dealer).
//
// A node of depth d stands for a prefix of d bits. Each party has a seed s (126 bits, the two low bits are zero) and a control
// bit t at every node. On the path of the secret alpha the two seeds are independent and the control bits differ;
// elsewhere both agree, so whatever the parties derive there cancels. With the fixed-key hash
//
//     H(x) = AES_K(x) ^ x            K public (aes.hpp)
//
// a node expands to  left child H(s ^ 0),  right child H(s ^ 1),  payload mask H(s ^ 2);  the control bit of a left (right) child
// is bit 0 (bit 1) of its block. A correction word of 16 bytes per level, applied where t = 1, makes the child off the path agree;
// its two low bits are the corrections of the left and right control bit. A payload correction word makes the difference
// of the masks on the path equal to the payload.
//
// This is the incremental DPF of Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai ("Lightweight techniques for private heavy
// hitters", IEEE S&P 2021). The DCF is the same tree with payload alpha_d at the prefix of length d:
//
//     [y < alpha] = sum over the levels d with y_d = 0 of [the first d bits of y and alpha agree] * alpha_d,
//
// which needs 6 blocks a level for generation where the DCF of Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee
// (Eurocrypt 2021) takes 8, has the same key size less one level, and inherits the proof for arbitrary payloads.
//
// Security: each seed off a party's view is hashed at three points s, s ^ 1, s ^ 2 that no other seed can produce (its low
// bits are zero). With AES_K as an ideal permutation H is then correlation robust (Guo, Katz, Wang and Yu, "Efficient and secure
// multiparty computation from fixed-key block ciphers", IEEE S&P 2020), with advantage about q * 2^-126 for q AES calls.
#pragma once

#include <cstring>

#include "aes.hpp"
#include "fss_kernels.hpp"

namespace ppca {

using u128 = unsigned __int128;

namespace {

template <class C>
constexpr int kLanes = C::kWidth * C::kBatch;

static inline u128 load128(const void* p) {
    u128 value;
    std::memcpy(&value, p, 16);
    return value;
}

// x mod 2^bits with its top bit moved to bit 127, so that bit d from the top is level d.
static inline u128 align_top(u128 x, int bits) { return x << (128 - bits); }

// The context of the fixed key, built once per level.
template <class C>
static const typename C::Context& fixed_context() {
    static const typename C::Context context(fixed_schedule());
    return context;
}

// The bits of one 128-bit integer per lane, top first, ready for C::next_bit.
template <class C>
struct Paths {
    uint32_t word[4][kLanes<C>];

    void set(int lane, u128 aligned) {
        for (int i = 0; i < 4; ++i) word[i][lane] = static_cast<uint32_t>(aligned >> (96 - 32 * i));
    }
};

// Reads Paths level by level, starting at level `from` < 128.
template <class C>
struct PathReader {
    const Paths<C>& paths;
    typename C::Vec current[C::kBatch];
    int level;

    PathReader(const Paths<C>& paths, int from) : paths(paths), level(from) {
        load();
        for (int i = 0; i < (from & 31); ++i)
            for (int r = 0; r < C::kBatch; ++r) C::next_bit(current[r]);
    }
    void next(typename C::Vec bit[C::kBatch]) {
        if ((level & 31) == 0) load();
        ++level;
        for (int r = 0; r < C::kBatch; ++r) bit[r] = C::next_bit(current[r]);
    }

private:
    void load() {
        for (int r = 0; r < C::kBatch; ++r) current[r] = C::spread(paths.word[level >> 5] + r * C::kWidth);
    }
};

// One node per lane: seeds and control bits (all ones or zeros).
template <class C>
struct Nodes {
    typename C::Vec seed[C::kBatch], control[C::kBatch];

    void root(const uint8_t* const* keys, int party) {
        for (int r = 0; r < C::kBatch; ++r) {
            seed[r] = C::clear(C::gather(keys + r * C::kWidth, 0));
            control[r] = party ? C::all_ones() : C::zero();
        }
    }

    // Moves every lane to its child `bit`; the level's correction word is at key + at.
    void descend(const typename C::Context& context, const typename C::Vec* bit, const uint8_t* const* keys, size_t at) {
        typename C::Vec child[C::kBatch];
        for (int r = 0; r < C::kBatch; ++r) child[r] = C::bit_xor(seed[r], C::tweak(bit[r]));
        C::hash(context, child);
        for (int r = 0; r < C::kBatch; ++r) {
            const auto word = C::gather(keys + r * C::kWidth, at);
            child[r] = C::bit_xor(child[r], C::bit_and(control[r], word));
            control[r] = C::control(child[r], bit[r]);
            seed[r] = C::clear(child[r]);
        }
    }

    void payload_masks(const typename C::Context& context, typename C::Vec value[C::kBatch]) const {
        for (int r = 0; r < C::kBatch; ++r) value[r] = C::bit_xor(seed[r], C::low_word(2));
        C::hash(context, value);
    }
};

// A sum of payloads in each block of a Vec. In Z_2^128 the four 32-bit digits are summed in 64-bit columns, so that no carry has
// to be found in a vector register; up to 2^32 terms.
template <class C, int Limbs>
struct Sum;

template <class C>
struct Sum<C, 1> {
    typename C::Vec sum;
    static typename C::Vec gather(const uint8_t* const* keys, size_t at) { return C::gather64(keys, at); }
    void clear() { sum = C::zero(); }
    void add(typename C::Vec x) { sum = C::add64(sum, x); }
    void read(u128 out[C::kWidth]) const {
        alignas(32) Block block[C::kWidth];
        C::store(block, sum);
        for (int l = 0; l < C::kWidth; ++l) out[l] = block[l].lo;
    }
};

template <class C>
struct Sum<C, 2> {
    typename C::Vec low, high;
    static typename C::Vec gather(const uint8_t* const* keys, size_t at) { return C::gather(keys, at); }
    void clear() { low = high = C::zero(); }
    void add(typename C::Vec x) {
        low = C::add64(low, C::low32(x));
        high = C::add64(high, C::high32(x));
    }
    void read(u128 out[C::kWidth]) const {
        alignas(32) Block digit0[C::kWidth], digit1[C::kWidth];
        C::store(digit0, low);
        C::store(digit1, high);
        for (int l = 0; l < C::kWidth; ++l)
            out[l] = u128(digit0[l].lo) + (u128(digit1[l].lo) << 32) + (u128(digit0[l].hi) << 64) +
                     (u128(digit1[l].hi) << 96);
    }
};

template <int Limbs>
static inline void store_share(uint64_t* out, u128 value, int party) {
    if (party) value = -value;
    std::memcpy(out, &value, 8 * Limbs);
}

// Pointers to the keys of a group of lanes; lanes past the end repeat the last key, and their results are dropped.
template <class C>
struct KeyLanes {
    const uint8_t* key[kLanes<C>];
    KeyLanes(const uint8_t* keys, size_t size, size_t begin, size_t end, size_t per_key) {
        for (size_t l = 0; l < size_t(kLanes<C>); ++l) {
            const size_t index = begin + l < end ? begin + l : end - 1;
            key[l] = keys + size * (index / per_key);
        }
    }
};

// ---------------------------------------------------------------------------------------------------- generation

template <class C>
struct Generator {
    static constexpr int kG = kLanes<C>, kR = C::kBatch;
    using Vec = typename C::Vec;

    const typename C::Context& context = fixed_context<C>();
    Nodes<C> node[2];
    alignas(32) Block buffer[2][kG];

    // Payload correction words: (-1)^t1 * (payload - mask0 + mask1).
    void payload(const GenCall& call, size_t begin, int count, const u128* aligned, int depth) {
        Vec mask[2][kR];
        for (int p = 0; p < 2; ++p) {
            node[p].payload_masks(context, mask[p]);
            for (int r = 0; r < kR; ++r) C::store(buffer[p] + r * C::kWidth, mask[p][r]);
        }
        alignas(32) Block control[kG];
        for (int r = 0; r < kR; ++r) C::store(control + r * C::kWidth, node[1].control[r]);
        const size_t size = call.shape.key_size(), at = call.shape.value_at(depth);
        const size_t bytes = 8 * size_t(call.shape.limbs);
        for (int l = 0; l < count; ++l) {
            const u128 beta = call.shape.comparison ? (aligned[l] >> (127 - depth)) & 1 : 1;
            const u128 minus = (u128(control[l].hi) << 64) | control[l].hi;
            u128 word = beta - load128(&buffer[0][l]) + load128(&buffer[1][l]);
            word = (word ^ minus) - minus;
            std::memcpy(call.key0 + size * (begin + size_t(l)) + at, &word, bytes);
            std::memcpy(call.key1 + size * (begin + size_t(l)) + at, &word, bytes);
        }
    }

    // One level down along alpha, writing the seed correction words.
    void level(const GenCall& call, size_t begin, int count, const Vec* bit, int depth) {
        Vec child[2][2][kR];  // party, side
        for (int p = 0; p < 2; ++p) {
            for (int side = 0; side < 2; ++side) {
                for (int r = 0; r < kR; ++r)
                    child[p][side][r] = C::bit_xor(node[p].seed[r], C::low_word(uint64_t(side)));
                C::hash(context, child[p][side]);
            }
        }
        for (int r = 0; r < kR; ++r) {
            const Vec left = C::bit_xor(child[0][0][r], child[1][0][r]);
            const Vec right = C::bit_xor(child[0][1][r], child[1][1][r]);
            // Seeds: the difference on the side alpha does not take. Control bits: left differs iff alpha goes left, right alike.
            Vec word = C::clear(select(bit[r], left, right));
            const Vec controls = C::bit_xor(select(C::low_word(2), right, left), C::low_word(1));
            word = C::bit_xor(word, C::bit_and(C::low_word(3), C::bit_xor(controls, C::bit_and(bit[r], C::low_word(3)))));
            C::store(buffer[0] + r * C::kWidth, word);
            for (int p = 0; p < 2; ++p) {
                const Vec kept = select(bit[r], child[p][1][r], child[p][0][r]);
                const Vec next = C::bit_xor(kept, C::bit_and(node[p].control[r], word));
                node[p].control[r] = C::control(next, bit[r]);
                node[p].seed[r] = C::clear(next);
            }
        }
        const size_t size = call.shape.key_size(), at = call.shape.seed_at(depth);
        for (int l = 0; l < count; ++l) {
            std::memcpy(call.key0 + size * (begin + size_t(l)) + at, &buffer[0][l], 16);
            std::memcpy(call.key1 + size * (begin + size_t(l)) + at, &buffer[0][l], 16);
        }
    }

    void group(const GenCall& call, size_t begin, int count) {
        const size_t size = call.shape.key_size();
        Paths<C> paths;
        u128 aligned[kG];
        const uint8_t* roots[2][kG];
        for (int l = 0; l < kG; ++l) {
            const size_t index = begin + size_t(l < count ? l : count - 1);
            aligned[l] = align_top(load128(call.alpha + 2 * index), call.shape.bits);
            paths.set(l, aligned[l]);
            for (int p = 0; p < 2; ++p) {
                uint8_t* key = (p ? call.key1 : call.key0) + size * index;
                const u128 root = load128(call.seeds + 4 * index + 2 * p) & ~u128(3);
                std::memcpy(key, &root, 16);
                roots[p][l] = key;
            }
        }
        for (int p = 0; p < 2; ++p) node[p].root(roots[p], p);
        PathReader<C> reader(paths, 0);
        const int last = call.shape.first_value + call.shape.values - 1;
        for (int depth = 0; depth <= last; ++depth) {
            if (depth >= call.shape.first_value) payload(call, begin, count, aligned, depth);
            if (depth < call.shape.seeds) {
                Vec bit[kR];
                reader.next(bit);
                level(call, begin, count, bit, depth);
            }
        }
    }

private:
    static Vec select(Vec mask, Vec a, Vec b) { return C::bit_xor(C::bit_and(mask, a), C::and_not(mask, b)); }
};

template <class C>
void generate(const GenCall& call, size_t begin, size_t end) {
    Generator<C> generator;
    for (size_t at = begin; at < end; at += size_t(kLanes<C>)) {
        const size_t left = end - at;
        generator.group(call, at, int(left < size_t(kLanes<C>) ? left : size_t(kLanes<C>)));
    }
}

}  // namespace
}  // namespace ppca
