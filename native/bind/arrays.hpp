// NumPy arrays as arguments of kernels: flat C-contiguous buffers, checked at the boundary.
//
// The buffer protocol is used directly: an argument costs 70 ns instead of 155 ns for nb::ndarray, it is never copied
// (a converted copy of an output would silently lose the result), and the errors can name it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ppca {

namespace nb = nanobind;

[[noreturn]] inline void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

// Releases the GIL in its scope if there is enough work.
class ReleaseGil {
public:
    explicit ReleaseGil(bool worth) : state_(worth ? PyEval_SaveThread() : nullptr) {}
    ~ReleaseGil() {
        if (state_) PyEval_RestoreThread(state_);
    }
    ReleaseGil(const ReleaseGil&) = delete;
    ReleaseGil& operator=(const ReleaseGil&) = delete;

private:
    PyThreadState* state_;
};

// The memory of a Python object, alive and in place while this exists.
class Buffer {
public:
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    const char* name() const { return name_; }

protected:
    // Afterwards view_.obj is null if the object does not have such a buffer.
    Buffer(nb::handle object, const char* name, int flags) : name_(name) {
        view_.obj = nullptr;
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) PyErr_Clear();
    }
    ~Buffer() { PyBuffer_Release(&view_); }

    Py_buffer view_;
    const char* name_;
};

enum class Access { read, write };

// A C-contiguous array of T.
template <class T> class Array : public Buffer {
public:
    Array(nb::handle object, const char* name, Access access = Access::read)
        : Buffer(object, name, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0)) {
        if (!view_.obj || !holds_t())
            fail(std::string(name) + " must be a " + (access == Access::write ? "writable " : "") + "C-contiguous " +
                 word() + " array");
    }

    T* data() const { return static_cast<T*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len) / sizeof(T); }
    int ndim() const { return view_.ndim; }
    std::size_t axis(int i) const { return static_cast<std::size_t>(view_.shape[i]); }

    // Throws ValueError unless the array has `expected` items.
    void require_size(std::size_t expected) const {
        if (size() != expected)
            fail(std::string(name_) + " has " + std::to_string(size()) + " " + word() + " items, expected " +
                 std::to_string(expected));
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
};

// The last axis of a ring array: 1 or 2 words per element.
inline int limbs_of(const Array<std::uint64_t>& x) {
    const std::size_t limbs = x.ndim() ? x.axis(x.ndim() - 1) : 0;
    if (limbs != 1 && limbs != 2) fail(std::string(x.name()) + " must have a last axis of 1 or 2 limbs");
    return static_cast<int>(limbs);
}

// Received bytes: any contiguous buffer, at any address (a frame is cut into messages). Cells need no alignment.
class Received : public Buffer {
public:
    Received(nb::handle object, const char* name, std::size_t bytes) : Buffer(object, name, PyBUF_SIMPLE) {
        if (!view_.obj) fail(std::string(name) + " must be a contiguous buffer");
        if (static_cast<std::size_t>(view_.len) != bytes)
            fail(std::string(name) + " has " + std::to_string(view_.len) + " bytes, expected " + std::to_string(bytes));
    }

    const unsigned char* data() const { return static_cast<const unsigned char*>(view_.buf); }
};

}  // namespace ppca
