/*
 * The image that a decoder will see, kept page by page for the code that was translated. A page is looked up in
 * /proc/self/maps when its first block is translated; where the file has other bytes, or there is no file, the bytes
 * themselves are recorded. Every difference is a new epoch.
 */
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
    uint64_t begin, end, offset;
    uint32_t epoch;
    int file;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct page *pages[BUCKETS];
static struct region *regions;

static void drop_region(struct region **at)
{
    struct region *gone = *at;
    *at = gone->next;
    close(gone->file);
    free(gone);
}

void image_reset(void)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct page *page; (page = pages[i]) != NULL; free(page))
            pages[i] = page->next;
    while (regions)
        drop_region(&regions);
    recorder.control->epoch = 0;
    pthread_mutex_unlock(&lock);
}

static struct region *add_region(struct region found, const char *path)
{
    found.file = open(path, O_RDONLY | O_CLOEXEC);
    if (found.file < 0)
        return NULL;
    struct vpt_map map = {.address = found.begin - recorder.guest_base, .size_bytes = found.end - found.begin,
                          .offset = found.offset, .epoch = ++recorder.control->epoch};
    map.build_id_size = (uint32_t)build_id_of(found.file, map.build_id);
    sideband_write(VPT_MAP, &map, sizeof map, path, strlen(path));
    struct region *region = malloc(sizeof *region);
    *region = found;
    region->epoch = map.epoch;
    region->next = regions;
    return regions = region;
}

static struct region *find_region(uint64_t host)
{
    for (struct region *region = regions; region; region = region->next)
        if (host >= region->begin && host < region->end)
            return region;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4608], path[4097];
    struct region *region = NULL;
    while (maps && fgets(line, sizeof line, maps)) {
        struct region found = {0};
        int fields = sscanf(line, "%lx-%lx %*s %lx %*s %*s %4096[^\n]", &found.begin, &found.end, &found.offset, path);
        if (fields < 3 || host < found.begin || host >= found.end)
            continue;
        if (fields == 4 && path[0] == '/')
            region = add_region(found, path);
        break;
    }
    if (maps)
        fclose(maps);
    return region;
}

static struct page *page_of(uint64_t number)
{
    struct page **bucket = &pages[number % BUCKETS];
    for (struct page *page = *bucket; page; page = page->next)
        if (page->number == number)
            return page;
    struct page *page = calloc(1, sizeof *page);
    page->number = number;
    page->next = *bucket;
    *bucket = page;
    uint64_t host = number * VPT_PAGE + recorder.guest_base;
    struct region *region = find_region(host);
    if (region) {
        ssize_t got = pread(region->file, page->bytes, VPT_PAGE, (off_t)(host - region->begin + region->offset));
        memset(page->known, true, got > 0 ? (size_t)got : 0);
        page->epoch = region->epoch;
    }
    return page;
}

static uint32_t in_page(uint64_t address, const uint8_t *bytes, size_t size)
{
    struct page *page = page_of(address / VPT_PAGE);
    size_t at = address % VPT_PAGE;
    if (!memcmp(page->bytes + at, bytes, size) && !memchr(page->known + at, false, size))
        return page->epoch;
    struct vpt_map map = {.address = address, .size_bytes = size, .epoch = ++recorder.control->epoch};
    sideband_write(VPT_CODE, &map, sizeof map, bytes, size);
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

void image_unmapped(uint64_t address, uint64_t size)
{
    uint64_t host = address + recorder.guest_base;
    bool known = false;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct page **at = &pages[i]; *at;) {
            struct page *page = *at;
            if (page->number < address / VPT_PAGE || page->number >= (address + size + VPT_PAGE - 1) / VPT_PAGE) {
                at = &page->next;
                continue;
            }
            known = true;
            *at = page->next;
            free(page);
        }
    for (struct region **at = &regions; *at;)
        if ((*at)->begin < host + size && (*at)->end > host)
            known = true, drop_region(at);
        else
            at = &(*at)->next;
    if (known) {
        struct vpt_map map = {.address = address, .size_bytes = size, .epoch = ++recorder.control->epoch};
        sideband_write(VPT_UNMAP, &map, sizeof map, "", 0);
    }
    pthread_mutex_unlock(&lock);
}
