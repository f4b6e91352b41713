/*
 * The image that a decoder will see, kept page by page for the code that was translated. A page is looked up in
 * /proc/self/maps when its first block is translated; where the file has other bytes, or there is no file, the bytes
 * themselves are recorded. Every difference is a new epoch. A file that has no name any more is told by what its
 * mappings are called, with " (deleted)" behind (proc_pid_maps(5)); which one it was says the build id in them.
 */
#include "lock_in_time.h"
#include "recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#define BUCKETS 4096

struct page {
    struct page *next;
    uint64_t number;
    uint32_t epoch;
    uint8_t bytes[VPT_PAGE];
    bool known[VPT_PAGE];
};

struct region {
    struct region *next;
    uint64_t begin, end, offset; /* host addresses */
    uint32_t epoch;
    char path[]; /* opened for each page: no descriptor of ours stays among the program's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool something; /* is known */
static struct page *pages[BUCKETS];
static struct region *regions;

static void drop_region(struct region **at)
{
    struct region *gone = *at;
    *at = gone->next;
    free(gone);
}

void image_lock(void) { pthread_mutex_lock(&lock); }
void image_unlock(void) { pthread_mutex_unlock(&lock); }

bool image_reset(void)
{
    if (!lock_in_time(&lock))
        return false;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct page *page; (page = pages[i]) != NULL; free(page))
            pages[i] = page->next;
    while (regions)
        drop_region(&regions);
    recorder.control->epoch = 0;
    something = false;
    pthread_mutex_unlock(&lock);
    return true;
}

/* Writes a change as a new epoch; false, and no epoch, when there is no room for it. */
static bool tell(uint32_t kind, struct vpt_map *map, const void *tail, size_t tail_size)
{
    map->epoch = recorder.control->epoch + 1;
    if (!sideband_write(kind, map, sizeof *map, tail, tail_size))
        return false;
    recorder.control->epoch = map->epoch;
    return true;
}

/* `head`: where the file's first byte is mapped, or 0. False for what is no file and never was one. */
static bool identify(const char *path, uint64_t head, struct vpt_map *map)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool has_name = file >= 0;
    if (!has_name && head)
        file = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    uint64_t base = has_name ? 0 : head;
    bool is_file = has_name || is_elf(file, base);
    if (is_file)
        map->build_id_size = (uint32_t)build_id_of(file, base, map->build_id);
    close(file);
    return is_file;
}

static struct region *add_region(uint64_t begin, uint64_t end, uint64_t offset, const char *path, uint64_t head)
{
    struct vpt_map map = {.address = guest_address(begin), .size_bytes = end - begin, .offset = offset};
    if (!identify(path, head, &map))
        return NULL;
    struct region *region = malloc(sizeof *region + strlen(path) + 1);
    if (!region)
        return NULL;
    if (!tell(VPT_MAP, &map, path, strlen(path))) {
        free(region);
        return NULL;
    }
    region->begin = begin, region->end = end, region->offset = offset, region->epoch = map.epoch;
    strcpy(region->path, path);
    region->next = regions;
    return regions = region;
}

/* The kernel writes a line feed of a name as \012 and a backslash as it is, so a name may also be what it looks like. */
static void unescape(char *path)
{
    if (!strstr(path, "\\012") || access(path, F_OK) == 0)
        return;
    for (char *found = path; (found = strstr(found, "\\012"));) {
        *found++ = '\n';
        memmove(found, found + 3, strlen(found + 3) + 1);
    }
}

static struct region *find_region(uint64_t host)
{
    for (struct region *region = regions; region; region = region->next)
        if (host >= region->begin && host < region->end)
            return region;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4608], path[4097], head_path[4097] = "";
    struct region *region = NULL;
    uint64_t head = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        uint64_t begin, end, offset;
        int fields = sscanf(line, "%lx-%lx %*s %lx %*s %*s %4096[^\n]", &begin, &end, &offset, path);
        bool is_named = fields == 4 && path[0] == '/';
        if (is_named)
            unescape(path);
        if (is_named && offset == 0)
            head = begin, strcpy(head_path, path);
        if (fields < 3 || host < begin || host >= end)
            continue;
        if (is_named)
            region = add_region(begin, end, offset, path, strcmp(path, head_path) ? 0 : head);
        break;
    }
    if (maps)
        fclose(maps);
    return region;
}

static struct page *known_page(uint64_t number)
{
    struct page *page = pages[number % BUCKETS];
    while (page && page->number != number)
        page = page->next;
    return page;
}

static struct page *page_of(uint64_t number)
{
    struct page *page = known_page(number);
    if (page)
        return page;
    page = calloc(1, sizeof *page);
    if (!page)
        return NULL;
    something = true;
    page->number = number;
    page->next = pages[number % BUCKETS];
    pages[number % BUCKETS] = page;
    uint64_t host = (uint64_t)(uintptr_t)guest_memory(number * VPT_PAGE);
    struct region *region = find_region(host);
    if (region) {
        int file = open(region->path, O_RDONLY | O_CLOEXEC);
        ssize_t got = pread(file, page->bytes, VPT_PAGE, (off_t)(host - region->begin + region->offset));
        if (file >= 0)
            close(file);
        memset(page->known, true, got > 0 ? (size_t)got : 0);
        page->epoch = region->epoch;
    }
    return page;
}

static uint32_t in_page(uint64_t address, const uint8_t *bytes, size_t size)
{
    struct page *page = page_of(address / VPT_PAGE);
    size_t at = address % VPT_PAGE;
    if (!page)
        return IMAGE_LOST;
    if (!memcmp(page->bytes + at, bytes, size) && !memchr(page->known + at, false, size))
        return page->epoch;
    struct vpt_map map = {.address = address, .size_bytes = size};
    if (!tell(VPT_CODE, &map, bytes, size))
        return IMAGE_LOST;
    memcpy(page->bytes + at, bytes, size);
    memset(page->known + at, true, size);
    return page->epoch = map.epoch;
}

uint32_t image_translated(uint64_t address, const uint8_t *bytes, size_t size)
{
    uint32_t epoch = 0;
    pthread_mutex_lock(&lock);
    while (size) {
        size_t room = VPT_PAGE - address % VPT_PAGE;
        size_t now = size < room ? size : room;
        uint32_t here = in_page(address, bytes, now);
        epoch = here > epoch ? here : epoch;
        address += now;
        bytes += now;
        size -= now;
    }
    pthread_mutex_unlock(&lock);
    return epoch;
}

/* FNV-1a. */
static uint64_t hash_on(uint64_t hash, uint8_t byte) { return (hash ^ byte) * 0x100000001b3ull; }
#define HASH_OF_NOTHING 0xcbf29ce484222325ull

uint64_t image_hash(const uint8_t *bytes, size_t size)
{
    uint64_t hash = HASH_OF_NOTHING;
    for (size_t i = 0; i < size; i++)
        hash = hash_on(hash, bytes[i]);
    return hash;
}

bool image_holds(uint64_t address, size_t size, uint64_t hash)
{
    uint64_t now = HASH_OF_NOTHING;
    bool known = true;
    pthread_mutex_lock(&lock);
    for (uint64_t at = address; known && at < address + size; at++) {
        const struct page *page = known_page(at / VPT_PAGE);
        known = page && page->known[at % VPT_PAGE];
        now = known ? hash_on(now, page->bytes[at % VPT_PAGE]) : 0;
    }
    pthread_mutex_unlock(&lock);
    return known && now == hash;
}

/* Drops what is older; false when there is something younger. */
static bool drop_pages(uint64_t first, uint64_t last, uint32_t since, bool *known)
{
    bool younger = false;
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct page **at = &pages[i]; *at;) {
            struct page *page = *at;
            bool inside = page->number >= first && page->number <= last;
            younger |= inside && page->epoch > since;
            if (!inside || page->epoch > since) {
                at = &page->next;
                continue;
            }
            *known = true;
            *at = page->next;
            free(page);
        }
    return !younger;
}

static bool drop_regions(uint64_t begin, uint64_t end, uint32_t since, bool *known)
{
    bool younger = false;
    for (struct region **at = &regions; *at;) {
        bool inside = (*at)->begin < end && (*at)->end > begin;
        younger |= inside && (*at)->epoch > since;
        if (inside && (*at)->epoch <= since)
            *known = true, drop_region(at);
        else
            at = &(*at)->next;
    }
    return !younger;
}

void image_unmapped(uint64_t address, uint64_t size, uint32_t since)
{
    uint64_t host = (uint64_t)(uintptr_t)guest_memory(address);
    if (likely(!something) || !size)
        return;
    pthread_mutex_lock(&lock);
    bool known = false;
    bool all = drop_pages(address / VPT_PAGE, (address + size - 1) / VPT_PAGE, since, &known);
    all &= drop_regions(host, host + size, since, &known);
    /* Where something new is already, the bytes of the old give way by themselves. */
    if (known && all) {
        struct vpt_map map = {.address = address, .size_bytes = size};
        tell(VPT_UNMAP, &map, "", 0);
    }
    pthread_mutex_unlock(&lock);
}
