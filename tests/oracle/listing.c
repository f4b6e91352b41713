#include "listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void refuse(void)
{
	fputs("libipt refuses the configuration\n", stderr);
	exit(2);
}

static void print_ip(const char *name, const struct pt_packet_ip *ip)
{
	printf("%s %x %" PRIx64 "\n", name, ip->ipc, ip->ipc == pt_ipc_suppressed ? 0 : ip->ip);
}

static void print_packet(const struct pt_packet *packet)
{
	switch (packet->type) {
	case ppt_pad:
		puts("pad");
		break;
	case ppt_psb:
		puts("psb");
		break;
	case ppt_psbend:
		puts("psbend");
		break;
	case ppt_fup:
		print_ip("fup", &packet->payload.ip);
		break;
	case ppt_tip:
		print_ip("tip", &packet->payload.ip);
		break;
	case ppt_tip_pge:
		print_ip("tip.pge", &packet->payload.ip);
		break;
	case ppt_tip_pgd:
		print_ip("tip.pgd", &packet->payload.ip);
		break;
	case ppt_tnt_8:
	case ppt_tnt_64:
		printf("tnt %x %" PRIx64 "\n", packet->payload.tnt.bit_size, packet->payload.tnt.payload);
		break;
	case ppt_mode:
		if (packet->payload.mode.leaf == pt_mol_exec)
			printf("mode.exec %x\n", pt_get_exec_mode(&packet->payload.mode.bits.exec));
		else
			printf("mode.tsx %x %x\n", packet->payload.mode.bits.tsx.intx, packet->payload.mode.bits.tsx.abrt);
		break;
	case ppt_pip:
		printf("pip %" PRIx64 " %x\n", packet->payload.pip.cr3, packet->payload.pip.nr);
		break;
	case ppt_vmcs:
		printf("vmcs %" PRIx64 "\n", packet->payload.vmcs.base);
		break;
	case ppt_cbr:
		printf("cbr %x\n", packet->payload.cbr.ratio);
		break;
	case ppt_tsc:
		printf("tsc %" PRIx64 "\n", packet->payload.tsc.tsc);
		break;
	case ppt_tma:
		printf("tma %x %x\n", packet->payload.tma.ctc, packet->payload.tma.fc);
		break;
	case ppt_mtc:
		printf("mtc %x\n", packet->payload.mtc.ctc);
		break;
	case ppt_cyc:
		printf("cyc %" PRIx64 "\n", packet->payload.cyc.value);
		break;
	case ppt_stop:
		puts("stop");
		break;
	case ppt_ovf:
		puts("ovf");
		break;
	case ppt_mnt:
		printf("mnt %" PRIx64 "\n", packet->payload.mnt.payload);
		break;
	case ppt_exstop:
		printf("exstop %x\n", packet->payload.exstop.ip);
		break;
	case ppt_mwait:
		printf("mwait %x %x\n", packet->payload.mwait.hints, packet->payload.mwait.ext);
		break;
	case ppt_pwre:
		printf("pwre %x %x %x\n", packet->payload.pwre.state, packet->payload.pwre.sub_state, packet->payload.pwre.hw);
		break;
	case ppt_pwrx:
		printf("pwrx %x %x %x %x %x\n", packet->payload.pwrx.last, packet->payload.pwrx.deepest,
		       packet->payload.pwrx.interrupt, packet->payload.pwrx.store, packet->payload.pwrx.autonomous);
		break;
	case ppt_ptw:
		printf("ptw %x %" PRIx64 " %x\n", pt_ptw_size(packet->payload.ptw.plc), packet->payload.ptw.payload,
		       packet->payload.ptw.ip);
		break;
	default:
		puts("unknown");
		break;
	}
}

void list_packets(const struct pt_config *config)
{
	struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);

	if (!decoder)
		refuse();
	while (pt_pkt_sync_forward(decoder) >= 0) {
		for (int status = 0; status >= 0;) {
			struct pt_packet packet;
			uint64_t offset = 0;

			pt_pkt_get_offset(decoder, &offset);
			status = pt_pkt_next(decoder, &packet, sizeof(packet));
			if (status == -pte_eos && offset == (uint64_t)(config->end - config->begin))
				break;
			printf("%" PRIx64 " ", offset);
			if (status < 0)
				printf("error %s\n", pt_errstr(pt_errcode(status)));
			else
				print_packet(&packet);
		}
	}
	pt_pkt_free_decoder(decoder);
}

static void print_unless_suppressed(const struct pt_event *event, uint64_t ip)
{
	if (event->ip_suppressed)
		printf(" -");
	else
		printf(" %" PRIx64, ip);
}

/* As of the last event since decoding began or packets were lost. */
static enum pt_exec_mode mode;

/* False for what is not listed. */
static bool print_what_happened(const struct pt_event *event)
{
	enum pt_exec_mode before = mode;

	/* Told again and again: only changes are of interest. */
	if (event->type == ptev_exec_mode)
		mode = event->variant.exec_mode.mode;
	else if (event->type == ptev_overflow)
		mode = ptem_unknown;
	if (event->status_update || (event->type == ptev_exec_mode && mode == before))
		return false;
	switch (event->type) {
	case ptev_enabled:
		printf("[%s %" PRIx64, event->variant.enabled.resumed ? "resumed" : "enabled", event->variant.enabled.ip);
		break;
	case ptev_disabled:
		printf("[disabled");
		print_unless_suppressed(event, event->variant.disabled.ip);
		break;
	case ptev_async_disabled:
		printf("[stopped %" PRIx64, event->variant.async_disabled.at);
		print_unless_suppressed(event, event->variant.async_disabled.ip);
		break;
	case ptev_async_branch:
		printf("[interrupt %" PRIx64 " %" PRIx64, event->variant.async_branch.from, event->variant.async_branch.to);
		break;
	case ptev_paging:
		printf("[paging %" PRIx64 " %x", event->variant.paging.cr3, event->variant.paging.non_root);
		break;
	case ptev_async_paging:
		printf("[paging %" PRIx64 " %x", event->variant.async_paging.cr3, event->variant.async_paging.non_root);
		break;
	case ptev_overflow:
		printf("[overflow");
		print_unless_suppressed(event, event->variant.overflow.ip);
		break;
	case ptev_exec_mode:
		printf("[mode %x", event->variant.exec_mode.mode);
		break;
	case ptev_tsx:
		printf("[transaction %x %x", event->variant.tsx.speculative, event->variant.tsx.aborted);
		break;
	case ptev_stop:
		printf("[stop");
		break;
	case ptev_vmcs:
		printf("[vmcs %" PRIx64, event->variant.vmcs.base);
		break;
	case ptev_async_vmcs:
		printf("[vmcs %" PRIx64, event->variant.async_vmcs.base);
		break;
	case ptev_exstop:
		printf("[exstop");
		print_unless_suppressed(event, event->variant.exstop.ip);
		break;
	case ptev_mwait:
		printf("[mwait %x %x", event->variant.mwait.hints, event->variant.mwait.ext);
		print_unless_suppressed(event, event->variant.mwait.ip);
		break;
	case ptev_pwre:
		printf("[pwre %x %x %x", event->variant.pwre.state, event->variant.pwre.sub_state, event->variant.pwre.hw);
		break;
	case ptev_pwrx:
		printf("[pwrx %x %x %x %x %x", event->variant.pwrx.last, event->variant.pwrx.deepest,
		       event->variant.pwrx.interrupt, event->variant.pwrx.store, event->variant.pwrx.autonomous);
		break;
	case ptev_ptwrite:
		printf("[ptwrite %x %" PRIx64, event->variant.ptwrite.size, event->variant.ptwrite.payload);
		print_unless_suppressed(event, event->variant.ptwrite.ip);
		break;
	case ptev_cbr:
		printf("[cbr %x", event->variant.cbr.ratio);
		break;
	case ptev_mnt:
		printf("[mnt %" PRIx64, event->variant.mnt.payload);
		break;
	default:
		printf("[event %d", (int)event->type);
		break;
	}
	return true;
}

static void print_event(const struct pt_event *event)
{
	if (!print_what_happened(event))
		return;
	if (event->has_tsc)
		printf(" @%" PRIx64 "]\n", event->tsc);
	else
		printf(" @-]\n");
}

static void print_error(uint64_t offset, uint64_t ip, int status)
{
	printf("error %" PRIx64 " %" PRIx64 " %s\n", offset, ip, pt_errstr(pt_errcode(status)));
}

/* Behind the last packet nothing is known to have run: its code may be unknown. */
static bool is_end(int status, uint64_t offset, const struct pt_config *config)
{
	bool behind = offset == (uint64_t)(config->end - config->begin);

	return status == -pte_eos || (status == -pte_nomap && behind);
}

/* The end flag alone is not the end: direct branches go on until packets are needed (intel-pt.h, pt_insn_next). */
static int walk_instructions(struct pt_insn_decoder *decoder, int status, follow_fn *follow)
{
	struct pt_insn insn = {0};
	uint64_t offset = 0;

	while (status >= 0) {
		while (status >= 0 && status & pts_event_pending) {
			struct pt_event event;

			status = pt_insn_event(decoder, &event, sizeof(event));
			if (status < 0)
				break;
			pt_insn_get_offset(decoder, &offset);
			follow(offset, event.type == ptev_enabled);
			print_event(&event);
		}
		if (status < 0)
			break;
		memset(&insn, 0, sizeof(insn));
		status = pt_insn_next(decoder, &insn, sizeof(insn));
		pt_insn_get_offset(decoder, &offset);
		follow(offset, false);
		if (insn.iclass != ptic_error)
			printf("%s%" PRIx64 "%s\n", status < 0 ? "reached " : "", insn.ip, insn.speculative ? " ?" : "");
	}
	if (!is_end(status, offset, pt_insn_get_config(decoder)))
		print_error(offset, insn.ip, status);
	return status;
}

static void stay(uint64_t offset, bool enabled)
{
	(void)offset, (void)enabled;
}

void list_instructions(const struct pt_config *config, struct pt_image *image, follow_fn *follow)
{
	struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
	uint64_t offset, before = UINT64_MAX;

	if (!decoder || pt_insn_set_image(decoder, image) < 0)
		refuse();
	follow = follow ? follow : stay;
	for (;;) {
		int status = pt_insn_sync_forward(decoder);

		if (pt_insn_get_sync_offset(decoder, &offset) < 0 || (status < 0 && offset == before))
			break;
		before = offset;
		mode = ptem_unknown;
		printf("sync %" PRIx64 "\n", offset);
		/* What follows the PSB cannot be read: the next one may do. */
		if (status < 0) {
			print_error(offset, 0, status);
			continue;
		}
		pt_insn_get_offset(decoder, &offset);
		follow(offset + 1, true);
		walk_instructions(decoder, status, follow);
	}
	pt_insn_free_decoder(decoder);
}

static int walk_blocks(struct pt_block_decoder *decoder, int status, follow_fn *follow)
{
	struct pt_block block = {0};
	uint64_t offset = 0;

	while (status >= 0) {
		while (status >= 0 && status & pts_event_pending) {
			struct pt_event event;

			status = pt_blk_event(decoder, &event, sizeof(event));
			if (status < 0)
				break;
			pt_blk_get_offset(decoder, &offset);
			follow(offset, event.type == ptev_enabled);
			print_event(&event);
		}
		if (status < 0)
			break;
		memset(&block, 0, sizeof(block));
		status = pt_blk_next(decoder, &block, sizeof(block));
		pt_blk_get_offset(decoder, &offset);
		follow(offset, false);
		/* A block that ran into an error has the instructions before it. */
		if (block.ninsn)
			printf("%" PRIx64 " %" PRIx64 " %x%s\n", block.ip, block.end_ip, block.ninsn,
			       block.speculative ? " ?" : "");
	}
	if (!is_end(status, offset, pt_blk_get_config(decoder)))
		print_error(offset, block.end_ip, status);
	return status;
}

void list_blocks(const struct pt_config *config, struct pt_image *image, follow_fn *follow)
{
	struct pt_config with_flags = *config;
	struct pt_block_decoder *decoder;
	uint64_t offset, before = UINT64_MAX;

	with_flags.flags.variant.block.end_on_call = 1;
	with_flags.flags.variant.block.end_on_jump = 1;
	decoder = pt_blk_alloc_decoder(&with_flags);
	if (!decoder || pt_blk_set_image(decoder, image) < 0)
		refuse();
	follow = follow ? follow : stay;
	for (;;) {
		int status = pt_blk_sync_forward(decoder);

		if (pt_blk_get_sync_offset(decoder, &offset) < 0 || (status < 0 && offset == before))
			break;
		before = offset;
		mode = ptem_unknown;
		printf("sync %" PRIx64 "\n", offset);
		/* What follows the PSB cannot be read: the next one may do. */
		if (status < 0) {
			print_error(offset, 0, status);
			continue;
		}
		pt_blk_get_offset(decoder, &offset);
		follow(offset + 1, true);
		walk_blocks(decoder, status, follow);
	}
	pt_blk_free_decoder(decoder);
}
