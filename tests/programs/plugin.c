/* The library that library.c loads. */
#include <stdlib.h>
#include <string.h>

static unsigned *table;

__attribute__((constructor)) static void come(void)
{
    table = calloc(256, sizeof *table);
    for (unsigned i = 0; i < 256; i++)
        table[i] = i * 31 % 17;
}

__attribute__((destructor)) static void go(void) { free(table); }

unsigned weigh(const char *text, unsigned from)
{
    unsigned weight = (unsigned)strlen(text);
    for (; *text; text++)
        weight += *text > 'n' ? table[(unsigned char)*text] : from;
    return weight;
}
