/* Object files (ELF, x86-64) as memory that can be run.
 *
 * A kernel's object file is position-independent: it has code, constants, and the code's distances
 * to them. Its sections are laid one after another in one mapping, the distances are filled in, and
 * the mapping becomes readable and executable, no longer writable. What reaches out of the file (an
 * undefined symbol, a table of addresses to fill) is refused: no kernel of poot's does. */
#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

enum { MOST_SECTIONS = 256, MOST_IMAGE = 1 << 26, UNWIND = 0x70000001 };

typedef struct object {
    const uint8_t *data;
    size_t nbytes;
    int count;
    Elf64_Shdr sections[MOST_SECTIONS];
    size_t at[MOST_SECTIONS]; /* in the image; SIZE_MAX where it isn't laid there */
    uint8_t *image;
    size_t size;
    poot_error *error;
} object;

static bool inside(const object *o, uint64_t offset, uint64_t nbytes) {
    return offset <= o->nbytes && nbytes <= o->nbytes - offset;
}

static poot_status bad(const object *o, const char *what) {
    return fail(o->error, POOT_ERROR_FORMAT, "an object file: %s", what);
}

static poot_status read_sections(object *o) {
    Elf64_Ehdr head;
    if (o->nbytes < sizeof head) return bad(o, "is too short");
    memcpy(&head, o->data, sizeof head);
    bool is_ours = memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
                   head.e_ident[EI_CLASS] == ELFCLASS64 &&
                   head.e_ident[EI_DATA] == ELFDATA2LSB && head.e_type == ET_REL &&
                   head.e_machine == EM_X86_64 && head.e_shentsize == sizeof(Elf64_Shdr);
    if (!is_ours) return bad(o, "is none for x86-64");
    if (head.e_shnum > MOST_SECTIONS || !inside(o, head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr)))
        return bad(o, "its sections lie outside it");
    o->count = head.e_shnum;
    memcpy(o->sections, o->data + head.e_shoff, (size_t)o->count * sizeof(Elf64_Shdr));
    for (int n = 0; n < o->count; n++) {
        const Elf64_Shdr *s = &o->sections[n];
        o->at[n] = SIZE_MAX;
        if (s->sh_type != SHT_NOBITS && !inside(o, s->sh_offset, s->sh_size))
            return bad(o, "a section lies outside it");
        if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == UNWIND || s->sh_size == 0) continue;
        if (s->sh_type != SHT_PROGBITS || s->sh_flags & (SHF_WRITE | SHF_TLS))
            return bad(o, "has memory to write, which no kernel has");
        uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
        if (align > 4096 || (align & (align - 1)) || s->sh_size > MOST_IMAGE)
            return bad(o, "a section's size or alignment is odd");
        o->at[n] = (o->size + align - 1) / align * align;
        o->size = o->at[n] + s->sh_size;
        if (o->size > MOST_IMAGE) return bad(o, "is too large");
    }
    return o->size ? POOT_OK : bad(o, "has no code");
}

/* Where a symbol lies in the image; SIZE_MAX where it lies elsewhere. */
static size_t symbol_at(const object *o, const Elf64_Shdr *table, uint64_t index, Elf64_Sym *out) {
    if (index >= table->sh_size / sizeof *out) return SIZE_MAX;
    memcpy(out, o->data + table->sh_offset + index * sizeof *out, sizeof *out);
    if (out->st_shndx == SHN_UNDEF || out->st_shndx >= o->count) return SIZE_MAX;
    size_t at = o->at[out->st_shndx];
    if (at == SIZE_MAX || out->st_value > o->sections[out->st_shndx].sh_size) return SIZE_MAX;
    return at + out->st_value;
}

static poot_status relocate(object *o, const Elf64_Shdr *s) {
    if (s->sh_info >= (unsigned)o->count || o->at[s->sh_info] == SIZE_MAX) return POOT_OK;
    if (s->sh_type == SHT_REL || s->sh_link >= (unsigned)o->count ||
        o->sections[s->sh_link].sh_type != SHT_SYMTAB)
        return bad(o, "its relocations are odd");
    const Elf64_Shdr *symbols = &o->sections[s->sh_link], *target = &o->sections[s->sh_info];
    for (uint64_t n = 0; n < s->sh_size / sizeof(Elf64_Rela); n++) {
        Elf64_Rela row;
        Elf64_Sym symbol;
        memcpy(&row, o->data + s->sh_offset + n * sizeof row, sizeof row);
        uint32_t kind = (uint32_t)ELF64_R_TYPE(row.r_info);
        size_t to = symbol_at(o, symbols, ELF64_R_SYM(row.r_info), &symbol);
        if (to == SIZE_MAX) return bad(o, "needs a symbol that isn't in it");
        uint64_t nbytes = kind == R_X86_64_64 || kind == R_X86_64_PC64 ? 8 : 4;
        if (row.r_offset > target->sh_size || target->sh_size - row.r_offset < nbytes)
            return bad(o, "a relocation lies outside its section");
        if (row.r_addend > MOST_IMAGE || row.r_addend < -MOST_IMAGE)
            return bad(o, "a relocation leads outside");
        uint8_t *here = o->image + o->at[s->sh_info] + row.r_offset;
        int64_t value = (int64_t)(intptr_t)(o->image + to) + row.r_addend;
        if (kind != R_X86_64_64) value -= (int64_t)(intptr_t)here;
        if (kind == R_X86_64_PC32 || kind == R_X86_64_PLT32) {
            int32_t near = (int32_t)value; /* the image is smaller than 2^31 */
            memcpy(here, &near, 4);
        } else if (nbytes == 8) {
            memcpy(here, &value, 8);
        } else {
            return bad(o, "has a relocation of a kind that no kernel has");
        }
    }
    return POOT_OK;
}

static void *find_function(const object *o, const char *name) {
    for (int n = 0; n < o->count; n++) {
        const Elf64_Shdr *table = &o->sections[n];
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= (unsigned)o->count) continue;
        const Elf64_Shdr *names = &o->sections[table->sh_link];
        if (names->sh_type != SHT_STRTAB) continue;
        for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
            Elf64_Sym symbol;
            size_t at = symbol_at(o, table, i, &symbol), length = strlen(name) + 1;
            if (at == SIZE_MAX || ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
            if (!(o->sections[symbol.st_shndx].sh_flags & SHF_EXECINSTR)) continue;
            if (symbol.st_name > names->sh_size || names->sh_size - symbol.st_name < length)
                continue;
            if (memcmp(o->data + names->sh_offset + symbol.st_name, name, length) == 0)
                return o->image + at;
        }
    }
    return NULL;
}

poot_status map_object(const uint8_t *data, size_t nbytes, const char *symbol, code *out,
                       void **address, poot_error *error) {
    object o = {.data = data, .nbytes = nbytes, .error = error};
    out->memory = NULL;
    poot_status status = read_sections(&o);
    if (status != POOT_OK) return status;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    out->nbytes = (o.size + page - 1) / page * page;
    void *memory = mmap(NULL, out->nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fail(error, POOT_ERROR_MEMORY, "an object file of %zu bytes: out of memory", o.size);
    out->memory = o.image = memory;
    for (int n = 0; n < o.count; n++)
        if (o.at[n] != SIZE_MAX)
            memcpy(o.image + o.at[n], data + o.sections[n].sh_offset, o.sections[n].sh_size);
    for (int n = 0; n < o.count && status == POOT_OK; n++)
        if (o.sections[n].sh_type == SHT_RELA || o.sections[n].sh_type == SHT_REL)
            status = relocate(&o, &o.sections[n]);
    *address = status == POOT_OK ? find_function(&o, symbol) : NULL;
    if (status == POOT_OK && *address == NULL) status = bad(&o, "hasn't the function it should have");
    if (status == POOT_OK && mprotect(memory, out->nbytes, PROT_READ | PROT_EXEC))
        status = fail(error, POOT_ERROR_LAUNCH, "memory can't be made executable here");
    if (status != POOT_OK) unmap_object(out);
    return status;
}

void unmap_object(code *c) {
    if (c->memory != NULL) munmap(c->memory, c->nbytes);
    c->memory = NULL;
}
