// Resharing: additive parts held by the servers of one row become shares of both rows (ppca/protocol/reshare.py).
#include <cstring>
#include <memory>

#include "bind/calls.hpp"

namespace {

using namespace ppca;

// Locations of the elements from `start` on in both splits of `data`, of shape (2, n, ..., limbs).
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
        parallel_for(n, kStepElements, [=](size_t begin, size_t end) {
            if (minus)
                for (size_t i = begin; i < end; ++i) to[i] = x[i].value - y[i].value;
            else
                for (size_t i = begin; i < end; ++i) to[i] = x[i].value + y[i].value;
        });
    };
    with_ring(limbs, loop);
}

// Reshares `pieces`: writes both shares to `data` from `start` on, and the message for the other row: (column share,
// part minus its mask). The masks mu, n0, n1 are one stream of the row's key.
void reshare_out(nb::handle data_, size_t start, nb::handle message_, nb::handle pieces_, const Key& key, uint64_t op,
                 int column) {
    const Words data(data_, "data", Access::write), message(message_, "message", Access::write),
        pieces(pieces_, "pieces");
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

// The receiving side of reshare_out: shares of `elements` elements from `start` on, which the other row reshared, from
// the messages of the column mate (column share, half of the row share) and of the diagonal (the other half).
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

void register_resharing(nanobind::module_& m) {
    m.def("reshare_out", &reshare_out,
          nb::sig("def reshare_out(data: Words, start: int, message: Words, pieces: Words, key: Key, op: int, "
                  "column: int, /) -> None"),
          "With mu, n0, n1 = stream (op, 0): row share n0 + n1, column share pieces +- mu, "
          "message (column share, pieces - n).");
    m.def("reshare_in", &reshare_in,
          nb::sig("def reshare_in(data: Words, start: int, elements: int, mate: Buffer, diagonal: Buffer, /) -> None"),
          "The shares that belong to the messages of reshare_out.");
}
