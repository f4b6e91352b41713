/* A translated block of the guest. */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdint.h>

#include "insn_class.h"

/* What the next block's address says about how this one ended. */
struct block {
    uint64_t start, last, end, target;
    uint64_t hash;  /* image_hash of its bytes */
    uint32_t epoch; /* the image it was translated from */
    uint32_t id;    /* truth mode */
    uint16_t count; /* instructions */
    uint8_t class;  /* enum insn_class of the last instruction */
};

#endif
