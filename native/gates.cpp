// What a server does between the messages of a gate (ppca/protocol/gates.py) and of a reshare (ppca/protocol/reshare.py), each in
// one call: for a small batch the calls cost more than the arithmetic.
#include <algorithm>
#include <memory>

#include "bindings.hpp"
#include "registers.hpp"
#include "ring_pack.hpp"

namespace {

using namespace ppca;

// A ring array read as 128-bit integers, whatever its limbs.
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

constexpr size_t kGilWords = 8192;  // a few microseconds of work: below, keep the GIL

void fill(uint64_t* out, size_t words, const Key& key, uint64_t op, uint64_t purpose) {
    run(words, 0.5,
        [&, prg = fss().prg](size_t begin, size_t end) { prg(key.schedule, op, purpose, out, begin, end); });
}

// The dealer's masks alpha < 2^bits and the seeds of its keys, from two streams of its private key; and share + alpha mod 2^bits,
// packed.
void deal_masks(nb::handle alpha_, nb::handle seeds_, nb::handle opened_, nb::handle shares_, const Key& key, uint64_t op,
                int bits) {
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
    for (size_t at = 0; at < n; at += kChunk) {
        const size_t count = std::min(kChunk, n - at);
        Z128 sums[kChunk];
        for (size_t i = 0; i < count; ++i) {
            masks[at + i] = low_bits<Z128>(masks[at + i], bits);
            sums[i] = masks[at + i] + shares[at + i];
        }
        pack(opened.data() + packed_size(at, bits), sums, count, bits);
    }
}

// The evaluators' m = opened + share + offset mod 2^bits. The opened sums come packed, from two dealers in turn.
void masked_points(nb::handle m_, nb::handle first_, nb::handle second_, size_t firsts, nb::handle shares_, uint64_t low,
                   uint64_t high, int bits) {
    const Words m(m_, "m", Access::write);
    const Shares shares(shares_);
    require_bits(bits);
    const size_t n = shares.count();
    m.require_size(2 * n);
    if (firsts > n) fail("the first dealer's elements are more than all");
    const Received first(first_, "first", packed_size(firsts, bits)),
        second(second_, "second", packed_size(n - firsts, bits));
    ReleaseGil gil(2 * n > kGilWords);
    Z128* points = reinterpret_cast<Z128*>(m.data());
    unpack(points, first.data(), firsts, bits);
    unpack(points + firsts, second.data(), n - firsts, bits);
    const u128 offset = u128(high) << 64 | low;
    for (size_t i = 0; i < n; ++i) points[i] = low_bits<Z128>(points[i] + shares[i] + offset, bits);
}

// Where the elements from `start` on lie in both splits of `data`, of shape (2, n, ..., limbs).
struct Splits {
    uint64_t *row, *column;
    Splits(const Words& data, size_t start, size_t words) {
        if (data.ndim() < 3 || data.axis(0) != 2) fail("data must hold two splits: its first axis has the length 2");
        const size_t n = data.axis(1), half = data.size() / 2, first = n ? start * (half / n) : 0;
        if (start > n || first + words > half) fail("the elements do not fit data");
        row = data.data() + first;
        column = row + half;
    }
};

// out = a + b or, with `minus`, a - b, in Z_2^(64 limbs).
void combine(uint64_t* out, const uint64_t* a, const uint64_t* b, size_t words, int limbs, bool minus) {
    const auto loop = [&]<class Z>(Z*) {
        Z* to = reinterpret_cast<Z*>(out);
        const Z *x = reinterpret_cast<const Z*>(a), *y = reinterpret_cast<const Z*>(b);
        const size_t n = words * 8 / sizeof(Z);
        if (minus)
            for (size_t i = 0; i < n; ++i) to[i] = x[i].value - y[i].value;
        else
            for (size_t i = 0; i < n; ++i) to[i] = x[i].value + y[i].value;
    };
    if (limbs == 2) loop(static_cast<Z128*>(nullptr));
    else loop(static_cast<Z64*>(nullptr));
}

// Splits `pieces` anew: both shares go to `data` from `start` on, what the other row needs to `message`: (column share, piece less
// its mask). The masks mu, n0, n1 are one stream of the row's key.
void reshare_out(nb::handle data_, size_t start, nb::handle message_, nb::handle pieces_, const Key& key, uint64_t op,
                 int column) {
    const Words data(data_, "data", Access::write), message(message_, "message", Access::write), pieces(pieces_, "pieces");
    const int limbs = limbs_of(data);
    const size_t words = pieces.size();
    message.require_size(2 * words);
    const Splits own(data, start, words);
    const std::unique_ptr<uint64_t[]> masks(new uint64_t[3 * words]);
    const uint64_t *mu = masks.get(), *n0 = mu + words, *n1 = n0 + words;
    fill(masks.get(), 3 * words, key, op, 0);
    ReleaseGil gil(words > kGilWords);
    combine(own.row, n0, n1, words, limbs, false);
    combine(own.column, pieces.data(), mu, words, limbs, column != 0);
    std::memcpy(message.data(), own.column, 8 * words);
    combine(message.data() + words, pieces.data(), column ? n1 : n0, words, limbs, true);
}

// The other side of reshare_out: shares of what the other row reshared, `elements` of them from `start` on, out of the messages of
// the column mate (column share, half of the row share) and of the diagonal (the other half).
void reshare_in(nb::handle data_, size_t start, size_t elements, nb::handle mate_, nb::handle diagonal_) {
    const Words data(data_, "data", Access::write);
    if (data.ndim() < 3 || data.axis(1) == 0 || elements > data.axis(1)) fail("the elements do not fit data");
    const int limbs = limbs_of(data);
    const size_t words = elements * (data.size() / 2 / data.axis(1));
    const Splits theirs(data, start, words);
    const Received mate(mate_, "mate", 16 * words), diagonal(diagonal_, "diagonal", 8 * words);
    ReleaseGil gil(words > kGilWords);
    std::memcpy(theirs.column, mate.data(), 8 * words);
    std::memcpy(theirs.row, mate.data() + 8 * words, 8 * words);
    combine(theirs.row, theirs.row, reinterpret_cast<const uint64_t*>(diagonal.data()), words, limbs, false);
}

}  // namespace

void register_gates(nanobind::module_& m) {
    m.def("deal_masks", &deal_masks,
          nb::sig("def deal_masks(alpha, seeds, opened, shares, key: Key, op: int, bits: int, /) -> None"),
          "alpha = stream (op, 0) mod 2^bits, seeds = stream (op, 1), opened = packed (shares + alpha mod 2^bits).");
    m.def("masked_points", &masked_points,
          nb::sig("def masked_points(m, first, second, firsts: int, shares, low: int, high: int, bits: int, /) -> None"),
          "m = unpacked (first, second) + shares + offset mod 2^bits; `firsts` elements come from `first`.");
    m.def("reshare_out", &reshare_out,
          nb::sig("def reshare_out(data, start: int, message, pieces, key: Key, op: int, column: int, /) -> None"),
          "With mu, n0, n1 = stream (op, 0): row share n0 + n1, column share pieces +- mu, message (column share, pieces - n).");
    m.def("reshare_in", &reshare_in,
          nb::sig("def reshare_in(data, start: int, elements: int, mate, diagonal, /) -> None"),
          "The shares that belong to the messages of reshare_out.");
}
