// The binary tree behind both FSS schemes, and what both parties need to walk it. Generation is in fss_gen.hpp.
//
// A node of depth d stands for a prefix of d bits. Each party has a seed s (126 bits, the two low bits are zero) and a
// control bit t at every node. On the path of the secret alpha the two seeds are independent and the control bits
// differ; elsewhere both agree, so whatever the parties derive there cancels. With the fixed-key hash
//
//     H(x) = AES_K(x) ^ x            K public (aes.hpp)
//
// a node expands to  left child H(s ^ 0),  right child H(s ^ 1),  payload mask H(s ^ 2);  the control bit of a left
// (right) child is bit 0 (bit 1) of its block. A correction word of 16 bytes per level, applied where t = 1, makes the
// child off the path agree; its two low bits are the corrections of the left and right control bit. A payload
// correction word, xored to the payload mask where t = 1, makes the difference of the two masks on the path equal to
// the payload (as integers mod 2^k). It is the exclusive or of two values one of which the other party cannot predict,
// so it is as good a pad as a sum, and it costs nothing to apply.
//
// This is the incremental DPF of Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai ("Lightweight techniques for private
// heavy hitters", IEEE S&P 2021). The DCF is the same tree with payload alpha_d at the prefix of length d:
//
//     [y < alpha] = sum over the levels d with y_d = 0 of [the first d bits of y and alpha agree] * alpha_d,
//
// which needs 6 blocks a level for generation where the DCF of Boyle, Chandran, Gilboa, Gupta, Ishai, Kumar and Rathee
// (Eurocrypt 2021) takes 8, has the same key size less one level, and inherits the proof for arbitrary payloads.
//
// Security: each seed off a party's view is hashed at three points s, s ^ 1, s ^ 2 that no other seed can produce (its
// low bits are zero). With AES_K as an ideal permutation H is then correlation robust (Guo, Katz, Wang and Yu,
// "Efficient and secure multiparty computation from fixed-key block ciphers", IEEE S&P 2020), with advantage about q *
// 2^-126 for q AES calls.
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

// The bits of one 128-bit integer per lane, top first.
template <class C>
struct Paths {
    uint32_t word[4][kLanes<C>];

    void set(int lane, u128 aligned) {
        for (int i = 0; i < 4; ++i) word[i][lane] = static_cast<uint32_t>(aligned >> (96 - 32 * i));
    }
};

// The bits of Paths at one level, as masks.
template <class C>
struct PathReader {
    const Paths<C>& paths;
    typename C::Vec word[C::kBatch];
    int loaded = -1, at = 0;

    explicit PathReader(const Paths<C>& paths) : paths(paths) {}

    void go_to(int level) {
        at = level & 31;
        if (loaded == level >> 5) return;
        loaded = level >> 5;
        for (int r = 0; r < C::kBatch; ++r) word[r] = C::spread(paths.word[loaded] + r * C::kWidth);
    }
    typename C::Vec bit(int r) const { return C::test(word[r], at); }
};

// One node per lane: seeds and control bits (all ones or zeros).
template <class C>
struct Nodes {
    using Vec = typename C::Vec;
    Vec seed[C::kBatch], control[C::kBatch];

    void root(const uint8_t* const* keys, int party) {
        for (int r = 0; r < C::kBatch; ++r) {
            seed[r] = C::clear(C::gather(keys + r * C::kWidth, 0));
            control[r] = party ? C::all_ones() : C::zero();
        }
    }

    // Takes the child block of Vec r, hashed and corrected, on side `bit`.
    [[gnu::always_inline]] void take(int r, Vec child, Vec bit) {
        control[r] = C::control(child, bit);
        seed[r] = C::clear(child);
    }

    // Becomes the children of `parent` (which may be this) on the sides that side(r) says; the level's correction word
    // is at key + at.
    template <class Side>
    void descend(const typename C::Context& context, const Nodes& parent, Side side, const uint8_t* const* keys,
                 size_t at) {
        for (int base = 0; base < C::kBatch; base += C::kFlight) {
            Vec x[C::kFlight], in[C::kFlight], bits[C::kFlight];
            C::template each<C::kFlight>([&](auto i) INLINE_LAMBDA {
                bits[i] = side(base + i);
                x[i] = in[i] = C::bit_xor(parent.seed[base + i], C::tweak(bits[i]));
            });
            C::park(in);
            C::park(bits);
            C::rounds(context, x);
            C::template each<C::kFlight>([&](auto i) INLINE_LAMBDA {
                const int r = base + i;
                const Vec word = C::bit_and(parent.control[r], C::gather(keys + r * C::kWidth, at));
                take(r, C::last(context, x[i], C::bit_xor(in[i], word)), bits[i]);
            });
        }
    }

    // Calls use(r, payload of Vec r); word(r) is the payload correction word.
    template <class Word, class Use>
    void payloads(const typename C::Context& context, Word word, Use use) const {
        for (int base = 0; base < C::kBatch; base += C::kFlight) {
            Vec x[C::kFlight], in[C::kFlight];
            C::template each<C::kFlight>(
                [&](auto i) INLINE_LAMBDA { x[i] = in[i] = C::bit_xor(seed[base + i], C::low_word(2)); });
            C::park(in);
            C::rounds(context, x);
            C::template each<C::kFlight>([&](auto i) INLINE_LAMBDA {
                const int r = base + i;
                use(r, C::last(context, x[i], C::bit_xor(in[i], C::bit_and(control[r], word(r)))));
            });
        }
    }
};

// A sum of payloads in each block of a Vec, for up to 2^32 terms. In Z_2^128 the carry between the two 64-bit words is
// not looked for at every addition: the sum of the upper halves of each word is kept beside the wrapped sum of the
// words, and from the two the sum of the lower halves, hence the exact sum of the words, follows at the end.
template <class C, int Limbs>
struct Sum;

template <class C>
struct Sum<C, 1> {
    typename C::Vec wrapped;
    static typename C::Vec gather(const uint8_t* const* keys, size_t at) { return C::gather64(keys, at); }
    void clear() { wrapped = C::zero(); }
    [[gnu::always_inline]] void add(typename C::Vec x) { wrapped = C::add64(wrapped, x); }
    void read(u128 out[C::kWidth]) const {
        alignas(32) Block block[C::kWidth];
        C::store(block, wrapped);
        for (int l = 0; l < C::kWidth; ++l) out[l] = block[l].lo;
    }
};

template <class C>
struct Sum<C, 2> {
    typename C::Vec wrapped, upper;
    static typename C::Vec gather(const uint8_t* const* keys, size_t at) { return C::gather(keys, at); }
    void clear() { wrapped = upper = C::zero(); }
    [[gnu::always_inline]] void add(typename C::Vec x) {
        wrapped = C::add64(wrapped, x);
        upper = C::add64(upper, C::high32(x));
    }
    void read(u128 out[C::kWidth]) const {
        alignas(32) Block word[C::kWidth], half[C::kWidth];
        C::store(word, wrapped);
        C::store(half, upper);
        for (int l = 0; l < C::kWidth; ++l) out[l] = exact(word[l].lo, half[l].lo) + (u128(word[l].hi) << 64);
    }

private:
    static u128 exact(uint64_t sum, uint64_t upper_sum) {
        return (u128(upper_sum) << 32) + static_cast<uint64_t>(sum - (upper_sum << 32));
    }
};

template <int Limbs>
static inline u128 load_element(const uint64_t* p) {
    if constexpr (Limbs == 1)
        return *p;
    else
        return load128(p);
}

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

    // Starts loading two lines per lane, at these distances from its key. The keys of a batch are too many streams for
    // the processor to see where each is going.
    void prefetch(size_t first, size_t second) const {
        for (const uint8_t* p : key) {
            __builtin_prefetch(p + first, 0, 2);
            __builtin_prefetch(p + second, 0, 2);
        }
    }
};

}  // namespace
}  // namespace ppca
