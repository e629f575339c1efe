// The FSS and PRG kernels at the portable level.
#include "aes_portable.hpp"
#include "dcf.hpp"
#include "dpf.hpp"
#include "fss/generate.hpp"
#include "prg.hpp"
#include "sign.hpp"

namespace ppca {

const FssKernels portable_fss = {
    "portable",
    aes_blocks<PortableCipher>,
    prg<PortableCipher>,
    mask2<PortableCipher>,
    generate<PortableCipher>,
    dcf_eval<PortableCipher>,
    classify_bits<PortableCipher>,
    dpf_eval<PortableCipher>,
    prefix_bits<PortableCipher>,
    sign_gen<PortableCipher>,
    sign_eval<PortableCipher>,
};

}  // namespace ppca
