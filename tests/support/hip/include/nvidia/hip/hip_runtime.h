// The words of HIP that poot's texts use, on CUDA: waves of 32, no matrix unit of AMD's.
#pragma once

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

#define _Float16 __half
// CUDA's headers still declare names that HIP has kept.
#define __shfl poot_shfl
#define __shfl_xor poot_shfl_xor
#define __ballot poot_ballot
#define __any poot_any
#define __all poot_all

#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_AGENT 4
#define __ATOMIC_RELAXED 0
#define __ATOMIC_ACQUIRE 2
#define __ATOMIC_RELEASE 3

#define __builtin_fmaf fmaf
#define __builtin_fabsf fabsf
#define __builtin_fminf fminf
#define __builtin_fmaxf fmaxf
#define __builtin_floorf floorf
#define __builtin_rintf rintf
#define __builtin_sqrtf sqrtf
#define __builtin_exp2f exp2f
#define __builtin_log2f log2f
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_inff() __int_as_float(0x7f800000)

namespace poot {
template <typename T, typename F>
static __device__ __forceinline__ T same_bits(F from) {
  static_assert(sizeof(T) == sizeof(F), "as many bits in as out");
  T to;
  memcpy(&to, &from, sizeof(T));
  return to;
}
}  // namespace poot
#define __builtin_bit_cast(type, value) poot::same_bits<type>(value)

template <typename T>
static __device__ __forceinline__ T __builtin_nontemporal_load(const T* at) {
  return __ldcs(at);
}
template <typename T>
static __device__ __forceinline__ void __builtin_nontemporal_store(T value, T* at) {
  __stcs(at, value);
}
template <typename T>
static __device__ __forceinline__ T __hip_atomic_load(const T* at, int, int) {
  return *(const volatile T*)at;
}
template <typename T>
static __device__ __forceinline__ void __hip_atomic_store(T* at, T value, int, int) {
  *(volatile T*)at = value;
}
#define POOT_ATOMIC(name, call)                                               \
  template <typename T>                                                       \
  static __device__ __forceinline__ T name(T* at, T value, int, int) {        \
    return call(at, value);                                                   \
  }
POOT_ATOMIC(__hip_atomic_fetch_add, atomicAdd)
POOT_ATOMIC(__hip_atomic_fetch_max, atomicMax)
POOT_ATOMIC(__hip_atomic_fetch_min, atomicMin)
POOT_ATOMIC(__hip_atomic_fetch_and, atomicAnd)
POOT_ATOMIC(__hip_atomic_fetch_or, atomicOr)
POOT_ATOMIC(__hip_atomic_exchange, atomicExch)
#undef POOT_ATOMIC

template <typename T>
static __device__ __forceinline__ T __shfl(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <typename T>
static __device__ __forceinline__ T __shfl_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
static __device__ __forceinline__ unsigned long long __ballot(int truth) {
  return __ballot_sync(0xffffffffu, truth);
}
static __device__ __forceinline__ int __any(int truth) { return __any_sync(0xffffffffu, truth); }
static __device__ __forceinline__ int __all(int truth) { return __all_sync(0xffffffffu, truth); }
static __device__ __forceinline__ void __builtin_amdgcn_wave_barrier() { __syncwarp(); }
static __device__ __forceinline__ void __builtin_amdgcn_fence(int, const char*) {}
