// The cipher of the level that is compiled, and the meaning of its members.
//
// aes_portable.hpp, aes_aesni.hpp and aes_vaes.hpp each define one `Cipher` with the same members; all kernels are
// written for this interface. A Vec holds kWidth blocks. A group is kBatch Vecs, one block per lane, that walk a tree
// together and are encrypted together (as many as the registers hold). The operations act on each 128-bit block of a
// Vec alone:
//
//   each<N>(f)              f(0), ..., f(N - 1), unrolled where Vecs live in registers
//   load / store            kWidth consecutive blocks in memory (no alignment needed)
//   gather(at)              block l from address at(l) (no alignment needed); gather64 loads 8 bytes, zero extended
//   counter(lo, hi)         block l = (lo, hi + l)
//   spread(w)               block l = four copies of the 32-bit word w[l]
//   test(word, i)           all ones if bit 31 - i of the spread word is set
//   control(x)              all ones in 64-bit words whose top bit is set
//   halve(x)                every 64-bit word shifted right by one bit; halve(x, side) only if the side is right
//   mask(side)              all ones if the side is right
//   add64, sub64            on 64-bit words                              full64(x)  all ones in words of all ones
//   up64(x)                 the lower half moved up, zeros below         high32(x)  the upper half of every word
//   rounds, last            with x[i] the block p ^ context.first before, last(x[i], mask ^ context.last) after
//                           rounds(context, x) is AES(p) ^ mask, for i < kBatch
//
// The sides of the blocks of a Vec are public and come as one byte: the sum of kSide << l over the blocks l that go
// right. A mask costs nothing in the chain of rounds: it is part of the last round key, with which AES ends.
#pragma once

#include CIPHER

namespace ppca {
namespace {

using C = Cipher;  // short name for formulas
using Vec = Cipher::Vec;
constexpr int kLanes = Cipher::kWidth * Cipher::kBatch;

}  // namespace
}  // namespace ppca
