#include "insn_class.h"

#include <stdbool.h>
#include <string.h>

static int64_t displacement(const uint8_t *bytes, size_t size, size_t width)
{
    if (width > size)
        return 0;
    const uint8_t *at = bytes + size - width;
    if (width == 1)
        return (int8_t)*at;
    int32_t value = 0;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool is_prefix(uint8_t byte)
{
    switch (byte) {
    case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67: case 0xf0: case 0xf2: case 0xf3:
        return true;
    default:
        return byte >= 0x40 && byte <= 0x4f; /* REX */
    }
}

static enum insn_class group5(uint8_t modrm)
{
    switch (modrm >> 3 & 7) {
    case 2: return INSN_CALL_INDIRECT;
    case 4: return INSN_JUMP_INDIRECT;
    case 3: case 5: return INSN_FAR;
    default: return INSN_LINEAR;
    }
}

enum insn_class insn_classify(const uint8_t *bytes, size_t size, uint64_t address, uint64_t *target)
{
    uint64_t next = address + size;
    bool repeats = false;
    size_t at = 0;
    *target = 0;
    while (at < size && is_prefix(bytes[at]))
        repeats |= bytes[at] == 0xf2 || bytes[at] == 0xf3, at++;
    if (at >= size)
        return INSN_LINEAR;
    uint8_t opcode = bytes[at];
    uint8_t second = at + 1 < size ? bytes[at + 1] : 0;
    switch (opcode) {
    case 0x70 ... 0x7f: case 0xe0 ... 0xe3:
        *target = next + displacement(bytes, size, 1);
        return INSN_COND;
    case 0xeb:
        *target = next + displacement(bytes, size, 1);
        return INSN_JUMP;
    case 0xe9:
        *target = next + displacement(bytes, size, 4);
        return INSN_JUMP;
    case 0xe8:
        *target = next + displacement(bytes, size, 4);
        return INSN_CALL;
    case 0xc2: case 0xc3:
        return INSN_RETURN;
    case 0xca: case 0xcb: case 0xcf:
        return INSN_FAR;
    case 0xcc: case 0xcd: case 0xf1:
        return INSN_SYSTEM;
    case 0xff:
        return group5(second);
    case 0x6c ... 0x6f: case 0xa4 ... 0xa7: case 0xaa ... 0xaf:
        return repeats ? INSN_REPEAT : INSN_LINEAR;
    case 0x0f:
        if (second >= 0x80 && second <= 0x8f) {
            *target = next + displacement(bytes, size, 4);
            return INSN_COND;
        }
        if (second == 0x07 || second == 0x35)
            return INSN_FAR;
        return second == 0x05 || second == 0x34 ? INSN_SYSTEM : INSN_LINEAR;
    default:
        return INSN_LINEAR;
    }
}
