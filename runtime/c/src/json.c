/* JSON of a stranger: integers of 63 bits, texts without zeros, no key twice, not too deep. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { MOST_DEPTH = 64 };

typedef struct reader {
    arena *memory;
    const uint8_t *at, *end;
    const char *what; /* of the first error */
} reader;

static json *value(reader *r, int depth);

static void *wrong(reader *r, const char *what) {
    if (r->what == NULL) r->what = what;
    return NULL;
}

static void skip(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
}

static bool next_is(reader *r, char c) {
    skip(r);
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool word(reader *r, const char *text) {
    size_t nbytes = strlen(text);
    if ((size_t)(r->end - r->at) < nbytes || memcmp(r->at, text, nbytes)) return false;
    r->at += nbytes;
    return true;
}

static int hex4(const uint8_t *p) {
    int made = 0;
    for (int n = 0; n < 4; n++) {
        uint8_t c = p[n];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        made = made << 4 | digit;
    }
    return made;
}

static char *put(char *out, uint32_t c) {
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xC0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xE0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xF0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

/* After the opening quote. */
static const char *text(reader *r, size_t *nbytes) {
    const uint8_t *end = r->at;
    while (end < r->end && *end != '"') end += *end == '\\' ? 2 : 1;
    if (end >= r->end) return wrong(r, "a text has no end");
    char *made = take(r->memory, (size_t)(end - r->at) + 1, 1), *out = made;
    if (made == NULL) return wrong(r, "out of memory");
    while (r->at < end) {
        uint32_t c = *r->at++;
        if (c < 0x20) return wrong(r, "a control character stands in a text");
        if (c != '\\') {
            *out++ = (char)c;
            continue;
        }
        c = *r->at++;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *known = c ? strchr(from, (int)c) : NULL;
        if (known != NULL) {
            *out++ = to[known - from];
            continue;
        }
        int high = c == 'u' && end - r->at >= 4 ? hex4(r->at) : -1;
        if (high <= 0) return wrong(r, "an escape in a text is odd");
        r->at += 4;
        c = (uint32_t)high;
        if (c >= 0xD800 && c < 0xDC00 && end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
            int low = hex4(r->at + 2);
            if (low >= 0xDC00 && low < 0xE000) {
                c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
                r->at += 6;
            }
        }
        out = put(out, c);
    }
    r->at = end + 1;
    *out = 0;
    *nbytes = (size_t)(out - made);
    return made;
}

static json *number(reader *r, json *made) {
    bool is_negative = *r->at == '-';
    if (is_negative) r->at++;
    const uint8_t *first = r->at;
    uint64_t n = 0;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        if (r->at - first >= 18 && n > (uint64_t)INT64_MAX / 10 - 1)
            return wrong(r, "a number is too large");
        n = n * 10 + (uint64_t)(*r->at++ - '0');
    }
    if (r->at == first || (*first == '0' && r->at - first > 1)) return wrong(r, "a number is odd");
    if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E'))
        return wrong(r, "a number is no integer");
    made->kind = JSON_INT;
    made->number = is_negative ? -(int64_t)n : (int64_t)n;
    return made;
}

/* After the opening bracket or brace. */
static json *children(reader *r, json *made, bool is_object, int depth) {
    char close = is_object ? '}' : ']';
    json **tail = &made->first;
    made->kind = is_object ? JSON_OBJECT : JSON_LIST;
    if (next_is(r, close)) return made;
    do {
        const char *key = NULL;
        size_t nbytes;
        if (is_object) {
            if (!next_is(r, '"')) return wrong(r, "a key is no text");
            key = text(r, &nbytes);
            if (key == NULL) return NULL;
            if (!next_is(r, ':')) return wrong(r, "a key has no value");
            if (json_find(made, key) != NULL) return wrong(r, "a key stands twice");
        }
        json *child = value(r, depth + 1);
        if (child == NULL) return NULL;
        child->key = key;
        *tail = child;
        tail = &child->next;
        made->number++;
        /* Keys are compared one by one: a checkpoint's tensors are the most there are. */
        if (is_object && made->number > 16384) return wrong(r, "an object has too many keys");
    } while (next_is(r, ','));
    return next_is(r, close) ? made : wrong(r, "a list or an object has no end");
}

static json *value(reader *r, int depth) {
    if (depth > MOST_DEPTH) return wrong(r, "it is too deep");
    skip(r);
    json *made = take(r->memory, 1, sizeof *made);
    if (made == NULL) return wrong(r, "out of memory");
    if (r->at >= r->end) return wrong(r, "it is cut short");
    uint8_t c = *r->at;
    if (c == '{' || c == '[') {
        r->at++;
        return children(r, made, c == '{', depth);
    }
    if (c == '"') {
        r->at++;
        made->kind = JSON_TEXT;
        made->text = text(r, &made->nbytes);
        return made->text == NULL ? NULL : made;
    }
    if (word(r, "null")) return made;
    if (word(r, "true") || word(r, "false")) {
        made->kind = JSON_BOOL;
        made->number = c == 't';
        return made;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return number(r, made);
    return wrong(r, "a value is odd");
}

json *json_parse(arena *a, const uint8_t *data, size_t nbytes, const char *who, poot_error *error) {
    reader r = {a, data, data + nbytes, NULL};
    json *made = value(&r, 0);
    skip(&r);
    if (made != NULL && r.at != r.end) made = wrong(&r, "something follows it");
    if (made == NULL) {
        fail(error, POOT_ERROR_FORMAT, "%s: %s, at byte %zu", who, r.what, (size_t)(r.at - data));
        return NULL;
    }
    if (made->kind != JSON_OBJECT) {
        fail(error, POOT_ERROR_FORMAT, "%s: needs an object", who);
        return NULL;
    }
    return made;
}

const json *json_find(const json *object, const char *key) {
    if (object == NULL || object->kind != JSON_OBJECT) return NULL;
    for (const json *child = object->first; child != NULL; child = child->next)
        if (strcmp(child->key, key) == 0) return child;
    return NULL;
}

void refuse(fields *f, const char *format, ...) {
    if (f->failed) return;
    f->failed = true;
    char text[384];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(f->error, POOT_ERROR_FORMAT, "%s: %s", f->where, text);
}

static const json *find(fields *f, const json *object, const char *key, json_kind kind) {
    static const char *const names[] = {"null", "true or false", "an integer", "a text", "a list",
                                        "an object"};
    const json *found = json_find(object, key);
    if (found == NULL || found->kind != kind) {
        refuse(f, "needs %s, %s", key, names[kind]);
        return NULL;
    }
    return found;
}

int64_t get_int(fields *f, const json *object, const char *key, int64_t least, int64_t most) {
    const json *found = find(f, object, key, JSON_INT);
    if (found == NULL) return least;
    if (found->number < least || found->number > most) {
        refuse(f, "%s needs an integer from %lld to %lld: %lld", key, (long long)least,
               (long long)most, (long long)found->number);
        return least;
    }
    return found->number;
}

bool get_bool(fields *f, const json *object, const char *key) {
    const json *found = find(f, object, key, JSON_BOOL);
    return found != NULL && found->number;
}

const char *get_text(fields *f, const json *object, const char *key, size_t most) {
    const json *found = find(f, object, key, JSON_TEXT);
    if (found == NULL) return "";
    if (found->nbytes > most) {
        refuse(f, "%s has more than %zu bytes", key, most);
        return "";
    }
    return found->text;
}

const json *get_list(fields *f, const json *object, const char *key) {
    static const json none = {.kind = JSON_LIST};
    const json *found = find(f, object, key, JSON_LIST);
    return found == NULL ? &none : found;
}

const json *get_object(fields *f, const json *object, const char *key) {
    static const json none = {.kind = JSON_OBJECT};
    const json *found = find(f, object, key, JSON_OBJECT);
    return found == NULL ? &none : found;
}

bool is_null(const json *object, const char *key) {
    const json *found = json_find(object, key);
    return found != NULL && found->kind == JSON_NULL;
}
