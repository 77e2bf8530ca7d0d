/* A libcuda.so.1 for tests: each function of the driver that the C runtime uses, handed on to what
 * `stand_in_set` was given for it. */
#include <stddef.h>
#include <stdint.h>

typedef uint64_t pointer;
typedef void *handle;

#define FUNCTIONS(F)                                                                               \
    F(cuInit, (unsigned a), (a))                                                                   \
    F(cuDeviceGet, (int *a, int b), (a, b))                                                        \
    F(cuDeviceGetName, (char *a, int b, int c), (a, b, c))                                         \
    F(cuDeviceTotalMem_v2, (size_t *a, int b), (a, b))                                             \
    F(cuDeviceGetAttribute, (int *a, int b, int c), (a, b, c))                                     \
    F(cuDevicePrimaryCtxRetain, (handle *a, int b), (a, b))                                        \
    F(cuDevicePrimaryCtxRelease_v2, (int a), (a))                                                  \
    F(cuCtxPushCurrent_v2, (handle a), (a))                                                        \
    F(cuCtxPopCurrent_v2, (handle *a), (a))                                                        \
    F(cuStreamCreate, (handle *a, unsigned b), (a, b))                                             \
    F(cuStreamDestroy_v2, (handle a), (a))                                                         \
    F(cuStreamSynchronize, (handle a), (a))                                                        \
    F(cuMemAlloc_v2, (pointer *a, size_t b), (a, b))                                               \
    F(cuMemFree_v2, (pointer a), (a))                                                              \
    F(cuMemsetD8Async, (pointer a, unsigned char b, size_t c, handle d), (a, b, c, d))             \
    F(cuMemcpyHtoDAsync_v2, (pointer a, const void *b, size_t c, handle d), (a, b, c, d))          \
    F(cuMemcpyDtoHAsync_v2, (void *a, pointer b, size_t c, handle d), (a, b, c, d))                \
    F(cuModuleLoadData, (handle *a, const void *b), (a, b))                                        \
    F(cuModuleUnload, (handle a), (a))                                                             \
    F(cuModuleGetFunction, (handle *a, handle b, const char *c), (a, b, c))                        \
    F(cuFuncSetAttribute, (handle a, int b, int c), (a, b, c))                                     \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *a, handle b, int c, size_t d),            \
      (a, b, c, d))                                                                                \
    F(cuLaunchKernelEx, (const void *a, handle b, void **c, void **d), (a, b, c, d))               \
    F(cuStreamBeginCapture_v2, (handle a, int b), (a, b))                                          \
    F(cuStreamEndCapture, (handle a, handle *b), (a, b))                                           \
    F(cuGraphInstantiateWithFlags, (handle *a, handle b, unsigned long long c), (a, b, c))         \
    F(cuGraphLaunch, (handle a, handle b), (a, b))                                                 \
    F(cuGraphDestroy, (handle a), (a))                                                             \
    F(cuGraphExecDestroy, (handle a), (a))                                                         \
    F(cuGetErrorName, (int a, const char **b), (a, b))                                             \
    F(cuTensorMapEncodeTiled,                                                                      \
      (void *a, int b, uint32_t c, void *d, const uint64_t *e, const uint64_t *f,                  \
       const uint32_t *g, const uint32_t *h, int i, int j, int k, int l),                          \
      (a, b, c, d, e, f, g, h, i, j, k, l))

#define DEFINE(name, arguments, given)                                                             \
    int(*set_##name) arguments;                                                                    \
    int name arguments { return set_##name given; }
FUNCTIONS(DEFINE)
