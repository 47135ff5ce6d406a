// Reads blocks of text with a separator between fields into columns, as a list of columns says: the fast path of
// data_prep/formats/delimited.py, which is its definition.
//
// It takes plain rows only: the same number of fields in each line, lines that end with LF, CRLF or CR, quotes around a
// whole field and nowhere else, integers of at most 18 digits, at most 8 hexadecimal digits. On anything else it gives
// up, and the definition reads the block.
//
// First pass: 64 bytes at a time, where are the separators? Second pass, column by column over some rows that stay in
// the nearest caches: with both ends of a field known, digits are read eight at a time without branches on their number.
// All loads stay within the text.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "simd.h"
#include "text_words.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace {

using bagpipe::decimal_value;
using bagpipe::Faults;
using bagpipe::kNoNumber;
using bagpipe::kWordBytes;
using bagpipe::leading_digits;
using bagpipe::load;
using bagpipe::repeated;

constexpr int kBlockBytes = 64;  // as many as a mask of characters has bits
constexpr int kWordRows = 64;    // as many as a word of validity bits holds
constexpr int kTileRows = 8 * kWordRows;
constexpr int kMostDigits = 18;  // of an integer that surely fits 64 bits
constexpr int kExactPowers = 22;  // 10^22 is the largest power of ten that a double holds exactly
constexpr uint64_t kExactIntegers = uint64_t{1} << 53;

// ---- Where characters are.

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
      if (before == (rows + 1) * fields - 1) {
        if (rows == most_rows) return false;
        starts[rows++] = row_start - 1;
      } else if (at == row_start) {
        all ^= here;  // an empty line, or the LF after a CR
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

BAGPIPE_CLONES bool index_plain(Index& index, int64_t bytes) { return index_block<false>(index, bytes); }

// Quotes are as they should be where all of them stand around whole fields.
BAGPIPE_CLONES bool index_quoted(Index& index, int64_t bytes) {
  if (!index_block<true>(index, bytes)) return false;
  int64_t around = 0;
  for (int64_t row = 0; row < index.rows; ++row) {
    uint32_t before = index.starts[row];
    for (int64_t field = 0; field < index.fields; ++field) {
      const uint32_t begin = before + 1, end = index.ends[row * index.fields + field];
      if (begin < end && index.text[begin] == '"') {
        if (end - begin < 2 || index.text[end - 1] != '"') return false;
        around += 2;
      }
      before = end;
    }
  }
  return around == index.quotes;
}

// ---- Fields.

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

// ---- Values of fields.

// An optional minus and 1 to 18 digits.
BAGPIPE_INLINE bool read_integer(const Column& column, Field field, int64_t& value) {
  const char* at = column.text.text + field.begin;
  const char* end = column.text.text + field.end;
  const bool is_negative = at != end && *at == '-';
  at += is_negative;
  if (at == end || end - at > kMostDigits) return false;
  value = 0;
  for (; at != end; ++at) {
    if (*at < '0' || *at > '9') return false;
    value = value * 10 + (*at - '0');
  }
  if (is_negative) value = -value;
  return true;
}

constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// A decimal number of at most 8 characters, without a sign or an exponent: a quotient of two numbers that doubles hold
// exactly is rounded once, as it should be (Clinger: How to read floating point numbers accurately, 1990).
BAGPIPE_INLINE bool read_short_real(uint64_t word, uint32_t length, double& value) {
  const uint64_t digits = leading_digits(word, length);
  const uint64_t others = digits ^ repeated('.' ^ '0');
  const uint64_t points = (others - repeated(1)) & ~others & repeated(0x80);
  uint64_t joined = digits;
  int decimals = 0;
  if (points != 0) {
    const int place = __builtin_ctzll(points) / 8;
    const uint64_t below = (uint64_t{1} << (8 * place)) - 1;
    joined = (digits & ~(below << 8 | 0xFF)) | (digits & below) << 8;
    decimals = 7 - place;
    if (length == 1) return false;
  }
  const uint32_t number = decimal_value(joined);
  if (number == kNoNumber) return false;
  value = number / kPowers[decimals];
  return true;
}

// A decimal number as `[-]digits[.digits][e[+-]digits]` has it.
BAGPIPE_INLINE bool read_real(const char* begin, const char* end, double& value) {
  const char* at = begin;
  const bool is_negative = at != end && *at == '-';
  at += is_negative;
  uint64_t digits = 0;
  int64_t significant = 0, decimals = 0, any = 0;
  bool behind_point = false;
  for (; at != end; ++at) {
    if (*at == '.' && !behind_point) {
      behind_point = true;
    } else if (*at >= '0' && *at <= '9') {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      significant += significant != 0 || *at != '0';
      decimals += behind_point;
      ++any;
      if (significant > kMostDigits) break;
    } else {
      break;
    }
  }
  if (any == 0) return false;
  if (at == end && digits <= kExactIntegers && decimals <= kExactPowers) {
    value = static_cast<double>(digits) / kPowers[decimals];
    if (is_negative) value = -value;
    return true;
  }
  for (const char* other = at; other != end; ++other) {  // neither inf nor nan, nor hexadecimal digits
    const bool is_known = (*other >= '0' && *other <= '9') || *other == '.' || *other == 'e' || *other == 'E' ||
                          *other == '+' || *other == '-';
    if (!is_known) return false;
  }
  const std::from_chars_result found = std::from_chars(begin, end, value, std::chars_format::general);
  return found.ec == std::errc() && found.ptr == end;
}

// ---- Columns. Each kind of values has `add`, which takes the value of a field that is not empty.

struct Integers {
  int64_t* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    const uint32_t length = field.length();
    const uint32_t number =
        length <= kWordBytes ? decimal_value(leading_digits(column.word(field.begin), length)) : kNoNumber;
    values[place] = number;
    return number != kNoNumber || read_integer(column, field, values[place]);
  }
};

struct Reals {
  double* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    const uint32_t length = field.length();
    if (length <= kWordBytes && read_short_real(column.word(field.begin), length, values[place])) return true;
    return read_real(column.text.text + field.begin, column.text.text + field.end, values[place]);
  }
};

struct Hexes {
  uint32_t* values;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) const {
    if (field.length() > kWordBytes) return false;
    Faults faults = 0;
    const uint64_t digits = leading_digits(column.word(field.begin), field.length());
    values[place] = bagpipe::hex_value(digits ^ repeated('0'), faults);
    return (faults & bagpipe::kFaults) == 0;
  }
};

// Texts one behind the other: `ends` of each, and room for 16 bytes more than they have.
struct Texts {
  char* characters;
  int32_t* ends;
  int64_t bytes;

  BAGPIPE_INLINE bool add(const Column& column, Field field, int64_t place) {
    constexpr int kShort = 16;
    const char* from = column.text.text + field.begin;
    const uint32_t length = field.length();
    if (length <= kShort && field.begin + kShort <= column.text.bytes) {
      std::memcpy(characters + bytes, from, kShort);  // as many as are needed, or more: no call, no loop
    } else {
      std::memcpy(characters + bytes, from, length);
    }
    bytes += length;
    ends[place] = static_cast<int32_t>(bytes);
    return true;
  }
};

// What a column is and where its values go. kernels/delimited_text.py has the same members.
struct Task {
  int64_t kind;
  int64_t number;     // of the field
  int64_t separator;  // between the values of a list; 0 where there is one value
  int64_t weights;    // between a value and its weight; 0 where there are none
  void* values;
  uint64_t* present;      // [rows / 64], a bit a row; of single values
  int32_t* list_ends;     // [rows]: where each list ends among the values
  int32_t* text_ends;     // where each text ends in `values`
  float* value_weights;   // of each value of a list
  int64_t missing;        // fields
  int64_t count;          // values, those of missing fields among them
  int64_t bytes;          // characters of texts
};

constexpr uint8_t kNoLabel = 2;

enum Kind : int64_t { kLabel = 0, kInteger = 1, kReal = 2, kHex = 3, kText = 4 };

BAGPIPE_INLINE bool read_labels(const Column& column, int64_t first, int64_t last, uint8_t* labels) {
  bool is_good = true;
  for (int64_t row = first; row < last; ++row) {
    const Field field = column.field(row);
    labels[row] = field.length() == 1 ? static_cast<uint8_t>(column.text.text[field.begin] - '0') : kNoLabel;
    is_good &= labels[row] <= 1;
  }
  return is_good;
}

// Single values of up to 8 characters are read many at a time; `add` reads the others.
struct ShortFields {
  uint64_t words[kWordRows];
  uint64_t lengths[kWordRows];
  uint64_t present = 0;
  uint64_t longest = 0;

  BAGPIPE_INLINE void take(const Column& column, int64_t first, int rows) {
    const uint32_t* before = column.before + first * column.stride;
    const uint32_t* ends = column.ends + first * column.text.fields;
    if (column.is_plain && ends[(rows - 1) * column.text.fields] + kWordBytes <= column.text.bytes) {
      for (int row = 0; row < rows; ++row) {
        const uint32_t begin = before[row * column.stride] + 1;
        words[row] = load(column.text.text + begin);
        lengths[row] = ends[row * column.text.fields] - begin;
      }
    } else {
      for (int row = 0; row < rows; ++row) {
        const Field field = column.field(first + row);
        words[row] = column.word(field.begin);
        lengths[row] = field.length();
      }
    }
    for (int row = 0; row < rows; ++row) {
      present |= static_cast<uint64_t>(lengths[row] != 0) << row;
      longest = lengths[row] > longest ? lengths[row] : longest;
    }
  }
};

BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Integers values, uint64_t& present) {
  ShortFields fields;
  fields.take(column, first, rows);
  present = fields.present;
  uint32_t numbers[kWordRows];
  uint32_t largest = 0;
  for (int row = 0; row < rows; ++row) {
    const uint64_t length = fields.lengths[row] < kWordBytes ? fields.lengths[row] : kWordBytes;
    numbers[row] = decimal_value(leading_digits(fields.words[row], length));
    values.values[first + row] = numbers[row];
    largest = numbers[row] > largest ? numbers[row] : largest;
  }
  if (fields.longest <= kWordBytes && largest != kNoNumber) return true;
  for (int row = 0; row < rows; ++row) {
    if (fields.lengths[row] <= kWordBytes && numbers[row] != kNoNumber) continue;
    if (!read_integer(column, column.field(first + row), values.values[first + row])) return false;
  }
  return true;
}

BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Hexes values, uint64_t& present) {
  ShortFields fields;
  fields.take(column, first, rows);
  present = fields.present;
  Faults faults = 0;
  for (int row = 0; row < rows; ++row) {
    const uint64_t length = fields.lengths[row] < kWordBytes ? fields.lengths[row] : kWordBytes;
    values.values[first + row] =
        bagpipe::hex_value(leading_digits(fields.words[row], length) ^ repeated('0'), faults);
  }
  return fields.longest <= kWordBytes && (faults & bagpipe::kFaults) == 0;
}

template <typename Values>
BAGPIPE_INLINE bool read_words(const Column& column, int64_t first, int rows, Values& values, uint64_t& present) {
  bool is_good = true;
  present = 0;
  for (int row = 0; row < rows; ++row) {
    const Field field = column.field(first + row);
    if (field.length() != 0) {
      present |= uint64_t{1} << row;
      is_good &= values.add(column, field, first + row);
    } else {
      values.add_missing(first + row);
    }
  }
  return is_good;
}

struct OptionalReals : Reals {
  void add_missing(int64_t place) { values[place] = 0; }
};

struct OptionalTexts : Texts {
  void add_missing(int64_t place) { ends[place] = static_cast<int32_t>(bytes); }
};

template <typename Values>
BAGPIPE_INLINE bool read_single(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  bool is_good = true;
  for (int64_t row = first; row < last && is_good; row += kWordRows) {
    const int rows = static_cast<int>(last - row < kWordRows ? last - row : kWordRows);
    uint64_t present;
    is_good = read_words(column, row, rows, values, present);
    task.present[row / kWordRows] = present;
    task.missing += rows - __builtin_popcountll(present);
  }
  return is_good;
}

// Calls `take` with each piece of a field that is not empty, up to the next separator.
template <typename Take>
BAGPIPE_INLINE void for_each_piece(const Column& column, Field field, char separator, Take&& take) {
  uint32_t begin = field.begin;
  for (uint32_t at = field.begin; at < field.end; at += kBlockBytes) {
    char copy[kBlockBytes];
    const char* block = column.text.text + at;
    if (at + kBlockBytes > column.text.bytes) {
      std::memcpy(copy, block, static_cast<size_t>(field.end - at));
      block = copy;
    }
    uint64_t found = places_of(block, separator);
    if (field.end - at < kBlockBytes) found &= (uint64_t{1} << (field.end - at)) - 1;
    for (; found != 0; found &= found - 1) {
      const uint32_t end = at + static_cast<uint32_t>(__builtin_ctzll(found));
      take(Field{begin, end});
      begin = end + 1;
    }
  }
  take(Field{begin, field.end});
}

// Reads the weight behind the last separator of a value, and leaves the value; false where there is none.
BAGPIPE_INLINE bool take_weight(const Column& column, char separator, Field& value, float& weight) {
  const char* text = column.text.text;
  uint32_t at = value.end;
  while (at > value.begin && text[at - 1] != separator) --at;
  double read;
  if (at == value.begin || !read_real(text + at, text + value.end, read)) return false;
  weight = static_cast<float>(read);
  value.end = at - 1;
  return std::isfinite(weight);
}

template <typename Values>
BAGPIPE_INLINE bool read_lists(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  const char separator = static_cast<char>(task.separator), of_weight = static_cast<char>(task.weights);
  int64_t count = task.count;
  bool is_good = true;
  for (int64_t row = first; row < last; ++row) {
    const Field field = column.field(row);
    if (field.length() != 0) {
      for_each_piece(column, field, separator, [&](Field value) __attribute__((always_inline)) {
        // There is room for so many values as a field can hold that are not empty: nothing is written behind an error.
        if (is_good && of_weight != 0) is_good = take_weight(column, of_weight, value, task.value_weights[count]);
        is_good = is_good && value.length() != 0 && values.add(column, value, count);
        ++count;
      });
    }
    task.list_ends[row] = static_cast<int32_t>(count);
  }
  task.count = count;
  return is_good;
}

template <typename Values>
BAGPIPE_INLINE bool read_some(const Column& column, int64_t first, int64_t last, Values& values, Task& task) {
  return task.separator != 0 ? read_lists(column, first, last, values, task)
                             : read_single(column, first, last, values, task);
}

BAGPIPE_CLONES bool read_column(const Text& text, int64_t first, int64_t last, Task& task) {
  const Column column(text, task.number);
  switch (task.kind) {
    case kLabel:
      return read_labels(column, first, last, static_cast<uint8_t*>(task.values));
    case kInteger: {
      Integers values{static_cast<int64_t*>(task.values)};
      return read_some(column, first, last, values, task);
    }
    case kReal: {
      OptionalReals values{{static_cast<double*>(task.values)}};
      return read_some(column, first, last, values, task);
    }
    case kHex: {
      Hexes values{static_cast<uint32_t*>(task.values)};
      return read_some(column, first, last, values, task);
    }
    case kText: {
      OptionalTexts values{{static_cast<char*>(task.values), task.text_ends, task.bytes}};
      const bool is_good = read_some(column, first, last, values, task);
      task.bytes = values.bytes;
      return is_good;
    }
  }
  return false;
}

}  // namespace

// Where the fields of `text` are, or -1 where a line is no plain row; the number of rows. See Index for the arrays;
// `quoted`: whether a field may stand in quotes. `bytes` is below 2^32 - 64.
BAGPIPE_EXPORT int64_t index_fields(const char* text, int64_t bytes, int64_t fields, int64_t separator, int64_t quoted,
                                    int64_t most_rows, uint32_t* starts, uint32_t* ends) {
  Index index{text, fields, static_cast<char>(separator), most_rows, starts, ends};
  return (quoted != 0 ? index_quoted(index, bytes) : index_plain(index, bytes)) ? index.rows : -1;
}

// Characters of a column, quotes and words for missing values among them.
BAGPIPE_EXPORT int64_t field_bytes(const uint32_t* starts, const uint32_t* ends, int64_t fields, int64_t rows,
                                   int64_t number) {
  int64_t total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const uint32_t before = number == 0 ? starts[row] : ends[row * fields + number - 1];
    total += ends[row * fields + number] - (before + 1);
  }
  return total;
}

// Reads `rows` rows of columns into the arrays of their tasks; 0 where a field is not plain, else 1.
//
// `words` and their ends: texts that mean that a value is missing, none of them empty.
BAGPIPE_EXPORT int64_t read_columns(const char* text, int64_t bytes, const uint32_t* starts, const uint32_t* ends,
                                    int64_t fields, int64_t rows, int64_t quoted, const char* words,
                                    const int64_t* word_ends, int64_t word_count, Task* tasks, int64_t columns) {
  const Text source{text, bytes, starts, ends, fields, quoted != 0, {words, word_ends, word_count}};
  for (int64_t first = 0; first < rows; first += kTileRows) {
    const int64_t last = first + kTileRows < rows ? first + kTileRows : rows;
    for (int64_t number = 0; number < columns; ++number) {
      if (!read_column(source, first, last, tasks[number])) return 0;
    }
  }
  return 1;
}
