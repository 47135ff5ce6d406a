// Where the rows and fields of a text are: its separators and ends of lines, 64 characters at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "../simd.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bagpipe {

constexpr int kBlockBytes = 64;  // as many as a mask of characters has bits

// Bits of the characters at `block` that are `character`.
BAGPIPE_INLINE uint64_t places_of(const char* block, char character) {
  uint64_t found = 0;
#if defined(__SSE2__)
  const __m128i wanted = _mm_set1_epi8(character);
  for (int part = 0; part < 4; ++part) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block) + part);
    const auto bits = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(text, wanted)));
    found |= static_cast<uint64_t>(bits) << (16 * part);
  }
#else
  for (int at = 0; at < kBlockBytes; ++at) found |= static_cast<uint64_t>(block[at] == character) << at;
#endif
  return found;
}

// Bits between an odd and the next even bit of `quotes`, the odd one with them.
BAGPIPE_INLINE uint64_t between(uint64_t quotes) {
  for (int shift = 1; shift < kBlockBytes; shift *= 2) quotes ^= quotes << shift;
  return quotes;
}

// Where the rows and fields of a text are: `ends` [rows, fields], `starts` [rows], each the place before a row's first
// character, with room for a row more and 8 places.
struct Index {
  const char* text;
  int64_t fields;
  char separator;
  int64_t most_rows;
  uint32_t* starts;
  uint32_t* ends;
  int64_t found = 0;  // separators in `ends`
  int64_t rows = 0;
  uint32_t row_start = 0;
  bool is_quoted = false;  // whether the text behind what was seen stands in quotes
  int64_t quotes = 0;

  // Takes in the 64 bytes at `block`, which follow `base` others; false where a line has another number of fields.
  template <bool kQuoted>
  BAGPIPE_INLINE bool add(const char* block, uint32_t base) {
    uint64_t lines = places_of(block, '\n') | places_of(block, '\r');
    uint64_t all = places_of(block, separator) | lines;
    if (kQuoted) {
      const uint64_t quote = places_of(block, '"');
      const uint64_t inside = between(quote) ^ (is_quoted ? ~uint64_t{0} : 0);
      quotes += __builtin_popcountll(quote);
      is_quoted = inside >> (kBlockBytes - 1);
      if ((lines & inside) != 0) return false;  // a field that goes on in the next line
      all &= ~inside;
    }
    for (; lines != 0; lines &= lines - 1) {
      const int bit = __builtin_ctzll(lines);
      const uint64_t here = uint64_t{1} << bit;
      const uint32_t at = base + static_cast<uint32_t>(bit);
      const int64_t before = found + __builtin_popcountll(all & (here - 1));
      if (at == row_start) {
        all ^= here;  // an empty line, or the LF after a CR
      } else if (before == (rows + 1) * fields - 1) {
        if (rows == most_rows) return false;
        starts[rows++] = row_start - 1;
      } else {
        return false;
      }
      row_start = at + 1;
    }
    const int count = __builtin_popcountll(all);
    if (found + count > (rows + 1) * fields) return false;  // far too many fields in a line
    uint32_t* out = ends + found;
    // Eight at once, needed or not, cost less than a loop that ends after an unpredictable number.
    for (int done = 0; done < count; done += 8) {
      for (int number = 0; number < 8; ++number) {
        out[done + number] = base + static_cast<uint32_t>(all == 0 ? 0 : __builtin_ctzll(all));
        all &= all - 1;
      }
    }
    found += count;
    return true;
  }
};

template <bool kQuoted>
BAGPIPE_INLINE bool index_block(Index& index, int64_t bytes) {
  int64_t base = 0;
  for (; base + kBlockBytes <= bytes; base += kBlockBytes) {
    if (!index.add<kQuoted>(index.text + base, static_cast<uint32_t>(base))) return false;
  }
  char rest[kBlockBytes];
  std::memset(rest, '0', sizeof rest);  // which is no separator
  std::memcpy(rest, index.text + base, static_cast<size_t>(bytes - base));
  rest[bytes - base] = '\n';  // the end of a last line that lacks it, else an empty line
  return index.add<kQuoted>(rest, static_cast<uint32_t>(base)) && index.found == index.rows * index.fields;
}

}  // namespace bagpipe
