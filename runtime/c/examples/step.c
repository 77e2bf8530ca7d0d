/* The least that a program does with a bundle: loads it, binds it, and steps it with slots of zeros.
 *
 *     step BUNDLE WEIGHTS cpu|vulkan|cuda STEPS
 *
 * Prints a sum over the bytes of each step's outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poot.h"

static poot_error error;

static int said(const char *what) {
    fprintf(stderr, "step: %s: %s\n", what, error.message);
    return 2;
}

static poot_status set_zeros(poot_session *session, const poot_program *program, int entry) {
    poot_tensor t;
    for (int n = 0; poot_input(program, entry, n, &t); n++) {
        if (t.storage != POOT_SLOT) continue;
        void *zeros = calloc(1, t.nbytes + 1);
        poot_status status = POOT_ERROR_MEMORY;
        if (zeros != NULL) status = poot_set(session, entry, t.name, zeros, t.nbytes, &error);
        free(zeros);
        if (status != POOT_OK) return status;
    }
    return POOT_OK;
}

static unsigned sum_outputs(poot_session *session, const poot_program *program, int entry) {
    unsigned sum = 0;
    poot_tensor t;
    for (int n = 0; poot_output(program, entry, n, &t); n++) {
        unsigned char *data = malloc(t.nbytes + 1);
        if (data != NULL && poot_get(session, entry, n, data, t.nbytes, &error) == POOT_OK)
            for (size_t i = 0; i < t.nbytes; i++) sum = sum * 31 + data[i];
        free(data);
    }
    return sum;
}

int main(int count, char **arguments) {
    poot_program *program = NULL;
    poot_device *device = NULL;
    poot_session *session = NULL;
    if (count < 5) return fprintf(stderr, "usage: step BUNDLE WEIGHTS DEVICE STEPS\n"), 1;
    if (poot_load(arguments[1], &program, &error)) return said("load");
    poot_status status = strcmp(arguments[3], "vulkan") == 0 ? poot_open_vulkan(0, &device, &error)
                         : strcmp(arguments[3], "cuda") == 0 ? poot_open_cuda(0, &device, &error)
                                                             : poot_open_cpu(0, 0, &device, &error);
    if (status == POOT_OK) status = poot_bind(program, device, arguments[2], &session, &error);
    for (int n = 0; n < atoi(arguments[4]) && status == POOT_OK; n++) {
        status = set_zeros(session, program, 0);
        if (status == POOT_OK) status = poot_step(session, 0, &error);
        if (status == POOT_OK) printf("%08x\n", sum_outputs(session, program, 0));
    }
    poot_session_close(session);
    poot_device_close(device);
    poot_program_free(program);
    return status == POOT_OK ? 0 : said("step");
}
