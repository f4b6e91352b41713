/* SPDX-License-Identifier: GPL-2.0 */
/* What is refused before anything is taken. */
#ifndef PERMILLE_VALIDATE_H
#define PERMILLE_VALIDATE_H

#include <permille.h>

int refuse(struct permille_setup *setup, u32 refusal, u32 value, int error);
/* Whether pids mean the same to the caller as to the kernel */
bool sees_all_processes(void);
/* Of a failed session_add_process */
u32 refusal_of_process(int failed);
int validate_setup(struct permille_setup *setup);
int validate_core(struct permille_setup *setup, const struct permille_core_plan *plan);

#endif
