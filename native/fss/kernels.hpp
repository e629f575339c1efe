// The table of kernels that every instruction-set level fills in, and the layout of FSS keys.
#pragma once

#include "fss/aes.hpp"

namespace ppca {

constexpr int kMaxNodes = 64;  // widest window of prefix_sums

// Layout of a key of an FSS tree: the root seed, then `seeds` correction words of 16 bytes (one per level down), then
// `values` payload correction words of `value_bytes` for the nodes of depth first_value, first_value + stride, ...
//
// Payloads are correct modulo 2^(8 value_bytes). In keys of prefixes they come before the seeds: a word of fewer than
// 16 bytes is read as 16, into what follows it. Only the root differs between the two parties. The members are always
// inlined because files compiled for different instruction sets share them: an out-of-line copy could be the one of the
// widest set.
struct TreeShape {
    int bits, limbs, seeds, first_value, stride, values, value_bytes;
    bool values_first;
    bool comparison;  // payload at depth d is bit d of alpha (from the top) instead of 1

    [[gnu::always_inline]] static TreeShape dcf(int bits, int limbs) {
        return {bits, limbs, bits - 1, 0, 1, bits, 8 * limbs, false, true};
    }
    [[gnu::always_inline]] static TreeShape dpf(int bits, int limbs) {
        return {bits, limbs, bits, bits, 1, 1, 8 * limbs, false, false};
    }
    [[gnu::always_inline]] static TreeShape prefixes(int bits, int limbs, int first, int stride, int value_bytes) {
        return {bits, limbs, bits, first, stride, (bits - first) / stride + 1, value_bytes, true, false};
    }

    [[gnu::always_inline]] bool has_value(int depth) const {
        return depth >= first_value && (depth - first_value) % stride == 0;
    }
    [[gnu::always_inline]] int depths() const { return first_value + stride * (values - 1) + 1; }
    [[gnu::always_inline]] size_t value_at(int depth) const {
        return 16 + (values_first ? 0 : 16 * size_t(seeds)) +
               size_t(value_bytes) * size_t((depth - first_value) / stride);
    }
    [[gnu::always_inline]] size_t seed_at(int depth) const {
        return 16 + (values_first ? size_t(value_bytes) * size_t(values) : 0) + 16 * size_t(depth);
    }
    [[gnu::always_inline]] size_t key_size() const {
        return 16 + 16 * size_t(seeds) + size_t(value_bytes) * size_t(values);
    }
};

// The two AES keys behind the permutations P and P' of FSS trees (tree.hpp), expanded. They are public: the servers of
// a run agree on them at its start, and another run has others.
struct TreeKey {
    Schedule tree, payload;
};

struct MaskCall {
    uint64_t *out_a, *out_b;
    const uint64_t *x, *y;
    const Schedule *key_a, *key_b;
    uint64_t op;
    bool minus_a, minus_b;
};

// Arrays of 128-bit integers (alpha, points, m, thresholds) are pairs of 64-bit words, low first, and are reduced mod
// 2^bits.
struct GenCall {
    const TreeKey& tree;
    TreeShape shape;
    uint8_t *key0, *key1;
    const uint64_t *alpha, *seeds;
};

struct EvalCall {
    const TreeKey& tree;
    TreeShape shape;
    int party;
    uint64_t* out;
    const uint8_t* keys;
    const uint64_t* points;  // (n, per_key, 2)
    size_t per_key;
};

struct ClassifyCall {
    const TreeKey& tree;
    TreeShape shape;
    int party;
    uint64_t* out;
    const uint8_t* keys;
    const uint64_t *m, *thresholds;
    size_t count;             // thresholds
    const uint64_t* weights;  // (thresholds, outputs, limbs)
    size_t outputs;
};

struct PrefixCall {
    const TreeKey& tree;
    TreeShape shape;
    int party;
    uint64_t* out;
    const uint8_t* keys;
    const uint64_t* m;
    int first_k, width;
    bool mirrored;
    const uint64_t* weights;  // (values, width, outputs, limbs)
    size_t outputs;
};

// Keys for the sign of m - alpha mod 2^bits (sign.hpp): a root per evaluator, and `bits - 2` words per key for both.
struct SignGenCall {
    const TreeKey& tree;
    int bits;
    size_t keys;
    uint8_t *roots[2], *words;
    const uint64_t *alpha, *seeds;
};

struct SignEvalCall {
    const TreeKey& tree;
    int bits, party;
    size_t keys;
    uint8_t* out;  // one byte per key, 0 or 1
    const uint8_t *roots, *words;
    const uint64_t* m;
};

// Ranges [begin, end): 64-bit words for prg, elements for mask2, keys for the others (key, point pairs for the evals).
// prg and mask2 need an even first word.
struct FssKernels {
    const char* name;
    void (*aes_blocks)(const Schedule&, uint8_t* out, const uint8_t* in, size_t count);
    void (*prg)(const Schedule&, uint64_t op, uint64_t purpose, uint64_t* out, size_t begin, size_t end);
    void (*mask2)(const MaskCall&, int limbs, size_t begin, size_t end);
    void (*generate)(const GenCall&, size_t begin, size_t end);
    void (*dcf_eval)(const EvalCall&, size_t begin, size_t end);
    void (*classify_sums)(const ClassifyCall&, size_t begin, size_t end);
    void (*dpf_eval)(const EvalCall&, size_t begin, size_t end);
    void (*prefix_sums)(const PrefixCall&, size_t begin, size_t end);
    void (*sign_gen)(const SignGenCall&, size_t begin, size_t end);
    void (*sign_eval)(const SignEvalCall&, size_t begin, size_t end);
};

extern const FssKernels portable_fss;
#if defined(__x86_64__)
extern const FssKernels aesni_fss;
extern const FssKernels vaes_fss;
#endif

}  // namespace ppca
