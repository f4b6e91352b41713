// SPDX-License-Identifier: GPL-2.0
/*
 * What QEMU calls: every block and, inside blocks, the instructions that reach the trace unit. User
 * code, which cannot reach it, is called for only from the first TraceEn of a recording to its end:
 * `qemu_plugin_reset` drops all translations, between two instructions of every CPU, and they are
 * made anew. A CPU that executes user code before that has not begun to trace it.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest.h"
#include "mark.h"
#include "qemu_plugin.h"
#include "unit.h"

#define MAX_INSNS 512 /* of a block: TCG_MAX_INSNS */
#define MAX_INSN_BYTES 16

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static struct unit units[MAX_CPUS];
static unsigned int cpus;
/*
 * Its operands are known only where a block begins: a block that has it in its middle is left, and
 * stepped through.
 */
static bool tells_cpuid;

static qemu_plugin_id_t plugin;
static bool sees_user_code;
static _Atomic bool shall_see_user_code, turning;

void block_entry(unsigned int cpu, void *code);
void block_executed(unsigned int cpu, void *code, struct guest *guest);
void insn_entry(unsigned int cpu, void *unused);
void insn_executed(unsigned int cpu, void *unused, struct guest *guest);

/* Generated code calls these directly, with TCG's AREG0, the CPU's state, in %rbp. */
__asm__(".text\n"
	".type block_entry,@function\nblock_entry:\n\tmov %rbp,%rdx\n\tjmp block_executed\n"
	".type insn_entry,@function\ninsn_entry:\n\tmov %rbp,%rdx\n\tjmp insn_executed\n");

/* RDMSR has read 0, WRMSR has done nothing: QEMU knows none of these registers. */
static void settle(struct unit *unit, struct guest *guest)
{
	uint64_t *registers = guest->registers, value;

	if (unit->access == ACCESS_CPUID) {
		cpuid_tell(unit->leaf, unit->subleaf, guest);
		guest_step_no_more();
	} else if (unit->access == ACCESS_WRITE) {
		value = registers[RDX] << 32 | (uint32_t)registers[RAX];
		registers_write(unit, guest, registers[RCX], value);
	} else if (registers_read(unit, registers[RCX], &value)) {
		registers[RAX] = (uint32_t)value;
		registers[RDX] = value >> 32;
	}
	unit->access = ACCESS_NONE;
}

/* The first block behind a WRMSR that wants to trace is the kernel's. */
static void look_at_layout(struct unit *unit, const struct code *code, struct guest *guest)
{
	unit->known = guest_is_known(guest, code->block.start, code->bytes, code->size);
	if (unit->known)
		return;
	fprintf(stderr,
		"trace unit: this emulator's CPU state is laid out otherwise than QEMU 7.2's; nothing is traced\n");
	unit->refused++;
	unit->traces = false;
}

static void trace(struct unit *unit, struct code *code, struct guest *guest)
{
	/* The same code may stand at several addresses: QEMU 7.2 translates it once. */
	uint64_t start = guest->registers[RIP], moved = start - code->block.start;
	struct block block = code->block;

	block.start += moved;
	block.last += moved;
	block.end += moved;
	block.target += moved;
	if (flow_block(unit, &block, guest))
		truth_block(unit, code, start);
	unit->moved = code->moves_cr3;
}

__attribute__((used, visibility("hidden"))) void block_executed(unsigned int cpu, void *data,
								struct guest *guest)
{
	struct unit *unit = &units[cpu];
	struct code *code = data;

	if (code->cpuid && code->block.count > 1)
		guest_step_from_here(cpu);
	if (unit->access != ACCESS_NONE)
		settle(unit, guest);
	if (code->cpuid) {
		unit->leaf = guest->registers[RAX];
		unit->subleaf = guest->registers[RCX];
		unit->access = ACCESS_CPUID;
	}
	if (!unit->traces)
		return;
	if (!unit->known)
		look_at_layout(unit, code, guest);
	if (!unit->traces)
		return;
	if (unit->inside || (unit->ctl & CTL_KERNEL) || guest_in_user_mode(guest))
		trace(unit, code, guest);
}

__attribute__((used, visibility("hidden"))) void insn_executed(unsigned int cpu, void *unused,
							       struct guest *guest)
{
	(void)unused;
	if (units[cpu].access != ACCESS_NONE)
		settle(&units[cpu], guest);
}

static void reads(unsigned int cpu, void *unused)
{
	(void)unused;
	units[cpu].access = ACCESS_READ;
}

static void writes(unsigned int cpu, void *unused)
{
	(void)unused;
	units[cpu].access = ACCESS_WRITE;
}

/* MOV CR3, r64 */
static bool moves_cr3(const uint8_t *bytes, size_t size)
{
	if (size && (bytes[0] & 0xf0) == 0x40)
		bytes++, size--;
	return size == 3 && bytes[0] == 0x0f && bytes[1] == 0x22 && (bytes[2] >> 3 & 7) == 3;
}

/* RDMSR and WRMSR take effect before the instruction behind them, in this block or the next. */
static void watch(struct qemu_plugin_tb *tb, size_t count, size_t at, const uint8_t *bytes)
{
	struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, at);
	bool write = bytes[1] == 0x30;

	qemu_plugin_register_vcpu_insn_exec_cb(insn, write ? writes : reads, QEMU_PLUGIN_CB_NO_REGS,
					       NULL);
	if (at + 1 < count)
		qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(tb, at + 1),
						       insn_entry, QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static void register_callbacks(qemu_plugin_id_t id);

/* No CPU executes anything. */
static void turned(qemu_plugin_id_t id)
{
	sees_user_code = atomic_load(&shall_see_user_code);
	register_callbacks(id);
	atomic_store(&turning, false);
}

void see_user_code(bool shall)
{
	atomic_store(&shall_see_user_code, shall);
	if (shall != sees_user_code && !atomic_exchange(&turning, true))
		qemu_plugin_reset(plugin, turned);
}

static void marked(unsigned int cpu, void *mark)
{
	(void)cpu;
	switch ((uintptr_t)mark) {
	case MARK_NEXT_RECORDING:
		truth_next(units, cpus);
		see_user_code(false);
		break;
	case MARK_HIDES_STOP:
	case MARK_TELLS_STOP:
		hides_stop = (uintptr_t)mark == MARK_HIDES_STOP;
		break;
	case MARK_RECORDING_COMES:
		see_user_code(true);
		break;
	}
}

/* What the guest's program wants of the bench (mark.h) */
static void watch_marks(struct qemu_plugin_insn *insn, const uint8_t *bytes, size_t size)
{
	static const uint8_t begin[] = MARK_OPCODE;
	uint32_t mark;

	if (size != sizeof(begin) + sizeof(mark) || memcmp(bytes, begin, sizeof(begin)))
		return;
	memcpy(&mark, bytes + sizeof(begin), sizeof(mark));
	if (mark >= MARK_NEXT_RECORDING && mark <= MARK_RECORDING_COMES)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)mark);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	/* What begins a kernel runs at low addresses too, and is as uninteresting. */
	bool seen = sees_user_code || qemu_plugin_tb_vaddr(tb) >> 63;
	size_t count = qemu_plugin_tb_n_insns(tb), size = 0, last = 0;
	uint8_t bytes[MAX_INSN_BYTES * MAX_INSNS];
	struct code *code;

	(void)id;
	if (!count || count > MAX_INSNS)
		abort();
	/* Never freed: QEMU does not say when nobody executes it any more. */
	code = calloc(1, sizeof(*code) + count * sizeof(*code->offsets));
	if (!code)
		abort();
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t length = qemu_plugin_insn_size(insn);

		last = size;
		code->offsets[i] = size;
		memcpy(bytes + size, qemu_plugin_insn_data(insn), length);
		if (seen && length == 2 && bytes[size] == 0x0f &&
		    (bytes[size + 1] == 0x30 || bytes[size + 1] == 0x32))
			watch(tb, count, i, bytes + size);
		watch_marks(insn, bytes + size, length);
		code->cpuid |= tells_cpuid && length == 2 && bytes[size] == 0x0f &&
			       bytes[size + 1] == 0xa2;
		size += length;
	}
	code->block.start = qemu_plugin_tb_vaddr(tb);
	code->block.last = code->block.start + last;
	code->block.end = code->block.start + size;
	code->block.count = count;
	code->block.class = insn_classify(bytes + last, size - last, code->block.last,
					  &code->block.target);
	code->moves_cr3 = moves_cr3(bytes + last, size - last);
	code->size = size < sizeof(code->bytes) ? size : sizeof(code->bytes);
	memcpy(code->bytes, bytes, code->size);
	if (seen)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, block_entry, QEMU_PLUGIN_CB_R_REGS, code);
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id;
	if (cpu >= MAX_CPUS) {
		fprintf(stderr, "trace unit: at most %d CPUs\n", MAX_CPUS);
		exit(1);
	}
	units[cpu].cpu = cpu;
	if (cpu >= cpus)
		cpus = cpu + 1;
}

static void machine_ends(qemu_plugin_id_t id, void *unused)
{
	(void)id, (void)unused;
	truth_close(units, cpus);
}

static void register_callbacks(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, machine_ends, NULL);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc,
					   char **argv)
{
	tells_cpuid = argc == 2 && !strcmp(argv[1], "cpuid=on");
	if (argc < 1 || strncmp(argv[0], "dir=", 4) || argc != 1 + tells_cpuid) {
		fprintf(stderr, "trace unit: wants dir=FOLDER, and may have cpuid=on\n");
		return -1;
	}
	if (!info->system_emulation || strcmp(info->target_name, "x86_64") ||
	    !guest_functions_found()) {
		fprintf(stderr,
			"trace unit: needs QEMU 7.2's qemu-system-x86_64, whose binary exports its functions\n");
		return -1;
	}
	if (!truth_open(argv[0] + 4))
		return -1;
	plugin = id;
	register_callbacks(id);
	return 0;
}
