/* The GNU build id in the notes of an ELF file. */
#include "recorder.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

static size_t in_notes(const uint8_t *notes, size_t size, uint8_t id[32])
{
    size_t at = 0;
    while (at + sizeof(Elf64_Nhdr) <= size) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        size_t name = at + sizeof note;
        size_t body = name + ((note.n_namesz + 3ul) & ~3ul);
        if (body > size || note.n_descsz > size - body)
            return 0;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + name, "GNU", 4) && note.n_descsz <= 32) {
            memcpy(id, notes + body, note.n_descsz);
            return note.n_descsz;
        }
        at = body + ((note.n_descsz + 3ul) & ~3ul);
    }
    return 0;
}

bool is_elf(int file, uint64_t base)
{
    char magic[SELFMAG];
    return pread(file, magic, sizeof magic, (off_t)base) == sizeof magic && !memcmp(magic, ELFMAG, SELFMAG);
}

size_t build_id_of(int file, uint64_t base, uint8_t id[32])
{
    Elf64_Ehdr header;
    if (!is_elf(file, base) || pread(file, &header, sizeof header, (off_t)base) != sizeof header)
        return 0;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        uint8_t notes[4096];
        off_t at = (off_t)(base + header.e_phoff + i * sizeof segment);
        if (pread(file, &segment, sizeof segment, at) != sizeof segment || segment.p_type != PT_NOTE)
            continue;
        size_t size = segment.p_filesz < sizeof notes ? segment.p_filesz : sizeof notes;
        ssize_t got = pread(file, notes, size, (off_t)(base + segment.p_offset));
        size_t found = got > 0 ? in_notes(notes, (size_t)got, id) : 0;
        if (found)
            return found;
    }
    return 0;
}
