// The stream and FSS kernels of one instruction-set level.
//
// CMakeLists.txt compiles this file once per level: CIPHER is the header of its cipher, KERNELS the name of the table.
#include "fss/dcf.hpp"
#include "fss/dpf.hpp"
#include "fss/generate.hpp"
#include "fss/prg.hpp"
#include "fss/sign.hpp"

namespace ppca {

constinit const FssKernels KERNELS = {
    .name = Cipher::kName,
    .aes_blocks = aes_blocks,
    .prg = prg,
    .mask2 = mask2,
    .generate = generate,
    .dcf_eval = dcf_eval,
    .classify_sums = classify_sums,
    .dpf_eval = dpf_eval,
    .prefix_sums = prefix_sums,
    .sign_gen = sign_gen,
    .sign_eval = sign_eval,
};

}  // namespace ppca
