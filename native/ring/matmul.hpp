// Matrix products over Z_2^64 and Z_2^128.
//
// One driver (matmul.cpp) cuts a product into tiles of a few rows by 8 columns; the arithmetic of a tile is a Backend,
// one per instruction set. Backends see raw pointers only, so that their translation units, compiled with wider
// instruction sets, emit no function that other code could end up calling.
#pragma once

#include "process/levels.hpp"
#include "ring/elements.hpp"
#include "ring/matmul_backend.hpp"

namespace ppca {

// Which entries of a product are wanted: all of them, or the upper triangle with or without its diagonal.
enum class Part { full, upper, strict };

// out[i] = a[i] @ b[i] for `batch` products of (n,k) by (k,m), all C-contiguous; a shared operand is the same for all
// i. out overlaps neither operand.
template <class Z>
void matmul(Z* out, const Z* a, const Z* b, std::size_t batch, std::size_t n, std::size_t k, std::size_t m,
            bool a_shared, bool b_shared);

// The upper triangle of a(n,k) @ b(k,n), packed row by row: n(n+1)/2 entries, or n(n-1)/2 without the diagonal.
template <class Z> void matmul_upper(Z* out, const Z* a, const Z* b, std::size_t n, std::size_t k, Part part);

// The levels of the tiles; the last one, "emulated-ifma", runs the AVX-512 arithmetic in plain C++, for tests.
extern Levels<RingKernels> ring_levels;

}  // namespace ppca
