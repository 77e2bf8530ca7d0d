/* What this processor can do, by LLVM's names. */
#include <string.h>

#include "internal.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Where cpuid says so: leaf, subleaf, register (a, b, c, d), bit; and the states of registers that
 * the system has to keep for it, as xgetbv names them (Intel's manual, volume 2, CPUID; volume 1,
 * 13.3). */
enum { NONE = 0, YMM = 0x6, ZMM = 0xE6 };
static const struct {
    const char *name;
    unsigned leaf, subleaf, reg, bit, states;
} ROWS[] = {
    {"sse4.2", 1, 0, 2, 20, NONE},     {"fma", 1, 0, 2, 12, YMM},
    {"avx", 1, 0, 2, 28, YMM},         {"f16c", 1, 0, 2, 29, YMM},
    {"bmi", 7, 0, 1, 3, NONE},         {"avx2", 7, 0, 1, 5, YMM},
    {"bmi2", 7, 0, 1, 8, NONE},        {"avx512f", 7, 0, 1, 16, ZMM},
    {"avx512dq", 7, 0, 1, 17, ZMM},    {"avx512bw", 7, 0, 1, 30, ZMM},
    {"avx512vl", 7, 0, 1, 31, ZMM},    {"avx512vbmi", 7, 0, 2, 1, ZMM},
    {"avx512vnni", 7, 0, 2, 11, ZMM},  {"avx512bf16", 7, 1, 0, 5, ZMM},
};

static unsigned kept_states(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0; /* no xgetbv */
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

bool has_feature(const char *name, size_t nbytes) {
    for (size_t n = 0; n < sizeof ROWS / sizeof *ROWS; n++) {
        if (strlen(ROWS[n].name) != nbytes || memcmp(ROWS[n].name, name, nbytes)) continue;
        unsigned words[4] = {0};
        bool is_known = __get_cpuid_count(ROWS[n].leaf, ROWS[n].subleaf, &words[0], &words[1],
                                          &words[2], &words[3]);
        bool is_kept = (kept_states() & ROWS[n].states) == ROWS[n].states;
        return is_known && is_kept && words[ROWS[n].reg] >> ROWS[n].bit & 1;
    }
    return false;
}

#else

bool has_feature(const char *name, size_t nbytes) {
    (void)name, (void)nbytes;
    return false;
}

#endif
