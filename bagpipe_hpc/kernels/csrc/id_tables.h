// What the tables of value_ids.cpp and wide_ids.cpp have in common.
#pragma once

#include <cstdint>

constexpr int kGroup = 64;  // values whose memory is asked for together

// Whether row `at` has a value: of bits, lowest first; null where all have one.
inline bool is_present(const uint8_t* present, int64_t at) {
  return present == nullptr || (present[at >> 3] >> (at & 7) & 1);
}

// MurmurHash3's 64-bit finaliser. Hashed ids are made of it, so it has to stay as the definition has it
// (data_prep/vocabularies/vocabulary.py).
inline uint64_t mix(uint64_t key) {
  key ^= key >> 33;
  key *= 0xFF51AFD7ED558CCDu;
  key ^= key >> 33;
  key *= 0xC4CEB9FE1A85EC53u;
  return key ^ key >> 33;
}
