// The fields of a column of a text whose rows and fields are known.
#pragma once

#include <cstdint>
#include <cstring>

#include "../simd.h"
#include "../text_words.h"

namespace bagpipe {

// Texts that mean that a value is missing, one behind the other.
struct Words {
  const char* text;
  const int64_t* ends;
  int64_t count;

  bool has(const char* field, uint32_t length) const {
    int64_t begin = 0;
    for (int64_t word = 0; word < count; begin = ends[word++]) {
      if (ends[word] - begin == length && std::memcmp(field, text + begin, length) == 0) return true;
    }
    return false;
  }
};

struct Text {
  const char* text;
  int64_t bytes;
  const uint32_t* starts;
  const uint32_t* ends;
  int64_t fields;
  bool quoted;
  Words missing;
};

struct Field {
  uint32_t begin, end;  // equal where the field is missing

  uint32_t length() const { return end - begin; }
};

// The fields of one column of a text.
struct Column {
  const Text& text;
  const uint32_t* before;  // one behind it each field begins
  int64_t stride;          // of `before`
  const uint32_t* ends;
  bool is_plain;

  Column(const Text& text_, int64_t number)
      : text(text_),
        before(number == 0 ? text_.starts : text_.ends + number - 1),
        stride(number == 0 ? 1 : text_.fields),
        ends(text_.ends + number),
        is_plain(!text_.quoted && text_.missing.count == 0) {}

  BAGPIPE_INLINE Field field(int64_t row) const {
    Field found{before[row * stride] + 1, ends[row * text.fields]};
    if (is_plain) return found;
    if (text.quoted && found.begin < found.end && text.text[found.begin] == '"') {
      ++found.begin;
      --found.end;
    }
    if (text.missing.has(text.text + found.begin, found.length())) found.end = found.begin;
    return found;
  }

  // The 8 characters from `at` on; what follows the text is anything.
  BAGPIPE_INLINE uint64_t word(uint32_t at) const {
    if (at + kWordBytes <= text.bytes) return load(text.text + at);
    uint64_t word = 0;
    std::memcpy(&word, text.text + at, static_cast<size_t>(text.bytes - at));
    return word;
  }
};

}  // namespace bagpipe
