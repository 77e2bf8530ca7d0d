// The words of HIP that poot's texts use, for a CPU: what doesn't depend on how lanes are run.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(lanes)
// Workgroup memory is static, in a section of the kernel's own: the runner fills it with poison
// before each group. POOT_SHARED is the section's name, set before each kernel's text.
#define __shared__ static __attribute__((section(POOT_SHARED)))

#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4

namespace poot {
struct index3 {
  unsigned x, y, z;
};

// The numbers 0, 1 .. n - 1 as a type.
template <size_t... I>
struct integers {};
template <size_t N, size_t... I>
struct count : count<N - 1, N - 1, I...> {};
template <size_t... I>
struct count<0, I...> {
  typedef integers<I...> type;
};

template <typename T, typename F>
static inline T exchange(T* at, F fold) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(at, &old, fold(old), true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
}  // namespace poot

template <typename T>
static inline T __hip_atomic_load(const T* at, int, int) {
  T value;
  __atomic_load(const_cast<T*>(at), &value, __ATOMIC_RELAXED);
  return value;
}
template <typename T>
static inline void __hip_atomic_store(T* at, T value, int, int) {
  __atomic_store(at, &value, __ATOMIC_RELAXED);
}
template <typename T>
static inline T __hip_atomic_fetch_add(T* at, T value, int, int) {
  return poot::exchange(at, [=](T old) { return old + value; });
}
template <typename T>
static inline T __hip_atomic_fetch_max(T* at, T value, int, int) {
  return poot::exchange(at, [=](T old) { return old > value ? old : value; });
}
template <typename T>
static inline T __hip_atomic_fetch_min(T* at, T value, int, int) {
  return poot::exchange(at, [=](T old) { return old < value ? old : value; });
}
template <typename T>
static inline T __hip_atomic_fetch_and(T* at, T value, int, int) {
  return poot::exchange(at, [=](T old) { return old & value; });
}
template <typename T>
static inline T __hip_atomic_fetch_or(T* at, T value, int, int) {
  return poot::exchange(at, [=](T old) { return old | value; });
}
template <typename T>
static inline T __hip_atomic_exchange(T* at, T value, int, int) {
  return poot::exchange(at, [=](T) { return value; });
}

template <typename T>
static inline T __builtin_nontemporal_load(const T* at) {
  return *at;
}
template <typename T>
static inline void __builtin_nontemporal_store(T value, T* at) {
  *at = value;
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __builtin_amdgcn_fence(int, const char*) {}

#ifndef __FMA__  // rounded twice, which the kernel IR allows
#define __builtin_fmaf(a, b, c) ((a) * (b) + (c))
#endif
