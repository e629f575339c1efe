// The FSS and PRG kernels at the vaes level.
#if defined(__x86_64__)

#include "aes_avx.hpp"
#include "dcf.hpp"
#include "dpf.hpp"
#include "fss/generate.hpp"
#include "prg.hpp"
#include "sign.hpp"

namespace ppca {

const FssKernels vaes_fss = {
    "vaes",
    aes_blocks<AvxCipher>,
    prg<AvxCipher>,
    mask2<AvxCipher>,
    generate<AvxCipher>,
    dcf_eval<AvxCipher>,
    classify_bits<AvxCipher>,
    dpf_eval<AvxCipher>,
    prefix_bits<AvxCipher>,
    sign_gen<AvxCipher>,
    sign_eval<AvxCipher>,
};

}  // namespace ppca

#endif
