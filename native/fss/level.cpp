// The stream and FSS kernels of one instruction-set level. CMakeLists.txt compiles this file once per level and says
// which: CIPHER is the header of its cipher, KERNELS the name of the table.
#include CIPHER

#include "fss/dcf.hpp"
#include "fss/dpf.hpp"
#include "fss/generate.hpp"
#include "fss/prg.hpp"
#include "fss/sign.hpp"

namespace ppca {

constinit const FssKernels KERNELS = {
    .name = Cipher::kName,
    .aes_blocks = aes_blocks<Cipher>,
    .prg = prg<Cipher>,
    .mask2 = mask2<Cipher>,
    .generate = generate<Cipher>,
    .dcf_eval = dcf_eval<Cipher>,
    .classify_bits = classify_bits<Cipher>,
    .dpf_eval = dpf_eval<Cipher>,
    .prefix_bits = prefix_bits<Cipher>,
    .sign_gen = sign_gen<Cipher>,
    .sign_eval = sign_eval<Cipher>,
};

}  // namespace ppca
