// Python bindings of the ring kernels: argument checks, the choice of ring by limbs, threads and the GIL.
//
// A ring array is a C-contiguous uint64 array whose last axis holds the limbs: 1 for Z_2^64, 2 (lo, hi) for Z_2^128.
// Outputs come first and are allocated by the caller; arguments are positional. `limbs` is taken from the output.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "bind/calls.hpp"
#include "ring/fixed_point.hpp"
#include "ring/matmul.hpp"
#include "ring/packing.hpp"

namespace {

using namespace ppca;

constexpr std::size_t kGilElements = 4096;  // about 2 microseconds of element-wise work: below, keep the GIL

void require_same(const Words& out, const Words& x) {
    if (x.size() != out.size())
        fail(std::string(x.name()) + " has " + std::to_string(x.size()) + " uint64 items, " + out.name() + " has " +
             std::to_string(out.size()));
}

// The product of some dimensions, refused if it overflows (it would then agree with the size of a small array).
std::size_t elements_of(std::initializer_list<std::size_t> dimensions) {
    std::size_t product = 1;
    for (std::size_t d : dimensions)
        if (d == 0) return 0;
    for (std::size_t d : dimensions)
        if (__builtin_mul_overflow(product, d, &product) || product > PTRDIFF_MAX / sizeof(Z128))
            fail("the dimensions are too large");
    return product;
}

// Throws unless x has exactly this number of elements.
void require_elements(const Words& x, std::size_t elements, int limbs) {
    if (x.size() != elements * static_cast<std::size_t>(limbs))
        fail(std::string(x.name()) + " has " + std::to_string(x.size()) + " uint64 items, expected " +
             std::to_string(elements) + " elements of " + std::to_string(limbs) + " limbs");
}

template <class Z, class T> Z* as(const Array<T>& x) { return reinterpret_cast<Z*>(x.data()); }

// The loops take everything by value: stores to cells may alias any variable whose address is known, and would make the
// compiler reload captured pointers and constants for every element.
template <class To, class From, class F> void loop(To* to, const From* a, std::size_t n, F f) {
    for (std::size_t i = 0; i < n; ++i) to[i] = f(a[i].value);
}
template <class Z, class F> void loop(Z* to, const Z* a, const Z* b, std::size_t n, F f) {
    for (std::size_t i = 0; i < n; ++i) to[i] = f(a[i].value, b[i].value);
}

// out[i] = f(a[i]) or f(a[i], b[i]) for all elements, f taking and returning values of the ring of Z.
template <class Z, class F> void each(const Words& out, const Words& a, F f) {
    Z* to = as<Z>(out);
    const Z* from = as<Z>(a);
    const std::size_t n = out.size() * 8 / sizeof(Z);
    ReleaseGil gil(n > kGilElements);
    parallel_for(n, kStepElements,
                 [&](std::size_t begin, std::size_t end) { loop(to + begin, from + begin, end - begin, f); });
}
template <class Z, class F> void each(const Words& out, const Words& a, const Words& b, F f) {
    Z* to = as<Z>(out);
    const Z *left = as<Z>(a), *right = as<Z>(b);
    const std::size_t n = out.size() * 8 / sizeof(Z);
    ReleaseGil gil(n > kGilElements);
    parallel_for(n, kStepElements, [&](std::size_t begin, std::size_t end) {
        loop(to + begin, left + begin, right + begin, end - begin, f);
    });
}

template <class F> void unary(nb::handle out_, nb::handle a_, F f) {
    Words out(out_, "out", Access::write), a(a_, "a");
    require_same(out, a);
    with_ring(limbs_of(out), [&]<class Z>(Z*) { each<Z>(out, a, f); });
}

template <class F> void binary(nb::handle out_, nb::handle a_, nb::handle b_, F f) {
    Words out(out_, "out", Access::write), a(a_, "a"), b(b_, "b");
    require_same(out, a);
    require_same(out, b);
    with_ring(limbs_of(out), [&]<class Z>(Z*) { each<Z>(out, a, b, f); });
}

void add(nb::handle out, nb::handle a, nb::handle b) {
    binary(out, a, b, [](auto x, auto y) { return x + y; });
}
void sub(nb::handle out, nb::handle a, nb::handle b) {
    binary(out, a, b, [](auto x, auto y) { return x - y; });
}
void mul(nb::handle out, nb::handle a, nb::handle b) {
    binary(out, a, b, [](auto x, auto y) { return x * y; });
}
void neg(nb::handle out, nb::handle a) {
    unary(out, a, [](auto x) { return -x; });
}
void scale(nb::handle out, nb::handle a, u64 lo, u64 hi) {
    const u128 factor = static_cast<u128>(hi) << 64 | lo;
    unary(out, a, [factor](auto x) { return x * static_cast<decltype(x)>(factor); });
}

void shift_right(nb::handle out_, nb::handle a_, int bits, int mode) {
    Words out(out_, "out", Access::write), a(a_, "a");
    require_same(out, a);
    const int limbs = limbs_of(out);
    require_bits(bits, 0, 64 * limbs - 1);
    with_mode(mode, [&](auto m) {
        with_ring(limbs, [&]<class Z>(Z*) { each<Z>(out, a, [=](auto x) { return shifted<Z, m()>(x, bits); }); });
    });
}

void shift_left(nb::handle out_, nb::handle a_, int bits) {
    Words out(out_, "out", Access::write), a(a_, "a");
    require_same(out, a);
    const int limbs = limbs_of(out);
    require_bits(bits, 0, 64 * limbs - 1);
    with_ring(limbs, [&]<class Z>(Z*) { each<Z>(out, a, [bits](auto x) { return x << bits; }); });
}

void mask_low(nb::handle out_, nb::handle a_, int bits) {
    Words out(out_, "out", Access::write), a(a_, "a");
    require_same(out, a);
    const int limbs = limbs_of(out);
    require_bits(bits, 0, 64 * limbs);
    with_ring(limbs, [&]<class Z>(Z*) {
        const value_of<Z> mask = low_bits<Z>(~value_of<Z>{0}, bits);
        each<Z>(out, a, [mask](auto x) { return x & mask; });
    });
}

void sum(nb::handle out_, nb::handle a_, std::size_t outer, std::size_t n, std::size_t inner) {
    Words out(out_, "out", Access::write), a(a_, "a");
    const int limbs = limbs_of(out);
    require_elements(out, elements_of({outer, inner}), limbs);
    require_elements(a, elements_of({outer, n, inner}), limbs);
    with_ring(limbs, [&]<class Z>(Z*) {
        ReleaseGil gil(outer * n * inner > kGilElements);
        const std::size_t grain = kStepElements / std::max<std::size_t>(1, n * inner);
        parallel_for(outer, grain, [&](std::size_t begin, std::size_t end) {
            sum_axis<Z>(as<Z>(out) + begin * inner, as<Z>(a) + begin * n * inner, end - begin, n, inner);
        });
    });
}

void matmul_(nb::handle out_, nb::handle a_, nb::handle b_, std::size_t batch, std::size_t n, std::size_t k,
             std::size_t m, bool a_shared, bool b_shared) {
    Words out(out_, "out", Access::write), a(a_, "a"), b(b_, "b");
    const int limbs = limbs_of(out);
    require_elements(out, elements_of({batch, n, m}), limbs);
    require_elements(a, elements_of({a_shared ? 1 : batch, n, k}), limbs);
    require_elements(b, elements_of({b_shared ? 1 : batch, k, m}), limbs);
    with_ring(limbs, [&]<class Z>(Z*) {
        ReleaseGil gil(batch * n * k * m > kGilElements);
        matmul<Z>(as<Z>(out), as<Z>(a), as<Z>(b), batch, n, k, m, a_shared, b_shared);
    });
}

void matmul_upper_(nb::handle out_, nb::handle a_, nb::handle b_, std::size_t n, std::size_t k, bool strict) {
    Words out(out_, "out", Access::write), a(a_, "a"), b(b_, "b");
    const int limbs = limbs_of(out);
    const std::size_t square = elements_of({n, n});
    require_elements(out, strict ? (square - n) / 2 : (square + n) / 2, limbs);
    require_elements(a, elements_of({n, k}), limbs);
    require_elements(b, elements_of({k, n}), limbs);
    with_ring(limbs, [&]<class Z>(Z*) {
        ReleaseGil gil(n * n * k > 2 * kGilElements);
        matmul_upper<Z>(as<Z>(out), as<Z>(a), as<Z>(b), n, k, strict ? Part::strict : Part::upper);
    });
}

void require_frac(int frac) {
    if (frac < -800 || frac > 800) fail("frac is " + std::to_string(frac) + ", expected -800 to 800");
}

std::int64_t encode(nb::handle out_, nb::handle values_, int frac) {
    Words out(out_, "out", Access::write);
    Array<double> values(values_, "values");
    const int limbs = limbs_of(out);
    require_frac(frac);
    require_elements(out, values.size(), limbs);
    return with_ring(limbs, [&]<class Z>(Z*) -> std::int64_t {
        const std::size_t n = values.size();
        ReleaseGil gil(n > kGilElements / 4);
        std::atomic<std::size_t> bad{n};  // the smallest refused index found by any thread
        Z* to = as<Z>(out);
        const auto* from = as<Cell<double>>(values);
        parallel_for(n, kStepElements / 4, [&](std::size_t begin, std::size_t end) {
            const std::size_t here = begin + encode_while_valid(to + begin, from + begin, end - begin, frac);
            std::size_t seen = bad.load();
            while (here < end && here < seen && !bad.compare_exchange_weak(seen, here)) {
            }
        });
        return bad == n ? -1 : static_cast<std::int64_t>(bad.load());
    });
}

void decode(nb::handle out_, nb::handle a_, int frac) {
    Array<double> out(out_, "out", Access::write);
    Words a(a_, "a");
    const int limbs = limbs_of(a);
    require_frac(frac);
    require_elements(a, out.size(), limbs);
    with_ring(limbs, [&]<class Z>(Z*) {
        const std::size_t n = out.size();
        ReleaseGil gil(n > kGilElements / 4);
        auto* to = as<Cell<double>>(out);
        const Z* from = as<Z>(a);
        const double unit = std::ldexp(1.0, -frac);
        parallel_for(n, kStepElements / 4, [&](std::size_t begin, std::size_t end) {
            loop(to + begin, from + begin, end - begin, [unit](auto x) { return decode_one<Z>(x, unit); });
        });
    });
}

void extend(nb::handle out_, nb::handle a_, bool is_signed) {
    Words out(out_, "out", Access::write), a(a_, "a");
    if (limbs_of(out) != 2) fail("out must have 2 limbs");
    if (limbs_of(a) != 1) fail("a must have 1 limb");
    require_elements(out, a.size(), 2);
    Z128* to = as<Z128>(out);
    const Z64* from = as<Z64>(a);
    ReleaseGil gil(a.size() > kGilElements);
    parallel_for(a.size(), kStepElements, [&](std::size_t begin, std::size_t end) {
        const auto sign = [](u64 x) -> u128 { return static_cast<std::int64_t>(x); };
        const auto zero = [](u64 x) -> u128 { return x; };
        if (is_signed) loop(to + begin, from + begin, end - begin, sign);
        else loop(to + begin, from + begin, end - begin, zero);
    });
}

void require_packed(const Bytes& bytes, std::size_t n, int bits) {
    const std::size_t expected = packed_size(n, bits);
    if (bytes.size() != expected)
        fail(std::string(bytes.name()) + " has " + std::to_string(bytes.size()) + " bytes, expected " +
             std::to_string(expected) + " for " + std::to_string(n) + " elements of " + std::to_string(bits) + " bits");
}

void pack_bits(nb::handle out_, nb::handle a_, int bits) {
    Bytes out(out_, "out", Access::write);
    Words a(a_, "a");
    const int limbs = limbs_of(a);
    require_bits(bits, 1, 64 * limbs);
    const std::size_t n = a.size() / static_cast<std::size_t>(limbs);
    require_packed(out, n, bits);
    ReleaseGil gil(n > kGilElements / 2);
    with_ring(limbs, [&]<class Z>(Z*) {
        parallel_for(n, kStepElements, [&](std::size_t begin, std::size_t end) {
            pack<Z>(out.data() + packed_size(begin, bits), as<Z>(a) + begin, end - begin, bits);
        });
    });
}

void unpack_bits(nb::handle out_, nb::handle in_, int bits) {
    Words out(out_, "out", Access::write);
    Bytes in(in_, "in");
    const int limbs = limbs_of(out);
    require_bits(bits, 1, 64 * limbs);
    const std::size_t n = out.size() / static_cast<std::size_t>(limbs);
    require_packed(in, n, bits);
    ReleaseGil gil(n > kGilElements / 2);
    with_ring(limbs, [&]<class Z>(Z*) {
        parallel_for(n, kStepElements, [&](std::size_t begin, std::size_t end) {
            unpack<Z>(as<Z>(out) + begin, in.data() + packed_size(begin, bits), end - begin, bits);
        });
    });
}

}  // namespace

void register_ring(nb::module_& m) {
    m.def("add", &add, nb::sig("def add(out: Words, a: Words, b: Words, /) -> None"),
          "out = a + b, element by element.");
    m.def("sub", &sub, nb::sig("def sub(out: Words, a: Words, b: Words, /) -> None"),
          "out = a - b, element by element.");
    m.def("mul", &mul, nb::sig("def mul(out: Words, a: Words, b: Words, /) -> None"),
          "out = a * b, element by element.");
    m.def("neg", &neg, nb::sig("def neg(out: Words, a: Words, /) -> None"), "out = -a.");
    m.def("scale", &scale, nb::sig("def scale(out: Words, a: Words, lo: int, hi: int, /) -> None"),
          "out = a * (lo + 2^64 hi) for one public constant; hi is ignored in the 64-bit ring.");
    m.def("shift_left", &shift_left, nb::sig("def shift_left(out: Words, a: Words, bits: int, /) -> None"),
          "out = a * 2^bits.");
    m.def("shift_right", &shift_right,
          nb::sig("def shift_right(out: Words, a: Words, bits: int, mode: int, /) -> None"),
          "mode 0: a >> bits (first summand of a truncation); mode 1: -((-a) >> bits) (second summand); "
          "mode 2: arithmetic, floor of the signed value.");
    m.def("mask_low", &mask_low, nb::sig("def mask_low(out: Words, a: Words, bits: int, /) -> None"),
          "out = a mod 2^bits.");
    m.def("sum", &sum, nb::sig("def sum(out: Words, a: Words, outer: int, n: int, inner: int, /) -> None"),
          "Sums the middle axis of a, seen as (outer, n, inner).");
    m.def("matmul", &matmul_,
          nb::sig("def matmul(out: Words, a: Words, b: Words, batch: int, n: int, k: int, m: int, a_shared: bool, "
                  "b_shared: bool, /) -> None"),
          "batch products of (n,k) by (k,m); a shared operand is one matrix used for every product.");
    m.def("matmul_upper", &matmul_upper_,
          nb::sig("def matmul_upper(out: Words, a: Words, b: Words, n: int, k: int, strict: bool, /) -> None"),
          "Upper triangle of a(n,k) @ b(k,n), packed row by row, with the diagonal unless strict.");
    m.def("encode", &encode, nb::sig("def encode(out: Words, values: Doubles, frac: int, /) -> int"),
          "Two's complement of round-half-even(values * 2^frac), exact; returns -1, or the flat index of the first "
          "value that is not finite or out of range.");
    m.def("decode", &decode, nb::sig("def decode(out: Doubles, a: Words, frac: int, /) -> None"),
          "Nearest doubles of the signed values times 2^-frac.");
    m.def("extend", &extend, nb::sig("def extend(out: Words, a: Words, signed: bool, /) -> None"),
          "64-bit elements to 128 bits, with zeros or the sign.");
    m.def("pack_bits", &pack_bits, nb::sig("def pack_bits(out: Bytes, a: Words, bits: int, /) -> None"),
          "Low bits of each element as one bit stream, least significant first, ceil(n*bits/8) bytes.");
    m.def("unpack_bits", &unpack_bits, nb::sig("def unpack_bits(out: Words, packed: Bytes, bits: int, /) -> None"),
          "Inverse of pack_bits; high bits are zero.");
    m.def("threads", &threads, nb::sig("def threads() -> int"), "Largest number of threads one call may use.");
    m.def(
        "set_threads",
        [](int n) {
            if (n < 1) fail("n is " + std::to_string(n) + ", expected at least 1");
            set_threads(static_cast<unsigned>(n));
        },
        nb::sig("def set_threads(n: int, /) -> None"), "1 = never start a thread.");
    m.def(
        "ring_levels", [] { return ring_levels.names(); }, nb::sig("def ring_levels() -> list[str]"),
        "Instruction-set levels of the matrix product usable here, best first.");
    m.def(
        "force_ring",
        [](const std::string& level) {
            if (!ring_levels.force(level)) fail("level " + level + " is not usable here (see ring_levels())");
        },
        nb::sig("def force_ring(level: str, /) -> None"), "Pins the level for tests; 'auto' undoes it.");
}
