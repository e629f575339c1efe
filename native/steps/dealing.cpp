// First step of a gate: a dealer masks its shares, the evaluators add theirs (ppca/protocol/gates.py, signs.py).
//
// Each step is one call: for a small batch the calls cost more than the arithmetic.
#include <algorithm>

#include "bind/calls.hpp"
#include "ring/packing.hpp"

namespace {

using namespace ppca;

constexpr size_t kPackedElements = kStepElements / 4;  // masked and packed in about 100 microseconds

// A ring array read as 128-bit integers, for any number of limbs.
class Shares {
public:
    explicit Shares(nb::handle shares) : words_(shares, "shares"), limbs_(size_t(limbs_of(words_))) {}
    size_t count() const { return words_.size() / limbs_; }
    u128 operator[](size_t i) const {
        const uint64_t* at = words_.data() + limbs_ * i;
        return limbs_ == 1 ? u128(at[0]) : u128(at[1]) << 64 | at[0];
    }

private:
    Words words_;
    size_t limbs_;
};

// The dealer's masks alpha < 2^bits and the seeds of its keys, from two streams of its private key; and share + alpha
// mod 2^bits, packed.
void deal_masks(nb::handle alpha_, nb::handle seeds_, nb::handle opened_, nb::handle shares_, const Key& key,
                uint64_t op, int bits) {
    const Words alpha(alpha_, "alpha", Access::write), seeds(seeds_, "seeds", Access::write);
    const Bytes opened(opened_, "opened", Access::write);
    const Shares shares(shares_);
    require_bits(bits);
    const size_t n = shares.count();
    alpha.require_size(2 * n);
    seeds.require_size(4 * n);
    opened.require_size(packed_size(n, bits));
    fill(alpha.data(), 2 * n, key, op, 0);
    fill(seeds.data(), 4 * n, key, op, 1);
    ReleaseGil gil(2 * n > kGilWords);
    Z128* masks = reinterpret_cast<Z128*>(alpha.data());
    constexpr size_t kChunk = 64;  // their packed size is whole bytes for any number of bits
    parallel_for(n, kPackedElements, [&](size_t begin, size_t end) {
        for (size_t at = begin; at < end; at += kChunk) {
            const size_t count = std::min(kChunk, end - at);
            Z128 sums[kChunk];
            for (size_t i = 0; i < count; ++i) {
                masks[at + i] = low_bits<Z128>(masks[at + i], bits);
                sums[i] = masks[at + i] + shares[at + i];
            }
            pack(opened.data() + packed_size(at, bits), sums, count, bits);
        }
    });
}

// The evaluators' m = opened + share + offset mod 2^bits. The opened sums arrive packed, from two dealers one after the
// other.
void masked_points(nb::handle m_, nb::handle first_, nb::handle second_, size_t firsts, nb::handle shares_,
                   uint64_t low, uint64_t high, int bits) {
    const Words m(m_, "m", Access::write);
    const Shares shares(shares_);
    require_bits(bits);
    const size_t n = shares.count();
    m.require_size(2 * n);
    if (firsts > n) fail("the first dealer's elements are more than all");
    const Received first(first_, "first", packed_size(firsts, bits)),
        second(second_, "second", packed_size(n - firsts, bits));
    ReleaseGil gil(2 * n > kGilWords);
    const u128 offset = u128(high) << 64 | low;
    const auto of_dealer = [&](const uint8_t* sums, size_t start, size_t count) {
        Z128* points = reinterpret_cast<Z128*>(m.data()) + start;
        parallel_for(count, kStepElements / 2, [&](size_t begin, size_t end) {
            unpack(points + begin, sums + packed_size(begin, bits), end - begin, bits);
            for (size_t i = begin; i < end; ++i)
                points[i] = low_bits<Z128>(points[i] + shares[start + i] + offset, bits);
        });
    };
    of_dealer(first.data(), 0, firsts);
    of_dealer(second.data(), firsts, n - firsts);
}

}  // namespace

void register_dealing(nanobind::module_& m) {
    m.def("deal_masks", &deal_masks,
          nb::sig("def deal_masks(alpha: Words, seeds: Words, opened: Bytes, shares: Words, key: Key, op: int, "
                  "bits: int, /) -> None"),
          "alpha = stream (op, 0) mod 2^bits, seeds = stream (op, 1), opened = packed (shares + alpha mod 2^bits).");
    m.def("masked_points", &masked_points,
          nb::sig("def masked_points(m: Words, first: Buffer, second: Buffer, firsts: int, shares: Words, "
                  "low: int, high: int, bits: int, /) -> None"),
          "m = unpacked (first, second) + shares + offset mod 2^bits; `firsts` elements come from `first`.");
}
