// The words of HIP that poot's texts use, for AMD GPUs, by the compiler's builtins alone: what
// stands in for ROCm's header where code objects are made without ROCm.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(lanes) __attribute__((amdgpu_flat_work_group_size(1, lanes)))

namespace poot {
// A member that is read by a call, as HIP's own index types do it.
#define POOT_AXIS(axis, value)                              \
  __declspec(property(get = get_##axis)) unsigned axis;     \
  static __device__ __forceinline__ unsigned get_##axis() { return value; }

struct lane_index {
  POOT_AXIS(x, __builtin_amdgcn_workitem_id_x())
  POOT_AXIS(y, __builtin_amdgcn_workitem_id_y())
  POOT_AXIS(z, __builtin_amdgcn_workitem_id_z())
};
struct group_index {
  POOT_AXIS(x, __builtin_amdgcn_workgroup_id_x())
  POOT_AXIS(y, __builtin_amdgcn_workgroup_id_y())
  POOT_AXIS(z, __builtin_amdgcn_workgroup_id_z())
};
struct grid_size {
  POOT_AXIS(x, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x())
  POOT_AXIS(y, __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y())
  POOT_AXIS(z, __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
};
#undef POOT_AXIS

static __device__ __forceinline__ int own_lane() {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}

// A value of 4 or 8 bytes from another lane, a word at a time.
template <typename T>
static __device__ __forceinline__ T from_lane(T value, int lane) {
  int words[sizeof(T) / 4];
  __builtin_memcpy(words, &value, sizeof(T));
  for (unsigned n = 0; n < sizeof(T) / 4; ++n) {
    words[n] = __builtin_amdgcn_ds_bpermute(lane << 2, words[n]);
  }
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}
}  // namespace poot

static const __device__ poot::lane_index threadIdx{};
static const __device__ poot::group_index blockIdx{};
static const __device__ poot::grid_size gridDim{};

static __device__ __forceinline__ void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ __forceinline__ void __threadfence_block() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
}
static __device__ __forceinline__ void __threadfence() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}

template <typename T>
static __device__ __forceinline__ T __shfl(T value, int lane) {
  return poot::from_lane(value, lane);
}
template <typename T>
static __device__ __forceinline__ T __shfl_xor(T value, int mask) {
  return poot::from_lane(value, poot::own_lane() ^ mask);
}
static __device__ __forceinline__ unsigned long long __ballot(int truth) {
#if defined(__GFX9__)  // waves of 64; later ones are of 32 unless asked otherwise
  return __builtin_amdgcn_ballot_w64(truth != 0);
#else
  return __builtin_amdgcn_ballot_w32(truth != 0);
#endif
}
static __device__ __forceinline__ int __any(int truth) { return __ballot(truth) != 0; }
static __device__ __forceinline__ int __all(int truth) { return __ballot(!truth) == 0; }
