// The FSS and PRG kernels at the aesni level.
#if defined(__x86_64__)

#include "aes_sse.hpp"
#include "dcf.hpp"
#include "dpf.hpp"
#include "fss/generate.hpp"
#include "prg.hpp"
#include "sign.hpp"

namespace ppca {

const FssKernels aesni_fss = {
    "aesni",
    aes_blocks<SseCipher>,
    prg<SseCipher>,
    mask2<SseCipher>,
    generate<SseCipher>,
    dcf_eval<SseCipher>,
    classify_bits<SseCipher>,
    dpf_eval<SseCipher>,
    prefix_bits<SseCipher>,
    sign_gen<SseCipher>,
    sign_eval<SseCipher>,
};

}  // namespace ppca

#endif
