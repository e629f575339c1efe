// Shared random bits, and opening of bits masked by them (ppca/protocol/signs.py).
//
// A batch is cut into quarters; in quarter k the server of seat s plays role s ^ k. The columns of roles are numbered
// like those of seats, so `bit` below belongs to the column of the role.
#include <cstring>
#include <memory>

#include "bind/calls.hpp"

namespace {

using namespace ppca;

constexpr size_t kStepBits = kStepElements / 8;  // about 100 microseconds of work: a bit takes a dozen elements

bool bit_at(const uint8_t* bits, size_t i) { return bits[i / 8] >> (i % 8) & 1; }

struct Quarter {
    size_t first, count;
    int role;
    Quarter(size_t n, int k, int seat)
        : first(n * size_t(k) / 4), count(n * size_t(k + 1) / 4 - first), role(seat ^ k) {}
};

constexpr size_t kToDiagonal[4] = {4, 2, 2, 0}, kToMate[4] = {1, 2, 0, 1};  // elements sent per bit, by role
constexpr size_t kRowDraws[4] = {7, 7, 2, 2};  // elements drawn from the row's key: the row share and masks

size_t elements(size_t n, int seat, const size_t (&per_role)[4], int partner) {
    size_t sum = 0;
    for (int k = 0; k < 4; ++k) {
        const Quarter quarter(n, k, seat);
        sum += quarter.count * per_role[quarter.role ^ partner];
    }
    return sum;
}

// Selects b if `second`, otherwise a, without a branch.
template <class V> V choose(bool second, V a, V b) { return a ^ ((a ^ b) & -V(second)); }

template <class Z>
void bits_out_quarter(const Quarter& q, size_t begin, size_t end, const uint8_t* bits, const Z* row_draws,
                      const Z* column_draws, Z* row, Z* column, Z* diagonal, Z* mate) {
    using V = value_of<Z>;
    const size_t n = q.count;
    const Z *row_share = row_draws, *pair_mask = row_draws + n, *single_mask = row_draws + 5 * n;
    for (size_t i = begin; i < end; ++i) {
        const bool bit = bit_at(bits, q.first + i);
        const V own = bit, flipped = !bit;
        switch (q.role) {
            case 0:
                row[i] = row_share[i];
                column[i] = column_draws[i];
                diagonal[i] = own - row_share[i] + pair_mask[i];
                diagonal[n + i] = own - column_draws[i] + pair_mask[n + i];
                diagonal[2 * n + i] = flipped - row_share[i] + pair_mask[2 * n + i];
                diagonal[3 * n + i] = flipped - column_draws[i] + pair_mask[3 * n + i];
                mate[i] = choose<V>(bit, single_mask[i], single_mask[n + i]);
                break;
            case 1:
                row[i] = row_share[i];
                diagonal[i] = own - row_share[i] + single_mask[i];
                diagonal[n + i] = flipped - row_share[i] + single_mask[n + i];
                mate[i] = choose<V>(bit, pair_mask[i], pair_mask[2 * n + i]);
                mate[n + i] = choose<V>(bit, pair_mask[n + i], pair_mask[3 * n + i]);
                break;
            case 2:
                column[i] = column_draws[i];
                diagonal[i] = own - column_draws[i] + row_draws[i];
                diagonal[n + i] = flipped - column_draws[i] + row_draws[n + i];
                break;
            default: mate[i] = choose<V>(bit, row_draws[i], row_draws[n + i]);
        }
    }
}

template <class Z>
void bits_in_quarter(const Quarter& q, size_t begin, size_t end, const uint8_t* bits, const Z* diagonal, const Z* mate,
                     Z* row, Z* column) {
    using V = value_of<Z>;
    const size_t n = q.count;
    for (size_t i = begin; i < end; ++i) {
        const bool bit = bit_at(bits, q.first + i);
        switch (q.role) {
            case 0: break;
            case 1: column[i] = choose<V>(bit, diagonal[i], diagonal[n + i]) - mate[i]; break;
            case 2: row[i] = choose<V>(bit, diagonal[i], diagonal[n + i]) - mate[i]; break;
            default:
                row[i] = choose<V>(bit, diagonal[i], diagonal[2 * n + i]) - mate[i];
                column[i] = choose<V>(bit, diagonal[n + i], diagonal[3 * n + i]) - mate[n + i];
        }
    }
}

// The shape of shares of n bits: (2, n, limbs).
struct BitShares {
    Words words;
    int limbs;
    size_t n;
    explicit BitShares(nb::handle data) : words(data, "data", Access::write), limbs(limbs_of(words)), n(0) {
        if (words.ndim() != 3 || words.axis(0) != 2) fail("data must have the shape (2, n, limbs)");
        n = words.axis(1);
    }
    template <class Z> Z* split(int which) const { return reinterpret_cast<Z*>(words.data()) + size_t(which) * n; }
};

void require_seat(int seat) {
    if (seat < 0 || seat > 3) fail("seat is " + std::to_string(seat) + ", expected 0 to 3");
}

void bits_out(nb::handle data_, nb::handle bits_, nb::handle diagonal_, nb::handle mate_, int seat, const Key& row_key,
              const Key& column_key, uint64_t op) {
    const BitShares data(data_);
    const Bytes bits(bits_, "bits", Access::write);
    const Words diagonal(diagonal_, "diagonal", Access::write), mate(mate_, "mate", Access::write);
    require_seat(seat);
    const size_t n = data.n, limbs = size_t(data.limbs), bit_words = (n + 127) / 128 * 2;
    bits.require_size((n + 7) / 8);
    diagonal.require_size(limbs * elements(n, seat, kToDiagonal, 0));
    mate.require_size(limbs * elements(n, seat, kToMate, 0));
    const size_t row_words = limbs * elements(n, seat, kRowDraws, 0);
    const std::unique_ptr<uint64_t[]> row_draws(new uint64_t[row_words]),
        column_draws(new uint64_t[bit_words + limbs * n]);
    fill(row_draws.get(), row_words, row_key, op, 0);
    fill(column_draws.get(), bit_words + limbs * n, column_key, op, 1);
    std::memcpy(bits.data(), column_draws.get(), bits.size());
    ReleaseGil gil(row_words > kGilWords);
    with_ring(data.limbs, [&]<class Z>(Z*) {
        const Z *rows = reinterpret_cast<Z*>(row_draws.get()),
                *columns = reinterpret_cast<Z*>(column_draws.get() + bit_words);
        Z *to_diagonal = reinterpret_cast<Z*>(diagonal.data()), *to_mate = reinterpret_cast<Z*>(mate.data());
        for (int k = 0; k < 4; ++k) {
            const Quarter q(n, k, seat);
            parallel_for(q.count, kStepBits, [&](size_t begin, size_t end) {
                bits_out_quarter<Z>(q, begin, end, bits.data(), rows, columns + q.first, data.split<Z>(0) + q.first,
                                    data.split<Z>(1) + q.first, to_diagonal, to_mate);
            });
            rows += kRowDraws[q.role] * q.count;
            to_diagonal += kToDiagonal[q.role] * q.count;
            to_mate += kToMate[q.role] * q.count;
        }
    });
}

void bits_in(nb::handle data_, nb::handle bits_, nb::handle diagonal_, nb::handle mate_, int seat) {
    const BitShares data(data_);
    const Bytes bits(bits_, "bits");
    require_seat(seat);
    const size_t n = data.n, size = 8 * size_t(data.limbs);
    bits.require_size((n + 7) / 8);
    const Received diagonal(diagonal_, "diagonal", size * elements(n, seat, kToDiagonal, 3)),
        mate(mate_, "mate", size * elements(n, seat, kToMate, 2));
    ReleaseGil gil(n > kGilWords / 8);
    with_ring(data.limbs, [&]<class Z>(Z*) {
        const Z *from_diagonal = reinterpret_cast<const Z*>(diagonal.data()),
                *from_mate = reinterpret_cast<const Z*>(mate.data());
        for (int k = 0; k < 4; ++k) {
            const Quarter q(n, k, seat);
            parallel_for(q.count, kStepElements / 2, [&](size_t begin, size_t end) {
                bits_in_quarter<Z>(q, begin, end, bits.data(), from_diagonal, from_mate, data.split<Z>(0) + q.first,
                                   data.split<Z>(1) + q.first);
            });
            from_diagonal += kToDiagonal[q.role ^ 3] * q.count;
            from_mate += kToMate[q.role ^ 2] * q.count;
        }
    });
}

// This server's share of opened bits: masked by the column's bits for its row mate, also by the row's for the other
// row.
void mask_bits(nb::handle to_mate_, nb::handle to_others_, nb::handle shares_, nb::handle own_, const Key& key,
               uint64_t op) {
    const Bytes to_mate(to_mate_, "to_mate", Access::write), to_others(to_others_, "to_others", Access::write);
    const Bytes shares(shares_, "shares"), own(own_, "own");
    const size_t n = shares.size();
    for (const Bytes* array : {&to_mate, &to_others, &own}) array->require_size(n);
    const std::unique_ptr<uint64_t[]> mask(new uint64_t[n / 16 * 2 + 2]);
    fill(mask.get(), n / 16 * 2 + 2, key, op, 2);
    const auto* masks = reinterpret_cast<const uint8_t*>(mask.get());
    for (size_t i = 0; i < n; ++i) {
        to_mate.data()[i] = shares.data()[i] ^ own.data()[i];
        to_others.data()[i] = to_mate.data()[i] ^ masks[i];
    }
}

// Shares of bits from shares of random bits and the public XOR c of both: c + (1 - 2c) * random. The first `half` bits
// of c are the XOR of two buffers, the others that of two more.
void unmask_bits(nb::handle data_, size_t half, nb::handle a_, nb::handle b_, nb::handle c_, nb::handle d_, int seat) {
    const BitShares data(data_);
    require_seat(seat);
    if (half > data.n || (half % 8 && half != data.n)) fail("the first half must be whole bytes");
    const size_t head = (half + 7) / 8, tail = (data.n - half + 7) / 8;
    const Received a(a_, "first", head), b(b_, "first", head), c(c_, "second", tail), d(d_, "second", tail);
    ReleaseGil gil(data.n > kGilWords / 4);
    with_ring(data.limbs, [&]<class Z>(Z*) {
        using V = value_of<Z>;
        Z *row = data.split<Z>(0), *column = data.split<Z>(1);
        const V adds_row = seat < 2, adds_column = seat % 2 == 0;
        parallel_for(data.n, kStepElements / 2, [&](size_t begin, size_t end) {
            for (size_t i = begin; i < end; ++i) {
                const bool first = i < half;
                const size_t at = first ? i : i - half;
                const V bit =
                    first ? bit_at(a.data(), at) ^ bit_at(b.data(), at) : bit_at(c.data(), at) ^ bit_at(d.data(), at);
                row[i] = (row[i] ^ -bit) + bit + (adds_row & bit);  // -x is ~x + 1
                column[i] = (column[i] ^ -bit) + bit + (adds_column & bit);
            }
        });
    });
}

}  // namespace

void register_random_bits(nanobind::module_& m) {
    m.def(
        "bit_messages",
        [](size_t n, int seat) {
            require_seat(seat);
            return nb::make_tuple(elements(n, seat, kToDiagonal, 0), elements(n, seat, kToMate, 0),
                                  elements(n, seat, kToDiagonal, 3), elements(n, seat, kToMate, 2));
        },
        nb::sig("def bit_messages(n: int, seat: int, /) -> tuple[int, int, int, int]"),
        "Elements that n shared random bits take: sent to the diagonal, to the column mate, received from both.");
    m.def("bits_out", &bits_out,
          nb::sig("def bits_out(data: Words, bits: Bytes, diagonal: Words, mate: Words, seat: int, row_key: Key, "
                  "column_key: Key, op: int, /) -> None"),
          "The column's random bits, this server's first shares of their exclusive or, and its messages.");
    m.def("bits_in", &bits_in,
          nb::sig("def bits_in(data: Words, bits: Bytes, diagonal: Buffer, mate: Buffer, seat: int, /) -> None"),
          "The missing shares, from the messages of the diagonal and the column mate.");
    m.def("mask_bits", &mask_bits,
          nb::sig("def mask_bits(to_mate: Bytes, to_others: Bytes, shares: Bytes, own: Bytes, key: Key, "
                  "op: int, /) -> None"),
          "to_mate = shares ^ own, to_others = to_mate ^ stream (op, 2).");
    m.def("unmask_bits", &unmask_bits,
          nb::sig("def unmask_bits(data: Words, half: int, a: Buffer, b: Buffer, c: Buffer, d: Buffer, "
                  "seat: int, /) -> None"),
          "data = shares of c ^ random bit, in place; c is a ^ b for the first half, then c ^ d.");
}
