// A stand-in for libamdhip64.so: the part of HIP's C interface that poot calls, over the fiber runner
// or, asked for "cuda", forwarded to an NVIDIA driver. It keeps a log of the calls, refuses what HIP
// refuses (unknown memory, empty grids, launches of 2^32 lanes), and fails a call when told to.
//
// For the runner an image is a library of kernels; for CUDA it is a cubin.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#define HIP extern "C" __attribute__((visibility("default")))

namespace {
typedef int status;
// Numbers of hipError_t (HIP API reference, "Error handling").
const status SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONFIGURATION = 9;
const status NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, LAUNCH_FAILURE = 719;
const status CAPTURE_INVALIDATED = 901;

struct kernel {
  void (*call)(void**);
  char *shared = 0, *shared_stop = 0;
  int meets = 1;
  void* forwarded = 0;
};
struct module {
  void* library = 0;
  void* forwarded = 0;
  std::map<std::string, kernel> kernels;
};
struct graph {
  std::vector<std::function<status()>> launches;
};
struct stream {
  graph* capturing = 0;
  void* forwarded = 0;
};
struct event {
  double seconds = 0;
};

std::map<char*, size_t> memory;
std::vector<char> properties;
std::string logged, failing;
status failure = 0;
size_t budget = (size_t)8 << 30, used = 0;
unsigned wave = 64;
bool on_cuda = false;
stream first_stream;
graph noted;  // what a stream captures into where the driver does the capturing

// One line of the log; the status that the call is told to fail with, once.
status begin(const char* name, const std::string& words = "") {
  logged += name + words + "\n";
  if (failing != name) return SUCCESS;
  failing.clear();
  return failure;
}
#define BEGIN(...)                         \
  if (status told = begin(__VA_ARGS__)) return told

void* driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* found = library ? dlsym(library, name) : 0;
  if (!found) {
    fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    abort();
  }
  return found;
}
#define CUDA(name, ...) ((int (*)(...))driver(name))(__VA_ARGS__)

stream* of(void* handle) { return handle ? (stream*)handle : &first_stream; }

// The allocation that holds these bytes whole.
bool holds(const void* at, size_t nbytes) {
  auto next = memory.upper_bound((char*)at);
  if (next == memory.begin()) return false;
  --next;
  return (char*)at + nbytes <= next->first + next->second;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

struct report {
  int what;
  unsigned group[3], lane, other;
  int line, other_line;
  uint64_t address;
};
typedef int (*run_t)(void (*)(void**), void**, const unsigned*, unsigned, unsigned, int, int, char*,
                     char*, report*);

status run(const kernel& k, std::vector<char> args, unsigned x, unsigned y, unsigned z, unsigned lanes) {
  static run_t runner = (run_t)dlsym(RTLD_DEFAULT, "poot_run");
  if (!runner) return NOT_FOUND;
  // The arguments lie packed, each at its alignment; the kernel's own wrapper knows their types.
  void* packed = args.data();
  const unsigned grid[3] = {x, y, z};
  report said;
  if (!runner(k.call, &packed, grid, lanes, wave, k.meets, 2, k.shared, k.shared_stop, &said)) {
    return SUCCESS;
  }
  fprintf(stderr, "stand-in: error %d in group %u %u %u, lane %u at line %d, lane %u at line %d\n",
          said.what, said.group[0], said.group[1], said.group[2], said.lane, said.line, said.other,
          said.other_line);
  return LAUNCH_FAILURE;
}
}  // namespace

// What tests say and ask.
HIP void poot_stand_in_properties(const char* bytes, size_t nbytes, unsigned lanes, size_t most) {
  properties.assign(bytes, bytes + nbytes);
  wave = lanes;
  budget = most;
}
HIP void poot_stand_in_use_cuda() { on_cuda = true; }
HIP void poot_stand_in_fail(const char* call, status with) {
  failing = call;
  failure = with;
}
HIP const char* poot_stand_in_log() { return logged.c_str(); }
HIP void poot_stand_in_clear() { logged.clear(); }
HIP size_t poot_stand_in_used() { return used; }

// Devices
HIP status hipInit(unsigned) {
  BEGIN("hipInit");
  if (!on_cuda) return SUCCESS;
  int device;
  void* context;
  if (int e = CUDA("cuInit", 0)) return e;
  if (int e = CUDA("cuDeviceGet", &device, 0)) return e;
  if (int e = CUDA("cuDevicePrimaryCtxRetain", &context, device)) return e;
  return CUDA("cuCtxSetCurrent", context);
}
HIP status hipGetDeviceCount(int* count) {
  BEGIN("hipGetDeviceCount");
  *count = 1;
  return SUCCESS;
}
HIP status hipSetDevice(int) {
  if (on_cuda) {
    void* context;
    if (int e = CUDA("cuDevicePrimaryCtxRetain", &context, 0)) return e;
    return CUDA("cuCtxSetCurrent", context);
  }
  return failing == "hipSetDevice" ? begin("hipSetDevice") : SUCCESS;
}
HIP status hipRuntimeGetVersion(int* version) {
  BEGIN("hipRuntimeGetVersion");
  *version = 60400000;
  return SUCCESS;
}
HIP status hipGetDevicePropertiesR0600(void* out, int) {
  BEGIN("hipGetDeviceProperties");
  memcpy(out, properties.data(), properties.size());
  return SUCCESS;
}
HIP const char* hipGetErrorString(status) { return "an error of the stand-in"; }

// Memory
HIP status hipMalloc(void** out, size_t nbytes) {
  BEGIN("hipMalloc");
  if (on_cuda) return CUDA("cuMemAlloc_v2", out, nbytes);
  if (nbytes > budget - used) return OUT_OF_MEMORY;
  char* got = (char*)aligned_alloc(256, (nbytes + 255) / 256 * 256);
  if (!got) return OUT_OF_MEMORY;
  memset(got, 0xa5, nbytes);
  memory[got] = nbytes;
  used += nbytes;
  *out = got;
  return SUCCESS;
}
HIP status hipFree(void* at) {
  BEGIN("hipFree");
  if (on_cuda) return CUDA("cuMemFree_v2", at);
  auto found = memory.find((char*)at);
  if (found == memory.end()) return INVALID_VALUE;
  used -= found->second;
  memory.erase(found);
  free(at);
  return SUCCESS;
}
HIP status hipMemGetInfo(size_t* free_bytes, size_t* total) {
  BEGIN("hipMemGetInfo");
  if (on_cuda) return CUDA("cuMemGetInfo_v2", free_bytes, total);
  *free_bytes = budget - used;
  *total = budget;
  return SUCCESS;
}
HIP status hipMemsetAsync(void* at, int value, size_t nbytes, void* on) {
  BEGIN("hipMemsetAsync");
  if (on_cuda) return CUDA("cuMemsetD8Async", at, value, nbytes, of(on)->forwarded);
  if (!holds(at, nbytes)) return INVALID_VALUE;
  memset(at, value, nbytes);
  return SUCCESS;
}
HIP status hipMemcpyAsync(void* to, const void* from, size_t nbytes, int kind, void* on) {
  BEGIN("hipMemcpyAsync", " " + std::to_string(kind));
  if (on_cuda) {
    void* s = of(on)->forwarded;
    if (kind == 1) return CUDA("cuMemcpyHtoDAsync_v2", to, from, nbytes, s);
    if (kind == 2) return CUDA("cuMemcpyDtoHAsync_v2", to, from, nbytes, s);
    return CUDA("cuMemcpyDtoDAsync_v2", to, from, nbytes, s);
  }
  if (of(on)->capturing) return CAPTURE_INVALIDATED;
  if ((kind == 1 || kind == 3) && !holds(to, nbytes)) return INVALID_VALUE;
  if ((kind == 2 || kind == 3) && !holds(from, nbytes)) return INVALID_VALUE;
  memcpy(to, from, nbytes);
  return SUCCESS;
}

// Streams and events
HIP status hipStreamCreateWithFlags(void** out, unsigned flags) {
  BEGIN("hipStreamCreateWithFlags");
  stream* made = new stream;
  *out = made;
  return on_cuda ? CUDA("cuStreamCreate", &made->forwarded, flags) : SUCCESS;
}
HIP status hipStreamDestroy(void* at) {
  BEGIN("hipStreamDestroy");
  if (on_cuda) CUDA("cuStreamDestroy_v2", of(at)->forwarded);
  delete (stream*)at;
  return SUCCESS;
}
HIP status hipStreamSynchronize(void* on) {
  BEGIN("hipStreamSynchronize");
  return on_cuda ? CUDA("cuStreamSynchronize", of(on)->forwarded) : SUCCESS;
}
HIP status hipEventCreate(void** out) {
  BEGIN("hipEventCreate");
  if (on_cuda) return CUDA("cuEventCreate", out, 0);
  *out = new event;
  return SUCCESS;
}
HIP status hipEventRecord(void* at, void* on) {
  BEGIN("hipEventRecord");
  if (on_cuda) return CUDA("cuEventRecord", at, of(on)->forwarded);
  ((event*)at)->seconds = now();
  return SUCCESS;
}
HIP status hipEventElapsedTime(float* ms, void* start, void* stop) {
  BEGIN("hipEventElapsedTime");
  if (on_cuda) return CUDA("cuEventElapsedTime", ms, start, stop);
  *ms = (float)((((event*)stop)->seconds - ((event*)start)->seconds) * 1e3);
  return SUCCESS;
}
HIP status hipEventDestroy(void* at) {
  BEGIN("hipEventDestroy");
  if (on_cuda) return CUDA("cuEventDestroy_v2", at);
  delete (event*)at;
  return SUCCESS;
}

// Modules. The size of an ELF image is the end of its section headers.
HIP status hipModuleLoadData(void** out, const void* image) {
  BEGIN("hipModuleLoadData");
  module* made = new module;
  *out = made;
  if (on_cuda) return CUDA("cuModuleLoadData", &made->forwarded, image);
  const char* bytes = (const char*)image;
  uint64_t headers;
  uint16_t size, count, machine;
  memcpy(&headers, bytes + 40, 8);
  memcpy(&size, bytes + 58, 2);
  memcpy(&count, bytes + 60, 2);
  memcpy(&machine, bytes + 18, 2);
  if (memcmp(bytes, "\x7f" "ELF", 4) || machine == 224) return NO_BINARY;  // 224: an AMD GPU's own
  char name[] = "/tmp/poot-stand-in-XXXXXX";
  const int file = mkstemp(name);
  if (file < 0) return OUT_OF_MEMORY;
  const size_t nbytes = headers + (size_t)size * count;
  const bool whole = write(file, bytes, nbytes) == (ssize_t)nbytes;
  close(file);
  if (whole) made->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  unlink(name);
  return made->library ? SUCCESS : NO_BINARY;
}
HIP status hipModuleUnload(void* at) {
  BEGIN("hipModuleUnload");
  module* own = (module*)at;
  if (on_cuda) CUDA("cuModuleUnload", own->forwarded);
  if (own->library) dlclose(own->library);
  delete own;
  return SUCCESS;
}
HIP status hipModuleGetFunction(void** out, void* at, const char* name) {
  BEGIN("hipModuleGetFunction", std::string(" ") + name);
  module* own = (module*)at;
  kernel& k = own->kernels[name];
  *out = &k;
  if (on_cuda) return CUDA("cuModuleGetFunction", &k.forwarded, own->forwarded, name);
  const std::string tail = name;
  k.call = (void (*)(void**))dlsym(own->library, ("poot_packed_" + tail).c_str());
  if (!k.call) return NOT_FOUND;
  auto where = (void (*)(char**, char**))dlsym(own->library, ("poot_where_" + tail).c_str());
  if (where) where(&k.shared, &k.shared_stop);
  return SUCCESS;
}
HIP status hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned lanes,
                                 unsigned b, unsigned c, unsigned shared, void* on, void** params,
                                 void** extra) {
  BEGIN("hipModuleLaunchKernel", of(on)->capturing ? " captured" : "");
  const uint64_t across = (uint64_t)x * lanes;
  if (!x || !y || !z || !lanes || b != 1 || c != 1 || lanes > 1024) return INVALID_CONFIGURATION;
  if (across >> 32) return INVALID_CONFIGURATION;
  if (params || !extra) return INVALID_VALUE;
  void* buffer = 0;
  size_t nbytes = 0;
  for (int n = 0; extra[n] != (void*)3; n += 2) {  // HIP_LAUNCH_PARAM_END
    if (extra[n] == (void*)1) buffer = extra[n + 1];
    else if (extra[n] == (void*)2) nbytes = *(size_t*)extra[n + 1];
    else return INVALID_VALUE;
  }
  kernel& k = *(kernel*)function;
  if (on_cuda) {
    void* given[] = {(void*)1, buffer, (void*)2, &nbytes, 0};
    return CUDA("cuLaunchKernel", k.forwarded, x, y, z, lanes, 1, 1, shared, of(on)->forwarded,
                (void**)0, (void**)given);
  }
  std::vector<char> args((char*)buffer, (char*)buffer + nbytes);
  auto launch = [=, &k] { return run(k, args, x, y, z, lanes); };
  if (!of(on)->capturing) return launch();
  of(on)->capturing->launches.push_back(launch);
  return SUCCESS;
}

// Graphs
HIP status hipStreamBeginCapture(void* on, int mode) {
  BEGIN("hipStreamBeginCapture");
  if (of(on)->capturing) return INVALID_VALUE;
  if (on_cuda) {
    const status said = CUDA("cuStreamBeginCapture_v2", of(on)->forwarded, mode);
    if (!said) of(on)->capturing = &noted;
    return said;
  }
  of(on)->capturing = new graph;
  return SUCCESS;
}
HIP status hipStreamEndCapture(void* on, void** out) {
  BEGIN("hipStreamEndCapture");
  if (!of(on)->capturing) return INVALID_HANDLE;
  if (on_cuda) {
    of(on)->capturing = 0;
    return CUDA("cuStreamEndCapture", of(on)->forwarded, out);
  }
  *out = of(on)->capturing;
  of(on)->capturing = 0;
  return SUCCESS;
}
HIP status hipGraphInstantiateWithFlags(void** out, void* from, unsigned long long flags) {
  BEGIN("hipGraphInstantiateWithFlags");
  if (on_cuda) return CUDA("cuGraphInstantiateWithFlags", out, from, flags);
  *out = new graph(*(graph*)from);
  return SUCCESS;
}
HIP status hipGraphLaunch(void* ready, void* on) {
  BEGIN("hipGraphLaunch");
  if (on_cuda) return CUDA("cuGraphLaunch", ready, of(on)->forwarded);
  for (auto& launch : ((graph*)ready)->launches) {
    if (status e = launch()) return e;
  }
  return SUCCESS;
}
HIP status hipGraphDestroy(void* at) {
  BEGIN("hipGraphDestroy");
  if (on_cuda) return CUDA("cuGraphDestroy", at);
  delete (graph*)at;
  return SUCCESS;
}
HIP status hipGraphExecDestroy(void* at) {
  BEGIN("hipGraphExecDestroy");
  if (on_cuda) return CUDA("cuGraphExecDestroy", at);
  delete (graph*)at;
  return SUCCESS;
}
