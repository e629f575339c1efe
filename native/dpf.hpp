// Evaluation of distributed point functions: shares of [y == alpha], and of the bits [(m - alpha) >> g <= k] at every
// granularity g from an incremental key. See fss_tree.hpp for the scheme.
#pragma once

#include "fss_tree.hpp"

namespace ppca {
namespace {

template <class C, int Limbs>
void dpf_eval_limbs(const EvalCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const typename C::Context& context = fixed_context<C>();
    const int bits = call.shape.bits;
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, call.shape.key_size(), at, end, call.per_key);
        Paths<C> paths;
        for (size_t l = 0; l < kG; ++l) {
            const size_t index = at + l < end ? at + l : end - 1;
            paths.set(int(l), align_top(load128(call.points + 2 * index), bits));
        }
        Nodes<C> nodes;
        nodes.root(keys.key, call.party);
        PathReader<C> reader(paths);
        for (int depth = 0; depth < bits; ++depth) {
            reader.go_to(depth);
            nodes.descend(
                context, nodes, [&](int r) INLINE_LAMBDA { return reader.bit(r); }, keys.key,
                call.shape.seed_at(depth));
        }
        u128 share[kG];
        const size_t value_at = call.shape.value_at(bits);
        nodes.payloads(
            context, [&](int r) INLINE_LAMBDA { return Sum<C, Limbs>::gather(keys.key + r * C::kWidth, value_at); },
            [&](int r, typename C::Vec value) INLINE_LAMBDA {
                Sum<C, Limbs> sum;
                sum.clear();
                sum.add(value);
                sum.read(share + r * C::kWidth);
            });
        for (size_t l = 0; l < kG && at + l < end; ++l)
            store_share<Limbs>(call.out + Limbs * (at + l), share[l], call.party);
    }
}

template <class C>
void dpf_eval(const EvalCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1)
        dpf_eval_limbs<C, 1>(call, begin, end);
    else
        dpf_eval_limbs<C, 2>(call, begin, end);
}

// The nodes mt - a, a = 0 .. A - 1, of level i, one key per lane.
//
// With b the last bit of mt, node a of this level is the child b ^ (a & 1) of node (a + 1 - b) >> 1 of the level above:
// for even a that is a / 2, for odd a it is (a - 1) / 2 or (a + 1) / 2 as b is 1 or 0 (selected without a branch).
// Parents never lie above their children's index, so the window is updated in place from the far end.
template <class C>
struct PrefixWindow {
    using Vec = typename C::Vec;
    const typename C::Context& context = fixed_context<C>();
    Nodes<C> node[kMaxNodes];

    void descend(const PathReader<C>& reader, const uint8_t* const* keys, size_t at, int count) {
        for (int a = count - 1; a >= 0; --a) {
            const Nodes<C>&near = node[a >> 1], &far = node[(a + 1) >> 1];
            if (a & 1) {
                for (int r = 0; r < C::kBatch; ++r) {
                    const Vec bit = reader.bit(r);
                    node[a].seed[r] = select(bit, near.seed[r], far.seed[r]);
                    node[a].control[r] = select(bit, near.control[r], far.control[r]);
                }
                const auto other = [&](int r) INLINE_LAMBDA { return C::bit_xor(reader.bit(r), C::all_ones()); };
                node[a].descend(context, node[a], other, keys, at);
            } else {
                node[a].descend(context, near, [&](int r) INLINE_LAMBDA { return reader.bit(r); }, keys, at);
            }
        }
    }

private:
    static Vec select(Vec mask, Vec a, Vec b) { return C::bit_xor(C::bit_and(mask, a), C::and_not(mask, b)); }
};

template <class C, int Limbs>
void prefix_limbs(const PrefixCall& call, size_t begin, size_t end) {
    constexpr size_t kG = size_t(kLanes<C>);
    const int bits = call.shape.bits, count = call.first_k + call.width;
    const int last_level = call.first_level + call.levels - 1;
    PrefixWindow<C> window;
    for (size_t at = begin; at < end; at += kG) {
        const KeyLanes<C> keys(call.keys, call.shape.key_size(), at, end, 1);
        Paths<C> paths;
        for (size_t l = 0; l < kG; ++l) {
            const size_t index = at + l < end ? at + l : end - 1;
            paths.set(int(l), align_top(load128(call.m + 2 * index), bits));
        }
        window.node[0].root(keys.key, call.party);
        for (int a = 1; a < count; ++a) window.node[a] = window.node[0];
        PathReader<C> reader(paths);
        for (int level = 1; level <= last_level; ++level) {
            reader.go_to(level - 1);
            window.descend(reader, keys.key, call.shape.seed_at(level - 1), count);
            if (level < call.first_level) continue;

            Sum<C, Limbs> sum[C::kBatch];
            typename C::Vec word[C::kBatch];
            for (int r = 0; r < C::kBatch; ++r) {
                sum[r].clear();
                word[r] = Sum<C, Limbs>::gather(keys.key + r * C::kWidth, call.shape.value_at(level));
            }
            for (int a = 0; a < count; ++a) {
                // On the first levels the window is wider than the level: a node met again is not counted again.
                if (level >= 7 || a < (1 << level)) {
                    window.node[a].payloads(
                        window.context, [&](int r) INLINE_LAMBDA { return word[r]; },
                        [&](int r, typename C::Vec value) INLINE_LAMBDA { sum[r].add(value); });
                }
                if (a < call.first_k) continue;
                u128 share[kG];
                for (int r = 0; r < C::kBatch; ++r) sum[r].read(share + r * C::kWidth);
                const size_t row = size_t(level - call.first_level), column = size_t(a - call.first_k);
                for (size_t l = 0; l < kG && at + l < end; ++l) {
                    const size_t index = ((at + l) * size_t(call.levels) + row) * size_t(call.width) + column;
                    store_share<Limbs>(call.out + Limbs * index, share[l], call.party);
                }
            }
        }
    }
}

template <class C>
void prefix_bits(const PrefixCall& call, size_t begin, size_t end) {
    if (call.shape.limbs == 1)
        prefix_limbs<C, 1>(call, begin, end);
    else
        prefix_limbs<C, 2>(call, begin, end);
}

}  // namespace
}  // namespace ppca
