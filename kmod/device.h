/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PERMILLE_DEVICE_H
#define PERMILLE_DEVICE_H

int control_device_register(void);
void control_device_unregister(void);

#endif
