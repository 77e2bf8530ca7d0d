/* The zip of a bundle: members stored as they are, one after another, each once. Anything else is
 * refused, so that no byte of the file is read in two ways. */
#include <string.h>

#include "internal.h"

enum { LOCAL = 30, CENTRAL = 46, END = 22, MOST_NAME = 128 };

static uint32_t u16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }

static uint32_t crc32_of(const uint8_t *data, size_t nbytes) {
    static const uint32_t polynomial = 0xEDB88320u; /* PKWARE's APPNOTE, 4.4.7 */
    uint32_t table[256];
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t row = n;
        for (int bit = 0; bit < 8; bit++) row = row & 1 ? row >> 1 ^ polynomial : row >> 1;
        table[n] = row;
    }
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t n = 0; n < nbytes; n++) crc = table[(crc ^ data[n]) & 255] ^ crc >> 8;
    return ~crc;
}

/* A plain file name, at most in one of the two folders. */
static bool is_name(const char *name, size_t nbytes) {
    if (nbytes > 8 && memcmp(name, "kernels/", 8) == 0) name += 8, nbytes -= 8;
    else if (nbytes > 7 && memcmp(name, "consts/", 7) == 0) name += 7, nbytes -= 7;
    if (nbytes == 0 || nbytes > 120) return false;
    for (size_t n = 0; n < nbytes; n++) {
        char c = name[n];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_';
        if (!is_word && (n == 0 || (c != '.' && c != '-'))) return false;
    }
    return true;
}

const member *find_member(const archive *a, const char *name) {
    for (size_t n = 0; n < a->count; n++)
        if (strcmp(a->members[n].name, name) == 0) return &a->members[n];
    return NULL;
}

static poot_status bad(poot_error *error, const char *what) {
    return fail(error, POOT_ERROR_FORMAT, "the bundle: %s", what);
}

poot_status unzip(arena *a, const uint8_t *data, size_t nbytes, archive *out, poot_error *error) {
    if (nbytes < END || nbytes > UINT32_MAX) return bad(error, "its size is no bundle's");
    const uint8_t *end = data + nbytes - END;
    if (u32(end) != 0x06054B50u) return bad(error, "it doesn't end as a zip without comment does");
    size_t count = u16(end + 10), size = u32(end + 12), start = u32(end + 16);
    if (u16(end + 4) || u16(end + 6) || u16(end + 8) != count || u16(end + 20))
        return bad(error, "a zip of several parts, or with a comment");
    if (start + size != nbytes - END) return bad(error, "its directory isn't where its end says");
    out->members = take(a, count, sizeof *out->members);
    if (out->members == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
    out->count = 0;
    size_t at = 0;
    const uint8_t *row = data + start;
    for (size_t n = 0; n < count; n++) {
        if ((size_t)(end - row) < CENTRAL) return bad(error, "its directory is cut short");
        size_t name = u16(row + 28), length = u32(row + 20);
        if ((size_t)(end - row) - CENTRAL < name) return bad(error, "its directory is cut short");
        if (u32(row) != 0x02014B50u || u16(row + 8) || u16(row + 10) || length != u32(row + 24) ||
            u16(row + 30) || u16(row + 32) || u16(row + 34))
            return bad(error, "a member is encrypted, compressed or has extra fields");
        if (!is_name((const char *)row + CENTRAL, name)) return bad(error, "a member's name is odd");
        if (u32(row + 42) != at) return bad(error, "members don't follow one another");
        if (start - at < LOCAL + name || start - at - LOCAL - name < length)
            return bad(error, "a member ends in the directory");
        const uint8_t *local = data + at;
        if (u32(local) != 0x04034B50u || memcmp(local + 4, row + 6, 24) || u16(local + 28) ||
            memcmp(local + LOCAL, row + CENTRAL, name))
            return bad(error, "a member's header and the directory differ");
        member *m = &out->members[n];
        m->name = take_text(a, (const char *)row + CENTRAL, name);
        if (m->name == NULL) return fail(error, POOT_ERROR_MEMORY, "out of memory");
        m->data = local + LOCAL + name;
        m->nbytes = length;
        if (find_member(out, m->name)) return bad(error, "a member stands in it twice");
        if (crc32_of(m->data, length) != u32(row + 16)) return bad(error, "a member is damaged");
        out->count = n + 1;
        at += LOCAL + name + length;
        row += CENTRAL + name;
    }
    if (at != start) return bad(error, "bytes belong to no member");
    if (row != end) return bad(error, "its directory holds more than its members");
    return POOT_OK;
}
