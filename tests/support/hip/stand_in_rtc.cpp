// A stand-in for libhiprtc.so: the calls that poot makes, with a compiler that a test gives.
#include <stddef.h>
#include <string.h>

#include <atomic>
#include <string>

#define HIP extern "C" __attribute__((visibility("default")))

namespace {
// Compiles a text with options, a line each: gives code (true) or a log, by poot_rtc_answer on the
// program. Several threads may compile at once.
typedef bool (*compiler)(void* program, const char* text, const char* name, const char* options);

struct program {
  std::string text, name, code, log;
};

compiler given;
std::string failing;
int failure;
std::atomic<int> compiles;

int told(const char* name) {
  if (failing != name) return 0;
  failing.clear();
  return failure;
}
}  // namespace

HIP void poot_rtc_compiler(compiler made) { given = made; }
HIP void poot_rtc_answer(void* at, const char* bytes, size_t nbytes, bool is_code) {
  program* own = (program*)at;
  (is_code ? own->code : own->log).assign(bytes, nbytes);
}
HIP void poot_rtc_fail(const char* call, int with) {
  failing = call;
  failure = with;
}
HIP int poot_rtc_compiles() { return compiles; }

HIP int hiprtcVersion(int* major, int* minor) {
  if (int e = told("hiprtcVersion")) return e;
  *major = 6;
  *minor = 4;
  return 0;
}
HIP int hiprtcCreateProgram(void** out, const char* text, const char* name, int headers, const char**,
                            const char**) {
  if (int e = told("hiprtcCreateProgram")) return e;
  if (headers) return 3;  // HIPRTC_ERROR_INVALID_INPUT
  program* made = new program;
  made->text = text;
  made->name = name;
  *out = made;
  return 0;
}
HIP int hiprtcCompileProgram(void* at, int count, const char** options) {
  if (int e = told("hiprtcCompileProgram")) return e;
  const program* own = (program*)at;
  std::string words;
  for (int n = 0; n < count; ++n) words += std::string(options[n]) + "\n";
  ++compiles;
  const bool is_well = given(at, own->text.c_str(), own->name.c_str(), words.c_str());
  return is_well ? 0 : 6;  // HIPRTC_ERROR_COMPILATION
}
HIP int hiprtcGetProgramLogSize(void* at, size_t* out) {
  *out = ((program*)at)->log.size() + 1;
  return 0;
}
HIP int hiprtcGetProgramLog(void* at, char* out) {
  memcpy(out, ((program*)at)->log.c_str(), ((program*)at)->log.size() + 1);
  return 0;
}
HIP int hiprtcGetCodeSize(void* at, size_t* out) {
  if (int e = told("hiprtcGetCodeSize")) return e;
  *out = ((program*)at)->code.size();
  return 0;
}
HIP int hiprtcGetCode(void* at, char* out) {
  if (int e = told("hiprtcGetCode")) return e;
  memcpy(out, ((program*)at)->code.data(), ((program*)at)->code.size());
  return 0;
}
HIP int hiprtcDestroyProgram(void** at) {
  delete (program*)*at;
  return 0;
}
