// NumPy arrays as seen by the kernels: flat C-contiguous buffers, checked at the boundary.
//
// The buffer protocol is used directly: an argument costs 70 ns instead of 155 ns for nb::ndarray, it is never copied
// (a converted copy of an output would silently lose the result), and the errors can name it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace ppca {

namespace nb = nanobind;

// Releases the GIL in its scope if the work is worth the switch.
class ReleaseGil {
public:
    explicit ReleaseGil(bool worth) {
        if (worth) release_.emplace();
    }

private:
    std::optional<nb::gil_scoped_release> release_;
};

enum class Access { read, write };

// A borrowed view of a C-contiguous array of T; keeps the array alive and its memory in place while it exists.
template <class T> class Array {
public:
    Array(nb::handle object, const char* name, Access access = Access::read) : name_(name) {
        const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
            PyErr_Clear();
            refuse(access);
        }
        if (!holds_t()) {
            PyBuffer_Release(&view_);
            refuse(access);
        }
    }
    ~Array() { PyBuffer_Release(&view_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    T* data() const { return static_cast<T*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len) / sizeof(T); }
    int ndim() const { return view_.ndim; }
    std::size_t last_axis() const { return view_.ndim ? static_cast<std::size_t>(view_.shape[view_.ndim - 1]) : 0; }
    std::size_t axis(int i) const { return static_cast<std::size_t>(view_.shape[i]); }
    const char* name() const { return name_; }

    // Throws ValueError unless the array has `expected` items.
    void require_size(std::size_t expected) const {
        if (size() != expected)
            throw nb::value_error((std::string(name_) + " has " + std::to_string(size()) + " " + word() +
                                   " items, expected " + std::to_string(expected))
                                      .c_str());
    }

private:
    static constexpr const char* word() {
        if constexpr (sizeof(T) == 1) return "uint8";
        else if constexpr (static_cast<T>(0.5) != T(0)) return "float64";
        else return "uint64";
    }

    bool holds_t() const {
        if (view_.itemsize != static_cast<Py_ssize_t>(sizeof(T))) return false;
        const char* f = view_.format ? view_.format : "B";
        if (*f == '=' || *f == '@' || *f == '^' || (*f == '<' && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)) ++f;
        if (f[0] == '\0' || f[1] != '\0') return false;
        if constexpr (sizeof(T) == 1) return *f == 'B';
        else if constexpr (static_cast<T>(0.5) != T(0)) return *f == 'd';
        else return *f == 'L' || *f == 'Q';
    }

    [[noreturn]] void refuse(Access access) const {
        throw nb::value_error((std::string(name_) + " must be a " + (access == Access::write ? "writable " : "") +
                               "C-contiguous " + word() + " array")
                                  .c_str());
    }

    Py_buffer view_;
    const char* name_;
};

[[noreturn]] inline void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

// The last axis of a ring array: 1 or 2 words per element.
inline int limbs_of(const Array<std::uint64_t>& x) {
    const std::size_t limbs = x.last_axis();
    if (x.ndim() == 0 || (limbs != 1 && limbs != 2))
        fail(std::string(x.name()) + " must have a last axis of 1 or 2 limbs");
    return static_cast<int>(limbs);
}

// Received bytes: any contiguous buffer; a frame cut into messages may leave them at any address, so they are copied
// out word by word where they are not aligned.
class Received {
public:
    Received(nb::handle object, const char* name, std::size_t bytes) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
            PyErr_Clear();
            throw nb::value_error((std::string(name) + " must be a contiguous buffer").c_str());
        }
        if (static_cast<std::size_t>(view_.len) != bytes) {
            const std::string message =
                std::string(name) + " has " + std::to_string(view_.len) + " bytes, expected " + std::to_string(bytes);
            PyBuffer_Release(&view_);
            throw nb::value_error(message.c_str());
        }
    }
    ~Received() { PyBuffer_Release(&view_); }
    Received(const Received&) = delete;
    Received& operator=(const Received&) = delete;

    const unsigned char* data() const { return static_cast<const unsigned char*>(view_.buf); }

    template <class Z> Z operator()(std::size_t i) const {
        Z value;
        std::memcpy(&value, data() + i * sizeof(Z), sizeof(Z));
        return value;
    }

private:
    Py_buffer view_;
};

}  // namespace ppca
