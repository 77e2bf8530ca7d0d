/* Errors, and memory that goes all at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

poot_status fail(poot_error *error, poot_status status, const char *format, ...) {
    if (error != NULL) {
        memset(error, 0, sizeof *error);
        error->status = status;
        va_list args;
        va_start(args, format);
        vsnprintf(error->message, sizeof error->message, format, args);
        va_end(args);
    }
    return status;
}

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    _Alignas(16) uint8_t data[];
} chunk;

enum { CHUNK = 64 << 10 };

void *take(arena *a, size_t count, size_t each) {
    if (each != 0 && count > (SIZE_MAX / 2) / each) return NULL;
    size_t nbytes = (count * each + 15) / 16 * 16;
    if (nbytes == 0) nbytes = 16;
    chunk *c = a->chunks;
    if (c == NULL || c->size - c->used < nbytes) {
        size_t size = nbytes > CHUNK ? nbytes : CHUNK;
        c = calloc(1, sizeof *c + size);
        if (c == NULL) return NULL;
        c->size = size;
        if (a->chunks != NULL && size > CHUNK) { /* the open chunk stays in front */
            c->next = a->chunks->next;
            a->chunks->next = c;
        } else {
            c->next = a->chunks;
            a->chunks = c;
        }
    }
    void *made = c->data + c->used;
    c->used += nbytes;
    return made;
}

char *take_text(arena *a, const char *text, size_t nbytes) {
    char *made = take(a, nbytes + 1, 1);
    if (made != NULL) memcpy(made, text, nbytes);
    return made;
}

void arena_free(arena *a) {
    while (a->chunks != NULL) {
        chunk *next = a->chunks->next;
        free(a->chunks);
        a->chunks = next;
    }
}
