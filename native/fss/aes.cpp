// AES-128: the key schedule.
#include "fss/aes.hpp"

#include <cstring>

namespace ppca {
namespace {

// SubWord of FIPS 197 through the circuit: the four bytes are four bit positions of each plane.
void substitute_word(uint8_t word[4]) {
    unsigned plane[8] = {};
    for (int byte = 0; byte < 4; ++byte)
        for (int bit = 0; bit < 8; ++bit) plane[bit] |= ((word[byte] >> bit) & 1u) << byte;
    sbox(plane);
    for (int byte = 0; byte < 4; ++byte) {
        unsigned value = 0;
        for (int bit = 0; bit < 8; ++bit) value |= ((plane[bit] >> byte) & 1u) << bit;
        word[byte] = static_cast<uint8_t>(value);
    }
}

}  // namespace

Schedule expand_key(const uint8_t key[16]) {
    Schedule schedule;
    std::memcpy(schedule.round_key[0], key, 16);
    uint8_t constant = 1;
    for (int round = 1; round <= 10; ++round) {
        const uint8_t* before = schedule.round_key[round - 1];
        uint8_t* now = schedule.round_key[round];
        uint8_t word[4] = {before[13], before[14], before[15], before[12]};
        substitute_word(word);
        word[0] ^= constant;
        constant = static_cast<uint8_t>((constant << 1) ^ ((constant >> 7) * 0x1b));
        for (int i = 0; i < 4; ++i) now[i] = before[i] ^ word[i];
        for (int i = 4; i < 16; ++i) now[i] = before[i] ^ now[i - 4];
    }
    return schedule;
}

}  // namespace ppca
