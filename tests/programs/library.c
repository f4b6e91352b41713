/* A library that comes and goes, with its constructors and lazily bound calls. */
#include "program.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

extern const char *library_path;
static volatile unsigned sum;

void use_library(void)
{
    void *library = dlopen(library_path, RTLD_LAZY);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    unsigned (*weigh)(const char *, unsigned) = (unsigned (*)(const char *, unsigned))dlsym(library, "weigh");
    for (unsigned n = 0; n < 200; n++)
        sum += weigh("a library that comes and goes", n);
    dlclose(library);
}
