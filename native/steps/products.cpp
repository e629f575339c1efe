// Products: masking of a server's terms for sending, and combination of received terms (ppca/protocol/multiply.py).
#include <optional>

#include "bind/calls.hpp"
#include "ring/packing.hpp"

namespace {

using namespace ppca;

bool is_minus(int sign, const char* name) {
    if (sign != 1 && sign != -1) fail(std::string(name) + " is " + std::to_string(sign) + ", expected 1 or -1");
    return sign < 0;
}

void mask_elements(const Words& out_a, const Words& out_b, const Words& x, const Words* y, const Key& key_a,
                   uint64_t op, int sign_a, const Key& key_b, int sign_b) {
    const int limbs = limbs_of(out_a);
    for (const Words* array : {&out_b, &x, y})
        if (array) array->require_size(out_a.size());
    const MaskCall call{out_a.data(),
                        out_b.data(),
                        x.data(),
                        y ? y->data() : nullptr,
                        &key_a.schedule,
                        &key_b.schedule,
                        op,
                        is_minus(sign_a, "sign_a"),
                        is_minus(sign_b, "sign_b")};
    run(out_a.size() / size_t(limbs), limbs,
        [&, mask2 = fss().mask2](size_t begin, size_t end) { mask2(call, limbs, begin, end); });
}

void mask2_py(nb::handle out_a_, nb::handle out_b_, nb::handle t_, const Key& key_a, uint64_t op, int sign_a,
              const Key& key_b, int sign_b) {
    const Words out_a(out_a_, "out_a", Access::write), out_b(out_b_, "out_b", Access::write), t(t_, "t");
    mask_elements(out_a, out_b, t, nullptr, key_a, op, sign_a, key_b, sign_b);
}

void mul_mask2_py(nb::handle out_a_, nb::handle out_b_, nb::handle x_, nb::handle y_, const Key& key_a, uint64_t op,
                  int sign_a, const Key& key_b, int sign_b) {
    const Words out_a(out_a_, "out_a", Access::write), out_b(out_b_, "out_b", Access::write), x(x_, "x"), y(y_, "y");
    mask_elements(out_a, out_b, x, &y, key_a, op, sign_a, key_b, sign_b);
}

void combine2(nb::handle data_, nb::handle first_, nb::handle second_, int bits, int first_mode, int second_mode) {
    const Words data(data_, "data", Access::write);
    if (data.ndim() < 2 || data.axis(0) != 2) fail("data must hold two splits: its first axis has the length 2");
    const size_t half = data.size() / 2;
    const Received parts[2] = {{first_, "first", half * 8}, {second_, "second", half * 8}};
    const int limbs = limbs_of(data);
    require_bits(bits, 0, 64 * limbs - 1);
    ReleaseGil gil(2 * half > kGilWords);
    for (int split = 0; split < 2; ++split) {
        with_mode(split ? second_mode : first_mode, [&](auto mode) {
            with_ring(limbs, [&, bits]<class Z>(Z*) {
                Z* own = reinterpret_cast<Z*>(data.data() + size_t(split) * half);
                const Z* arrived = reinterpret_cast<const Z*>(parts[split].data());
                const size_t count = half * 8 / sizeof(Z);
                parallel_for(count, kStepElements, [=](size_t begin, size_t end) {
                    for (size_t i = begin; i < end; ++i) own[i] = shifted<Z, mode()>(own[i] + arrived[i], bits);
                });
            });
        });
    }
}

// The shape of two splits of elements of the 128-bit ring.
struct Splits {
    Words words;
    size_t count;  // elements of one split
    explicit Splits(nb::handle data) : words(data, "data", Access::write), count(words.size() / 4) {
        if (words.ndim() < 2 || words.axis(0) != 2 || limbs_of(words) != 2)
            fail("data must hold two splits of elements of two words");
    }
    Z128* split(int which) const { return reinterpret_cast<Z128*>(words.data()) + size_t(which) * count; }
};

void narrow2(nb::handle first_, nb::handle second_, nb::handle data_, int shift, int bits, int first_mode,
             int second_mode) {
    const Splits data(data_);
    require_bits(bits);
    require_bits(shift, 0, 128 - bits);
    std::optional<Bytes> out[2];
    if (!first_.is_none()) out[0].emplace(first_, "first", Access::write);
    if (!second_.is_none()) out[1].emplace(second_, "second", Access::write);
    for (const auto& part : out)
        if (part) part->require_size(packed_size(data.count, bits));
    ReleaseGil gil(4 * data.count > kGilWords);
    for (int split = 0; split < 2; ++split) {
        if (!out[split]) continue;
        with_mode(split ? second_mode : first_mode, [&](auto mode) {
            Z128* own = data.split(split);
            parallel_for(data.count, kStepElements / 2, [&](size_t begin, size_t end) {
                for (size_t i = begin; i < end; ++i)
                    own[i] = low_bits<Z128>(shifted<Z128, mode()>(own[i], shift), bits);
                pack(out[split]->data() + packed_size(begin, bits), own + begin, end - begin, bits);
            });
        });
    }
}

void combine_narrow2(nb::handle data_, nb::handle first_, nb::handle second_, int shift, int bits, int first_mode,
                     int second_mode) {
    constexpr size_t kChunk = 512;  // a multiple of 8: chunks begin at whole bytes
    const Splits data(data_);
    require_bits(bits);
    require_bits(shift, 0, bits - 1);
    const size_t size = packed_size(data.count, bits);
    std::optional<Received> parts[2];
    if (!first_.is_none()) parts[0].emplace(first_, "first", size);
    if (!second_.is_none()) parts[1].emplace(second_, "second", size);
    ReleaseGil gil(4 * data.count > kGilWords);
    for (int split = 0; split < 2; ++split) {
        if (!parts[split]) continue;
        with_mode(split ? second_mode : first_mode, [&](auto mode) {
            Z128* own = data.split(split);
            parallel_for(data.count, kStepElements / 2, [&](size_t begin, size_t end) {
                Z128 arrived[kChunk];
                for (size_t at = begin; at < end; at += kChunk) {
                    const size_t count = std::min(kChunk, end - at);
                    unpack(arrived, parts[split]->data() + at * size_t(bits) / 8, count, bits);
                    for (size_t i = 0; i < count; ++i) {
                        u128 sum = low_bits<Z128>(own[at + i] + arrived[i], bits);
                        // Subtract 2^bits from the share that is rounded up.
                        if constexpr (mode() == Shift::negated) sum -= bits < 128 ? u128(1) << bits : 0;
                        own[at + i] = shifted<Z128, mode()>(sum, shift);
                    }
                }
            });
        });
    }
}

}  // namespace

void register_products(nanobind::module_& m) {
    m.def("mask2", &mask2_py,
          nb::sig("def mask2(out_a: Words, out_b: Words, t: Words, key_a: Key, op: int, sign_a: int, key_b: Key, "
                  "sign_b: int, /) -> None"),
          "out_a = t + sign_a * PRG(key_a, op, 0), out_b = t + sign_b * PRG(key_b, op, 1).");
    m.def("mul_mask2", &mul_mask2_py,
          nb::sig("def mul_mask2(out_a: Words, out_b: Words, x: Words, y: Words, key_a: Key, op: int, sign_a: int, "
                  "key_b: Key, sign_b: int, /) -> None"),
          "mask2 of the element-wise product t = x * y.");

    m.def(
        "combine2", &combine2,
        nb::sig("def combine2(data: Words, first: Buffer, second: Buffer, bits: int, first_mode: int, "
                "second_mode: int, /) -> None"),
        "data[0] = shift_right(data[0] + first), data[1] = shift_right(data[1] + second); first and second are bytes.");
    m.def(
        "narrow2", &narrow2, nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
        nb::sig(
            "def narrow2(first: Bytes | None, second: Bytes | None, data: Words, shift: int, bits: int, first_mode: int, "
            "second_mode: int, /) -> None"),
        "data[i] = shift_right(data[i]) mod 2^bits, packed into first and second; a split whose part is None stays as it is.");
    m.def(
        "combine_narrow2", &combine_narrow2, nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg(),
        nb::sig("def combine_narrow2(data: Words, first: Buffer | None, second: Buffer | None, shift: int, bits: int, "
                "first_mode: int, second_mode: int, /) -> None"),
        "data[i] = shift_right(data[i] + unpacked part mod 2^bits), less 2^bits before the shift in mode 1; a split whose "
        "part is None stays as it is.");
}
