/* Ternary codes of gradients; ternary_codes.py computes the same bits with NumPy, and describes the arguments.
 *
 * The loops have fixed inner lengths so that compilers vectorize them. Numbers that do not fill a tile or a row of lanes
 * are padded by the caller. They ask for memory a page ahead, because processors do not prefetch across pages.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { BLOCK = 1 << 16, TILE = 256, TILE_BYTES = TILE / 4, LANES = 16, PAGE = 1024 };

void hpcrun_add_moments(const float *restrict values, int64_t size, double *restrict sums, double *restrict squares,
                        float *restrict largest) {
  int32_t largest_bits[LANES]; /* of absolute values; larger numbers have larger bits, and NaN has the largest */
  memcpy(largest_bits, largest, sizeof largest_bits);
  for (int64_t block = 0; block < size; block += BLOCK) {
    double block_sums[LANES] = {0}, block_squares[LANES] = {0};
    for (int64_t i = block; i < size && i < block + BLOCK; i += LANES) {
      __builtin_prefetch(values + i + PAGE);
      for (int lane = 0; lane < LANES; lane++) {
        float value = values[i + lane];
        int32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits &= 0x7fffffff;
        block_sums[lane] += value;
        block_squares[lane] += (double)value * value;
        largest_bits[lane] = bits > largest_bits[lane] ? bits : largest_bits[lane];
      }
    }
    for (int lane = 0; lane < LANES; lane++) sums[lane] += block_sums[lane], squares[lane] += block_squares[lane];
  }
  memcpy(largest, largest_bits, sizeof largest_bits);
}

static inline uint32_t hash(uint32_t number, uint32_t key, uint32_t second_key) {
  number += key;
  number ^= number >> 16;
  number *= 0x846ca68bu;
  number ^= number >> 16;
  number += second_key;
  number ^= number >> 16;
  number *= 0x21f0aaadu;
  number ^= number >> 15;
  number *= 0x735a2d97u;
  number ^= number >> 15;
  return number;
}

void hpcrun_encode(const float *restrict values, int64_t size, uint32_t first, uint32_t key, uint32_t second_key,
                   float limit, float scale, uint8_t *restrict packed) {
  for (int64_t tile = 0; tile < size; tile += TILE, packed += TILE_BYTES) {
    uint8_t bytes[TILE_BYTES] = {0};
    for (int i = 0; i < TILE; i += LANES) __builtin_prefetch(values + tile + PAGE + i);
    for (int quarter = 0; quarter < 4; quarter++) {
      const float *restrict row = values + tile + quarter * TILE_BYTES;
      uint32_t number = first + (uint32_t)tile + quarter * TILE_BYTES;
      for (int i = 0; i < TILE_BYTES; i++) {
        float draw = (float)(int32_t)(hash(number + i, key, second_key) >> 8) * 0x1p-24f * scale;
        float magnitude = fabsf(row[i]);
        magnitude = magnitude > limit ? limit : magnitude;
        bytes[i] |= (uint8_t)((draw < magnitude) << (row[i] < 0)) << 2 * quarter;
      }
    }
    for (int i = 0; i < TILE_BYTES; i++) packed[i] = bytes[i];
  }
}

static inline void add_tile(const uint8_t *restrict packed, int64_t ranks, int64_t stride, int16_t *restrict sums) {
  for (int i = 0; i < TILE; i++) sums[i] = 0;
  for (int64_t rank = 0; rank < ranks; rank++, packed += stride)
    for (int quarter = 0; quarter < 4; quarter++)
      for (int i = 0; i < TILE_BYTES; i++) {
        uint8_t code = packed[i] >> 2 * quarter & 3;
        sums[quarter * TILE_BYTES + i] += (int16_t)(code & 1) - (int16_t)(code >> 1);
      }
}

void hpcrun_decode(const uint8_t *restrict packed, int64_t ranks, int64_t stride, int64_t size, float scale,
                   float *restrict sums) {
  for (int64_t tile = 0; tile < size; tile += TILE, packed += TILE_BYTES) {
    int16_t tile_sums[TILE];
    for (int i = 0; i < TILE; i += LANES) __builtin_prefetch(sums + tile + PAGE + i, 1);
    add_tile(packed, ranks, stride, tile_sums);
    for (int i = 0; i < TILE; i++) sums[tile + i] = scale * (float)tile_sums[i];
  }
}

void hpcrun_count(const uint8_t *restrict packed, int64_t ranks, int64_t stride, int64_t size, int16_t *restrict sums) {
  for (int64_t tile = 0; tile < size; tile += TILE, packed += TILE_BYTES) {
    int16_t tile_sums[TILE];
    add_tile(packed, ranks, stride, tile_sums);
    for (int i = 0; i < TILE; i++) sums[tile + i] = tile_sums[i];
  }
}

/* packing.py describes the words: number `row * words + i` is the digit `row` of word i, from the highest. */
void hpcrun_pack(const uint16_t *restrict numbers, int64_t size, int64_t base, int64_t digits, int64_t words,
                 uint64_t *restrict packed) {
  for (int64_t i = 0; i < words; i++) packed[i] = 0;
  for (int64_t block = 0; block < words; block += BLOCK) /* a block of words stays in the cache */
    for (int64_t row = 0; row < digits; row++)
      for (int64_t i = block; i < words && i < block + BLOCK; i++)
        packed[i] = packed[i] * (uint64_t)base + (row * words + i < size ? numbers[row * words + i] : 0);
}

void hpcrun_unpack(const uint64_t *restrict packed, int64_t size, int64_t base, int64_t digits, int64_t words,
                   uint16_t *restrict numbers) {
  uint64_t divisor = (uint64_t)base, reciprocal = UINT64_MAX / divisor, rest[LANES] = {0};
  for (int64_t block = 0; block < words; block += LANES) {
    for (int lane = 0; lane < LANES; lane++) rest[lane] = block + lane < words ? packed[block + lane] : 0;
    for (int64_t row = digits - 1; row >= 0; row--) {
      uint16_t row_digits[LANES];
      for (int lane = 0; lane < LANES; lane++) {
        uint64_t quotient = (uint64_t)((unsigned __int128)rest[lane] * reciprocal >> 64); /* at most 1 too small */
        uint64_t digit = rest[lane] - quotient * divisor, carry = digit >= divisor;
        row_digits[lane] = (uint16_t)(digit - (carry ? divisor : 0));
        rest[lane] = quotient + carry;
      }
      int64_t start = row * words + block, end = (row + 1) * words < size ? (row + 1) * words : size;
      for (int lane = 0; lane < LANES && start + lane < end; lane++) numbers[start + lane] = row_digits[lane];
    }
  }
}
