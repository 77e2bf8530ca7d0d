/* Decodes a language model that was saved by smollm2.py, without Python.
 *
 *     decode FOLDER cpu|vulkan|cuda TOKENS [LOGITS]
 *
 * FOLDER has model.poot, model.safetensors, prompt.txt (token ids) and vocabulary.bin. Prints the
 * text that greedy decoding continues the prompt with; LOGITS gets each step's logits, f32. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "poot.h"

enum { MOST_TOKENS = 4096 };

static poot_error error;

static void need(poot_status status) {
    if (status == POOT_OK) return;
    fprintf(stderr, "decode: %s\n", error.message);
    exit(2);
}

static char *join(const char *folder, const char *name) {
    static char path[4][4096];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static int read_prompt(const char *path, int32_t *ids) {
    FILE *file = fopen(path, "r");
    int count = 0, id;
    while (file != NULL && count < MOST_TOKENS && fscanf(file, "%d", &id) == 1) ids[count++] = id;
    if (file != NULL) fclose(file);
    return count;
}

/* The vocabulary: for each token a length, u32, and its bytes. */
typedef struct vocabulary {
    uint8_t *data;
    size_t nbytes;
} vocabulary;

static vocabulary read_vocabulary(const char *path) {
    vocabulary v = {NULL, 0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) return v;
    fseek(file, 0, SEEK_END);
    long nbytes = ftell(file);
    rewind(file);
    v.data = nbytes > 0 ? malloc((size_t)nbytes) : NULL;
    if (v.data != NULL) v.nbytes = fread(v.data, 1, (size_t)nbytes, file);
    fclose(file);
    return v;
}

static void print_token(const vocabulary *v, int32_t id) {
    size_t at = 0;
    for (int32_t n = 0; at + 4 <= v->nbytes; n++) {
        uint32_t length;
        memcpy(&length, v->data + at, 4);
        at += 4;
        if (length > v->nbytes - at) return;
        if (n == id) {
            fwrite(v->data + at, 1, length, stdout);
            fflush(stdout);
            return;
        }
        at += length;
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static poot_device *open_device(const char *name) {
    poot_device *device = NULL;
    if (strcmp(name, "vulkan") == 0)
        need(poot_open_vulkan(0, &device, &error));
    else if (strcmp(name, "cuda") == 0)
        need(poot_open_cuda(0, &device, &error));
    else
        need(poot_open_cpu(0, 0, &device, &error));
    return device;
}

int main(int count, char **arguments) {
    if (count < 4) {
        fprintf(stderr, "usage: decode FOLDER cpu|vulkan|cuda TOKENS [LOGITS]\n");
        return 1;
    }
    const char *folder = arguments[1];
    int32_t ids[MOST_TOKENS];
    int given = read_prompt(join(folder, "prompt.txt"), ids), wanted = atoi(arguments[3]);
    vocabulary words = read_vocabulary(join(folder, "vocabulary.bin"));
    FILE *file = count > 4 ? fopen(arguments[4], "wb") : NULL;

    poot_program *program = NULL;
    poot_session *session = NULL;
    need(poot_load(join(folder, "model.poot"), &program, &error));
    poot_device *device = open_device(arguments[2]);
    need(poot_bind(program, device, join(folder, "model.safetensors"), &session, &error));
    int decode = poot_entry_find(program, "decode");
    poot_tensor logits;
    if (given == 0 || !poot_output(program, decode, 0, &logits)) {
        fprintf(stderr, "decode: %s has no prompt, or no entry point decode\n", folder);
        return 2;
    }
    float *row = malloc(logits.nbytes);
    size_t vocab = logits.nbytes / sizeof *row;
    double start = 0;
    if (row == NULL) return 2;
    for (int n = 0; n < given; n++) print_token(&words, ids[n]);
    for (int32_t pos = 0; pos < given + wanted - 1 && pos < MOST_TOKENS - 1; pos++) {
        if (pos == given) start = seconds();
        need(poot_set(session, decode, "tokens", &ids[pos], sizeof ids[pos], &error));
        need(poot_set(session, decode, "pos", &pos, sizeof pos, &error));
        need(poot_step(session, decode, &error));
        need(poot_get(session, decode, 0, row, logits.nbytes, &error));
        if (file != NULL) fwrite(row, 1, logits.nbytes, file);
        if (pos + 1 < given) continue;
        size_t best = 0;
        for (size_t n = 1; n < vocab; n++)
            if (row[n] > row[best]) best = n;
        ids[pos + 1] = (int32_t)best;
        print_token(&words, ids[pos + 1]);
    }
    printf("\n");
    if (wanted > 1)
        fprintf(stderr, "%s: %.1f tokens/s\n", poot_device_name(device),
                (wanted - 1) / (seconds() - start));
    if (file != NULL) fclose(file);
    free(row);
    free(words.data);
    poot_session_close(session);
    poot_device_close(device);
    poot_program_free(program);
    return 0;
}
