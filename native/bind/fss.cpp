// Python bindings of the stream and FSS kernels: argument checks, threads and the GIL.
//
// The schemes are described in fss/tree.hpp. Outputs come first and are allocated by the caller; arguments are
// positional. Integers of up to 128 bits (alpha, points, m, thresholds) are pairs of uint64, low word first, taken mod
// 2^bits. Key arrays are uint8 with key_size bytes per key.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "bind/calls.hpp"

namespace {

using namespace ppca;

TreeShape dcf_shape(int bits, int limbs) {
    require_bits(bits);
    if (limbs != 1 && limbs != 2) fail("limbs is " + std::to_string(limbs) + ", expected 1 or 2");
    return TreeShape::dcf(bits, limbs);
}

TreeShape dpf_shape(int bits, int limbs) {
    dcf_shape(bits, limbs);
    return TreeShape::dpf(bits, limbs);
}

// `levels` is (first, stride): prefixes of first, first + stride, ... bits, the last of them all bits.
using PrefixLevels = std::pair<int, int>;

TreeShape prefix_shape(int bits, int limbs, PrefixLevels levels, int value_bytes) {
    dcf_shape(bits, limbs);
    const auto [first, stride] = levels;
    if (first < 1 || first > bits || stride < 1 || (bits - first) % stride != 0)
        fail("levels from " + std::to_string(first) + " in steps of " + std::to_string(stride) + " do not end at " +
             std::to_string(bits));
    if (value_bytes < 1 || value_bytes > 8 * limbs || (limbs == 1 && value_bytes != 8))
        fail("value_bytes is " + std::to_string(value_bytes) + ", expected 1 to 16, or 8 where limbs is 1");
    return TreeShape::prefixes(bits, limbs, first, stride, value_bytes);
}

void require_party(int party) {
    if (party != 0 && party != 1) fail("party is " + std::to_string(party) + ", expected 0 or 1");
}

// The number of keys in an array of whole keys.
size_t count_keys(const Bytes& keys, const TreeShape& shape) {
    const size_t size = shape.key_size();
    if (keys.size() % size != 0)
        fail(std::string(keys.name()) + " has " + std::to_string(keys.size()) +
             " bytes, expected a multiple of the key size " + std::to_string(size));
    return keys.size() / size;
}

// ------------------------------------------------------------------------------------------------------- streams

void aes_blocks_py(nb::handle out_, const Key& key, nb::handle in_) {
    const Bytes out(out_, "out", Access::write), in(in_, "in");
    if (in.size() % 16 != 0) fail("in has " + std::to_string(in.size()) + " bytes, expected a multiple of 16");
    out.require_size(in.size());
    fss().aes_blocks(key.schedule, out.data(), in.data(), in.size() / 16);
}

void prg_py(nb::handle out_, const Key& key, uint64_t op, uint64_t purpose) {
    const Words out(out_, "out", Access::write);
    if (purpose >> 16) fail("purpose is " + std::to_string(purpose) + ", expected less than 65536");
    fill(out.data(), out.size(), key, op, purpose);
}

// ---------------------------------------------------------------------------------------------------- generation

void generate_py(const TreeKeyPair& tree, const TreeShape& shape, nb::handle key0_, nb::handle key1_, nb::handle alpha_,
                 nb::handle seeds_) {
    const Bytes key0(key0_, "key0", Access::write), key1(key1_, "key1", Access::write);
    const Words alpha(alpha_, "alpha"), seeds(seeds_, "seeds");
    const size_t count = count_keys(key0, shape);
    key1.require_size(key0.size());
    alpha.require_size(2 * count);
    seeds.require_size(4 * count);
    const GenCall call{tree, shape, key0.data(), key1.data(), alpha.data(), seeds.data()};
    run(count, 2 * (shape.seeds + shape.values),
        [&, generate = fss().generate](size_t begin, size_t end) { generate(call, begin, end); });
}

void dcf_gen_py(nb::handle key0, nb::handle key1, const TreeKeyPair& tree, nb::handle alpha, int bits, int limbs,
                nb::handle seeds) {
    generate_py(tree, dcf_shape(bits, limbs), key0, key1, alpha, seeds);
}

void dpf_gen_py(nb::handle key0, nb::handle key1, const TreeKeyPair& tree, nb::handle alpha, int bits, int limbs,
                nb::handle seeds) {
    generate_py(tree, dpf_shape(bits, limbs), key0, key1, alpha, seeds);
}

void prefix_gen_py(nb::handle key0, nb::handle key1, const TreeKeyPair& tree, nb::handle alpha, int bits, int limbs,
                   PrefixLevels levels, int value_bytes, nb::handle seeds) {
    generate_py(tree, prefix_shape(bits, limbs, levels, value_bytes), key0, key1, alpha, seeds);
}

// ---------------------------------------------------------------------------------------------------- evaluation

void eval_py(const TreeKeyPair& tree, const TreeShape& shape, const Words& out, int party, nb::handle keys_,
             nb::handle points_) {
    const Bytes keys(keys_, "keys");
    const Words points(points_, "points");
    require_party(party);
    const size_t count = count_keys(keys, shape), pairs = points.size() / 2;
    if (points.size() % 2 != 0 || (count ? pairs % count != 0 : pairs != 0))
        fail("points has " + std::to_string(points.size()) + " uint64 items, expected a multiple of 2 for each of " +
             std::to_string(count) + " keys");
    out.require_size(pairs * size_t(shape.limbs));
    if (pairs == 0) return;
    const EvalCall call{tree, shape, party, out.data(), keys.data(), points.data(), pairs / count};
    const auto eval = shape.comparison ? fss().dcf_eval : fss().dpf_eval;
    run(pairs, shape.seeds + 0.5 * shape.values, [&](size_t begin, size_t end) { eval(call, begin, end); });
}

void dcf_eval_py(nb::handle out_, const TreeKeyPair& tree, int party, nb::handle keys, nb::handle points, int bits) {
    const Words out(out_, "out", Access::write);
    eval_py(tree, dcf_shape(bits, limbs_of(out)), out, party, keys, points);
}

void dpf_eval_py(nb::handle out_, const TreeKeyPair& tree, int party, nb::handle keys, nb::handle points, int bits) {
    const Words out(out_, "out", Access::write);
    eval_py(tree, dpf_shape(bits, limbs_of(out)), out, party, keys, points);
}

// The number of outputs per key of weighted sums of bits: out is (keys, outputs, limbs), weights are (bits,
// outputs, limbs).
size_t count_outputs(const Words& out, const Words& weights, size_t keys, size_t bits, int limbs) {
    const size_t outputs = keys ? out.size() / (keys * size_t(limbs)) : 0;
    out.require_size(keys * outputs * size_t(limbs));
    if (keys) weights.require_size(bits * outputs * size_t(limbs));
    return outputs;
}

void classify_sums_py(nb::handle out_, const TreeKeyPair& tree, int party, nb::handle keys_, nb::handle m_,
                      nb::handle thresholds_, int bits, nb::handle weights_) {
    const Words out(out_, "out", Access::write), m(m_, "m"), thresholds(thresholds_, "thresholds");
    const Words weights(weights_, "weights");
    const Bytes keys(keys_, "keys");
    const TreeShape shape = dcf_shape(bits, limbs_of(out));
    require_party(party);
    const size_t count = count_keys(keys, shape), per_key = thresholds.size() / 2;
    m.require_size(2 * count);
    if (thresholds.size() % 2 != 0) fail("thresholds has an odd number of uint64 items, expected pairs");
    for (size_t j = 0; j < per_key; ++j) {
        const uint64_t low = thresholds.data()[2 * j], high = thresholds.data()[2 * j + 1];
        if ((bits < 128 && bits >= 64 && high >> (bits - 64)) || (bits < 64 && (high || low >> bits)))
            fail("threshold " + std::to_string(j) + " is not below 2^" + std::to_string(bits));
    }
    const size_t outputs = count_outputs(out, weights, count, per_key, shape.limbs);
    if (out.size() == 0) return;
    const ClassifyCall call{tree,    shape,          party,  out.data(), keys.data(), m.data(), thresholds.data(),
                            per_key, weights.data(), outputs};
    run(count, double(per_key + 1) * bits,
        [&, classify = fss().classify_sums](size_t begin, size_t end) { classify(call, begin, end); });
}

void prefix_sums_py(nb::handle out_, const TreeKeyPair& tree, int party, nb::handle keys_, nb::handle m_, int bits,
                    PrefixLevels levels, int value_bytes, int first_k, int width, bool mirrored, nb::handle weights_) {
    const Words out(out_, "out", Access::write), m(m_, "m"), weights(weights_, "weights");
    const Bytes keys(keys_, "keys");
    const TreeShape shape = prefix_shape(bits, limbs_of(out), levels, value_bytes);
    require_party(party);
    if (first_k < 0 || width < 0 || first_k > kMaxNodes || width > kMaxNodes || first_k + width > kMaxNodes)
        fail("first_k is " + std::to_string(first_k) + " and width is " + std::to_string(width) +
             ", expected not negative and at most " + std::to_string(kMaxNodes) + " together");
    const size_t count = count_keys(keys, shape);
    m.require_size(2 * count);
    const size_t outputs = count_outputs(out, weights, count, size_t(shape.values) * size_t(width), shape.limbs);
    if (out.size() == 0) return;
    const PrefixCall call{tree,    shape, party,    out.data(),     keys.data(), m.data(),
                          first_k, width, mirrored, weights.data(), outputs};
    run(count, (0.5 * bits + shape.values) * (first_k + width),
        [&, prefix = fss().prefix_sums](size_t begin, size_t end) { prefix(call, begin, end); });
}

// ---------------------------------------------------------------------------------------------------------- signs

// Bytes of the correction words of this number of keys; those of the last level are in the roots.
size_t sign_words(size_t keys, int bits) { return bits > 2 ? 16 * keys * size_t(bits - 2) : 0; }

void sign_gen_py(nb::handle roots0_, nb::handle roots1_, nb::handle words_, const TreeKeyPair& tree, nb::handle alpha_,
                 int bits, nb::handle seeds_) {
    const Bytes roots0(roots0_, "roots0", Access::write), roots1(roots1_, "roots1", Access::write);
    const Bytes words(words_, "words", Access::write);
    const Words alpha(alpha_, "alpha"), seeds(seeds_, "seeds");
    require_bits(bits);
    const size_t keys = alpha.size() / 2;
    roots0.require_size(16 * keys);
    roots1.require_size(16 * keys);
    words.require_size(sign_words(keys, bits));
    alpha.require_size(2 * keys);
    seeds.require_size(4 * keys);
    const SignGenCall call{tree, bits, keys, {roots0.data(), roots1.data()}, words.data(), alpha.data(), seeds.data()};
    run(keys, 2 * bits, [&, generate = fss().sign_gen](size_t begin, size_t end) { generate(call, begin, end); });
}

// The keys of two dealers, one after the other.
void sign_eval_py(nb::handle out_, const TreeKeyPair& tree, int party, nb::handle roots_, nb::handle words_,
                  nb::handle more_roots_, nb::handle more_words_, nb::handle m_, int bits) {
    const Bytes out(out_, "out", Access::write);
    const Words m(m_, "m");
    require_bits(bits);
    require_party(party);
    const size_t all = m.size() / 2;
    m.require_size(2 * all);
    out.require_size((all + 7) / 8);
    const std::unique_ptr<uint8_t[]> bit(new uint8_t[all]);
    size_t first = 0;
    for (const auto& [roots_given, words_given] : {std::pair(roots_, words_), std::pair(more_roots_, more_words_)}) {
        const Bytes roots(roots_given, "roots"), words(words_given, "words");
        const size_t keys = roots.size() / 16;
        if (roots.size() % 16 || keys > all - first) fail("roots has " + std::to_string(roots.size()) + " bytes");
        words.require_size(sign_words(keys, bits));
        const SignEvalCall call{
            tree, bits, party, keys, bit.get() + first, roots.data(), words.data(), m.data() + 2 * first};
        run(keys, bits, [&, eval = fss().sign_eval](size_t begin, size_t end) { eval(call, begin, end); });
        first += keys;
    }
    if (first != all) fail("there are " + std::to_string(first) + " roots for " + std::to_string(all) + " points");
    for (size_t i = 0; i < out.size(); ++i) {
        uint8_t byte = 0;
        for (size_t j = 8 * i; j < all && j < 8 * i + 8; ++j) byte |= uint8_t(bit[j] << (j % 8));
        out.data()[i] = byte;
    }
}

}  // namespace

void register_fss(nanobind::module_& m) {
    nb::class_<Key>(m, "Key", "An AES-128 key of 16 bytes, expanded once.")
        .def(nb::init<nb::bytes>(), nb::sig("def __init__(self, key: bytes, /) -> None"));

    nb::class_<TreeKeyPair>(m, "TreeKey", "The public keys of a run's FSS trees, from 32 bytes, expanded once.")
        .def(nb::init<nb::bytes>(), nb::sig("def __init__(self, keys: bytes, /) -> None"));

    m.def("aes_blocks", &aes_blocks_py, nb::sig("def aes_blocks(out: Bytes, key: Key, blocks: Bytes, /) -> None"),
          "AES-128 of every 16-byte block (ECB, for tests).");
    m.def("prg", &prg_py, nb::sig("def prg(out: Words, key: Key, op: int, purpose: int, /) -> None"),
          "Fills out with the stream (op, purpose) of the key; block i is AES(le64(op) || le64("
          "purpose << 48 | i)).");
    m.def(
        "dcf_key_size", [](int bits, int limbs) { return dcf_shape(bits, limbs).key_size(); },
        nb::sig("def dcf_key_size(bits: int, limbs: int, /) -> int"), "Bytes of one DCF key.");
    m.def(
        "dcf_gen", &dcf_gen_py,
        nb::sig(
            "def dcf_gen(key0: Bytes, key1: Bytes, tree: TreeKey, alpha: Words, bits: int, limbs: int, seeds: Words, /) -> None"),
        "Keys of [y < alpha]; seeds are 4 random words per key.");
    m.def("dcf_eval", &dcf_eval_py,
          nb::sig(
              "def dcf_eval(out: Words, tree: TreeKey, party: int, keys: Buffer, points: Words, bits: int, /) -> None"),
          "Share of [point < alpha].");
    m.def("classify_sums", &classify_sums_py,
          nb::sig("def classify_sums(out: Words, tree: TreeKey, party: int, keys: Buffer, m: Words, thresholds: Words, "
                  "bits: int, weights: Words, /) -> None"),
          "Share of the sum over the thresholds t of [x < t] times its weights, for x = m - alpha mod 2^bits: out is "
          "(n, outputs, limbs), weights is (thresholds, outputs, limbs). Cheapest when neighbouring thresholds are "
          "close.");

    m.def(
        "dpf_key_size", [](int bits, int limbs) { return dpf_shape(bits, limbs).key_size(); },
        nb::sig("def dpf_key_size(bits: int, limbs: int, /) -> int"), "Bytes of one DPF key.");
    m.def("dpf_gen", &dpf_gen_py,
          nb::sig(
              "def dpf_gen(key0: Bytes, key1: Bytes, tree: TreeKey, alpha: Words, bits: int, limbs: int, seeds: Words, "
              "/) -> None"),
          "Keys of [y == alpha].");
    m.def("dpf_eval", &dpf_eval_py,
          nb::sig(
              "def dpf_eval(out: Words, tree: TreeKey, party: int, keys: Buffer, points: Words, bits: int, /) -> None"),
          "Share of [point == alpha].");
    m.def(
        "prefix_key_size",
        [](int bits, int limbs, PrefixLevels levels, int value_bytes) {
            return prefix_shape(bits, limbs, levels, value_bytes).key_size();
        },
        nb::sig("def prefix_key_size(bits: int, limbs: int, levels: tuple[int, int], value_bytes: int, /) -> int"),
        "Bytes of one incremental key.");
    m.def(
        "prefix_gen", &prefix_gen_py,
        nb::sig("def prefix_gen(key0: Bytes, key1: Bytes, tree: TreeKey, alpha: Words, bits: int, limbs: int, "
                "levels: tuple[int, int], value_bytes: int, seeds: Words, /) -> None"),
        "Keys of [y == first i bits of alpha] for every i of levels = (first, stride), shares mod 2^(8 value_bytes).");
    m.def(
        "prefix_sums", &prefix_sums_py,
        nb::sig("def prefix_sums(out: Words, tree: TreeKey, party: int, keys: Buffer, m: Words, bits: int, "
                "levels: tuple[int, int], value_bytes: int, first_k: int, width: int, mirrored: bool, "
                "weights: Words, /) -> None"),
        "Share of the sum of [(m >> g) - (alpha >> g) mod 2^i <= k] times its weights, over prefixes of i = bits - g "
        "bits and k = first_k .. first_k + width - 1: out is (n, outputs, limbs), weights is (levels, width, outputs, "
        "limbs). Mirrored: of [(alpha >> g) - (m >> g) mod 2^i <= k], and where i = bits of 1 <= ... <= k. Shares are "
        "right mod 2^(8 value_bytes).");

    m.def("sign_words", &sign_words, nb::sig("def sign_words(keys: int, bits: int, /) -> int"),
          "Bytes of the correction words of this number of keys.");
    m.def("sign_gen", &sign_gen_py,
          nb::sig("def sign_gen(roots0: Bytes, roots1: Bytes, words: Bytes, tree: TreeKey, alpha: Words, bits: int, "
                  "seeds: Words, /) -> None"),
          "Keys of the top bit of m - alpha mod 2^bits; roots are 16 bytes per key and evaluator, "
          "seeds are 4 random words per key.");
    m.def("sign_eval", &sign_eval_py,
          nb::sig(
              "def sign_eval(out: Bytes, tree: TreeKey, party: int, roots: Buffer, words: Buffer, more_roots: Buffer, "
              "more_words: Buffer, m: Words, bits: int, /) -> None"),
          "Packed exclusive-or shares of the top bits, from the keys of two dealers in turn.");

    m.def(
        "fss_levels", [] { return fss_levels.names(); }, nb::sig("def fss_levels() -> list[str]"),
        "Instruction-set levels of the AES / FSS kernels that run here, best first.");
    m.def(
        "force_fss",
        [](const std::string& level) {
            if (!fss_levels.force(level)) fail("no FSS level '" + level + "' on this machine");
        },
        nb::sig("def force_fss(level: str, /) -> None"), "Pins a level, 'auto' returns to the best one.");
}
