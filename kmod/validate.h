/* SPDX-License-Identifier: GPL-2.0 */
/* What is refused before anything is taken. */
#ifndef PERMILLE_VALIDATE_H
#define PERMILLE_VALIDATE_H

#include <permille.h>

int refuse(struct permille_setup *setup, u32 refusal, u32 value, int error);
int validate_setup(struct permille_setup *setup);
int validate_core(struct permille_setup *setup, const struct permille_core_plan *plan);

#endif
