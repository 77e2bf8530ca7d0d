// What the lanes of a wave do together, on a CPU. The header that includes this says how lanes meet:
//   poot_meet_wave(line)    returns when every lane of the wave has come to that line
//   poot_wave_lanes()       lanes of the own wave
//   poot_wave_lane()        the own lane's index in it
//   poot_board()            one wave's board of this meeting: poot::board, the same for its lanes
//   poot_wrong(what, line)  reports an error of this kind
#pragma once

namespace poot {
// What each lane shows the others at a meeting. Two meetings in a row use two boards.
struct board {
  uint64_t word[64];
  float a[64][16];
  float b[64][16];
};
enum wrong {
  FINE,
  DIVERGENT_BARRIER,
  DIVERGENT_WAVE,
  LANE_OUTSIDE,
  UNEQUAL_COPIES,
  BAD_ADDRESS,
};

template <typename T>
static inline uint64_t show(T value, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a value of a word or two");
  uint64_t word = 0;
  __builtin_memcpy(&word, &value, sizeof(T));
  return word;
}
}  // namespace poot

template <typename T>
static inline T __shfl(T value, int lane, int line = __builtin_LINE()) {
  poot::board& board = *poot_board();
  board.word[poot_wave_lane()] = poot::show(value, line);
  poot_meet_wave(line);
  if (lane < 0 || lane >= (int)poot_wave_lanes()) poot_wrong(poot::LANE_OUTSIDE, line);
  T got;
  __builtin_memcpy(&got, &board.word[lane], sizeof(T));
  return got;
}
template <typename T>
static inline T __shfl_xor(T value, int mask, int line = __builtin_LINE()) {
  return __shfl(value, (int)poot_wave_lane() ^ mask, line);
}
static inline unsigned long long __ballot(int truth, int line = __builtin_LINE()) {
  poot::board& board = *poot_board();
  board.word[poot_wave_lane()] = truth != 0;
  poot_meet_wave(line);
  unsigned long long bits = 0;
  for (unsigned n = 0; n < poot_wave_lanes(); ++n) bits |= (unsigned long long)board.word[n] << n;
  return bits;
}
static inline int __any(int truth, int line = __builtin_LINE()) {
  return __ballot(truth, line) != 0;
}
static inline int __all(int truth, int line = __builtin_LINE()) {
  return __ballot(!truth, line) == 0;
}
static inline void __builtin_amdgcn_wave_barrier(int line = __builtin_LINE()) {
  poot_meet_wave(line);
}

// Matrix products, by the layouts of AMD's own guides: MFMA 16x16x16 over 64 lanes, lane l with
// row l % 16 of a, column l % 16 of b, four of k from 4 * (l / 16) on, and rows 4 * (l / 16) .. + 3
// of column l % 16 of the result.
namespace poot {
typedef _Float16 half4 __attribute__((vector_size(8)));
typedef _Float16 half16 __attribute__((vector_size(32)));
typedef short short4 __attribute__((vector_size(8)));
typedef short short16 __attribute__((vector_size(32)));
typedef float float4 __attribute__((vector_size(16)));
typedef float float8 __attribute__((vector_size(32)));

static inline float number(_Float16 a) { return (float)a; }
static inline float number(float a) { return a; }
static inline float number(short bits) {
  return __builtin_bit_cast(float, (unsigned)(unsigned short)bits << 16);
}

template <typename V>
static inline float4 mfma(V a, V b, float4 c, int depth, int line) {
  board& shown = *poot_board();
  const unsigned lane = poot_wave_lane();
  for (int n = 0; n < depth; ++n) {
    shown.a[lane][n] = number(a[n]);
    shown.b[lane][n] = number(b[n]);
  }
  poot_meet_wave(line);
  if (poot_wave_lanes() != 64) poot_wrong(DIVERGENT_WAVE, line);
  for (int row = 0; row < 4; ++row) {
    for (int k = 0; k < 4; ++k) {
      for (int n = 0; n < depth; ++n) {
        c[row] += shown.a[k * 16 + lane / 16 * 4 + row][n] * shown.b[k * 16 + lane % 16][n];
      }
    }
  }
  return c;
}

// WMMA 16x16x16 over 32 lanes: lane l has row l % 16 of a and column l % 16 of b whole, the upper
// half of the wave a copy of the lower, and rows l / 16, + 2, .. of column l % 16 of the result.
template <typename V>
static inline float8 wmma(V a, V b, float8 c, int line) {
  board& shown = *poot_board();
  const unsigned lane = poot_wave_lane();
  for (int n = 0; n < 16; ++n) {
    shown.a[lane][n] = number(a[n]);
    shown.b[lane][n] = number(b[n]);
  }
  poot_meet_wave(line);
  if (poot_wave_lanes() != 32) poot_wrong(DIVERGENT_WAVE, line);
  for (int n = 0; n < 16; ++n) {
    const bool same_a = shown.a[lane][n] == shown.a[lane ^ 16][n] || shown.a[lane][n] != shown.a[lane][n];
    const bool same_b = shown.b[lane][n] == shown.b[lane ^ 16][n] || shown.b[lane][n] != shown.b[lane][n];
    if (!same_a || !same_b) poot_wrong(UNEQUAL_COPIES, line);
  }
  for (int n = 0; n < 8; ++n) {
    for (int k = 0; k < 16; ++k) {
      c[n] += shown.a[2 * n + lane / 16][k] * shown.b[lane % 16][k];
    }
  }
  return c;
}
struct one {
  float value;
  float operator[](int) const { return value; }
};
}  // namespace poot

static inline poot::float4 __builtin_amdgcn_mfma_f32_16x16x16f16(
    poot::half4 a, poot::half4 b, poot::float4 c, int, int, int, int line = __builtin_LINE()) {
  return poot::mfma(a, b, c, 4, line);
}
static inline poot::float4 __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
    poot::short4 a, poot::short4 b, poot::float4 c, int, int, int, int line = __builtin_LINE()) {
  return poot::mfma(a, b, c, 4, line);
}
// 16x16x4: lane l has k = l / 16 alone.
static inline poot::float4 __builtin_amdgcn_mfma_f32_16x16x4f32(
    float a, float b, poot::float4 c, int, int, int, int line = __builtin_LINE()) {
  return poot::mfma(poot::one{a}, poot::one{b}, c, 1, line);
}
static inline poot::float8 __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
    poot::half16 a, poot::half16 b, poot::float8 c, int line = __builtin_LINE()) {
  return poot::wmma(a, b, c, line);
}
static inline poot::float8 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
    poot::short16 a, poot::short16 b, poot::float8 c, int line = __builtin_LINE()) {
  return poot::wmma(a, b, c, line);
}
