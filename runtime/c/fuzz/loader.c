/* A fuzzer's way into the loader: libFuzzer's entry point, and a main for AFL++ and for replaying.
 *
 * The first byte of an input says what the rest is: a whole bundle; a manifest, which stands in a
 * bundle with the members of the seed (a bundle's path in POOT_FUZZ_SEED) and a right checksum; or
 * an object file, which is mapped and never run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

static uint32_t crc_of(const uint8_t *data, size_t nbytes) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t n = 0; n < nbytes; n++) {
        crc ^= data[n];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return ~crc;
}

static uint8_t *put(uint8_t *at, uint64_t value, int nbytes) {
    for (int n = 0; n < nbytes; n++) *at++ = (uint8_t)(value >> 8 * n);
    return at;
}

static uint8_t *put_bytes(uint8_t *at, const void *data, size_t nbytes) {
    if (nbytes) memcpy(at, data, nbytes);
    return at + nbytes;
}

static uint8_t *put_fields(uint8_t *at, const member *m, uint32_t crc) {
    at = put(put(put(put(at, 20, 2), 0, 2), 0, 2), 0x00210000, 4);
    return put(put(put(put(put(at, crc, 4), m->nbytes, 4), m->nbytes, 4), strlen(m->name), 2), 0, 2);
}

/* A zip of members; the caller frees it. */
static uint8_t *pack(const member *members, const uint32_t *crcs, size_t count, size_t *nbytes) {
    size_t total = 22;
    for (size_t n = 0; n < count; n++)
        total += 30 + 46 + 2 * strlen(members[n].name) + members[n].nbytes;
    uint8_t *made = malloc(total), *at = made;
    if (made == NULL) abort();
    uint32_t *starts = calloc(count + 1, sizeof *starts);
    for (size_t n = 0; n < count; n++) {
        starts[n] = (uint32_t)(at - made);
        at = put_fields(put(at, 0x04034B50, 4), &members[n], crcs[n]);
        at = put_bytes(at, members[n].name, strlen(members[n].name));
        at = put_bytes(at, members[n].data, members[n].nbytes);
    }
    starts[count] = (uint32_t)(at - made);
    for (size_t n = 0; n < count; n++) {
        at = put(put(at, 0x02014B50, 4), 20, 2);
        at = put_fields(at, &members[n], crcs[n]);
        at = put(put(put(put(at, 0, 4), 0, 2), 0, 4), starts[n], 4);
        at = put_bytes(at, members[n].name, strlen(members[n].name));
    }
    uint32_t size = (uint32_t)(at - made) - starts[count];
    at = put(put(put(put(at, 0x06054B50, 4), 0, 4), count, 2), count, 2);
    at = put(put(put(at, size, 4), starts[count], 4), 0, 2);
    *nbytes = (size_t)(at - made);
    free(starts);
    return made;
}

/* The seed's members, and their checksums; read once. */
static archive seed;
static uint32_t *seed_crcs;

static void read_seed(void) {
    static arena memory;
    const char *path = getenv("POOT_FUZZ_SEED");
    if (path == NULL || seed.count) return;
    FILE *file = fopen(path, "rb");
    if (file == NULL) abort();
    fseek(file, 0, SEEK_END);
    size_t nbytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = take(&memory, nbytes, 1);
    poot_error error;
    if (data == NULL || fread(data, 1, nbytes, file) != nbytes) abort();
    fclose(file);
    if (unzip(&memory, data, nbytes, &seed, &error) != POOT_OK) abort();
    seed_crcs = take(&memory, seed.count, sizeof *seed_crcs);
    for (size_t n = 0; n < seed.count; n++)
        seed_crcs[n] = crc_of(seed.members[n].data, seed.members[n].nbytes);
}

static void load(const uint8_t *data, size_t nbytes) {
    poot_program *program;
    poot_error error;
    if (poot_load_memory(data, nbytes, &program, &error) != POOT_OK) {
        if (error.status == POOT_OK || error.message[0] == 0) abort();
        return;
    }
    poot_tensor tensor;
    for (int e = 0; e < poot_entry_count(program); e++)
        for (int n = 0; poot_input(program, e, n, &tensor) || poot_output(program, e, n, &tensor); n++)
            if (tensor.rank > POOT_MOST_RANK) abort();
    for (int n = 0; n < program->kernel_count; n++) {
        code made;
        void *address;
        const kernel *k = &program->kernels[n];
        if (map_object(k->data, k->nbytes, k->symbol, &made, &address, &error) == POOT_OK)
            unmap_object(&made);
    }
    poot_program_free(program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes) {
    if (nbytes == 0) return 0;
    read_seed();
    if (data[0] % 3 == 0 || (data[0] % 3 == 1 && seed.count == 0)) {
        load(data + 1, nbytes - 1);
    } else if (data[0] % 3 == 1) {
        member first = seed.members[0];
        uint32_t crc = seed_crcs[0];
        seed.members[0].data = data + 1;
        seed.members[0].nbytes = nbytes - 1;
        seed_crcs[0] = crc_of(data + 1, nbytes - 1);
        size_t size;
        uint8_t *whole = pack(seed.members, seed_crcs, seed.count, &size);
        seed.members[0] = first;
        seed_crcs[0] = crc;
        load(whole, size);
        free(whole);
    } else {
        code made;
        void *address;
        poot_error error;
        const char *symbol = nbytes > 4 && data[1] & 1 ? "k" : "";
        if (map_object(data + 1, nbytes - 1, symbol, &made, &address, &error) == POOT_OK)
            unmap_object(&made);
    }
    return 0;
}

#if defined(POOT_FUZZ_MAIN)
int main(int count, char **arguments) {
    for (int n = 1; n < count; n++) {
        FILE *file = fopen(arguments[n], "rb");
        if (file == NULL) return 1;
        static uint8_t data[1 << 24];
        size_t nbytes = fread(data, 1, sizeof data, file);
        fclose(file);
        uint8_t *exact = malloc(nbytes + 1); /* so that a read past the end is seen */
        if (exact == NULL) return 1;
        memcpy(exact, data, nbytes);
        LLVMFuzzerTestOneInput(exact, nbytes);
        free(exact);
    }
    printf("%d inputs\n", count - 1);
    return 0;
}
#endif
