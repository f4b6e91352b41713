// SPDX-License-Identifier: GPL-2.0
/* /dev/permille: one open file is one session, and closing it ends it. */
#include <linux/capability.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "device.h"
#include "memory.h"
#include "rtit.h"
#include "session.h"

struct opened {
	struct mutex lock;			/* setup, start and stop one after the other */
	struct permille_session *session;	/* set once */
};

static int permille_open(struct inode *inode, struct file *file)
{
	struct opened *opened;

	if (!perfmon_capable())
		return -EPERM;
	opened = kzalloc(sizeof(*opened), GFP_KERNEL_ACCOUNT);
	if (!opened)
		return -ENOMEM;
	mutex_init(&opened->lock);
	file->private_data = opened;
	return 0;
}

static int permille_release(struct inode *inode, struct file *file)
{
	struct opened *opened = file->private_data;

	if (opened->session)
		session_destroy(opened->session);
	kfree(opened);
	return 0;
}

static long info(void __user *user)
{
	const struct permille_info info = {
		.version = PERMILLE_UAPI_VERSION,
		.backend = rtit->backend,
		.features = rtit_caps.features,
		.psb_freqs = rtit_caps.psb_freqs,
		.mtc_freqs = rtit_caps.mtc_freqs,
		.cyc_thresholds = rtit_caps.cyc_thresholds,
		.regions = rtit_caps.many_regions ? 0 : 1,
		.per_switch = permille_per_switch,
		.memory_limit_bytes = memory_limit(),
		.memory_used_bytes = memory_used(),
		.sessions = session_count(),
	};

	return copy_to_user(user, &info, sizeof(info)) ? -EFAULT : 0;
}

static long setup(struct opened *opened, void __user *user)
{
	struct permille_session *session;
	struct permille_setup setup;
	long result = 0;

	if (!perfmon_capable())
		return -EPERM;
	if (opened->session)
		return -EALREADY;
	if (copy_from_user(&setup, user, sizeof(setup)))
		return -EFAULT;
	session = session_create(&setup);
	if (IS_ERR(session))
		result = PTR_ERR(session);
	else
		smp_store_release(&opened->session, session);	/* whole for poll and mmap */
	if (copy_to_user(user, &setup, sizeof(setup)))
		return -EFAULT;
	return result;
}

static long add_process(struct permille_session *session, void __user *user)
{
	struct permille_process process;
	long result;

	if (!perfmon_capable())
		return -EPERM;
	if (!session)
		return -ENODATA;
	if (copy_from_user(&process, user, sizeof(process)))
		return -EFAULT;
	result = session_join(session, &process);
	if (copy_to_user(user, &process, sizeof(process)))
		return -EFAULT;
	return result;
}

static long session_info(const struct permille_session *session, void __user *user)
{
	struct permille_session_status status = {};

	if (session)
		session_status(session, &status);
	return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
}

static long core_info(struct permille_session *session, void __user *user)
{
	struct permille_core_status status;
	int failed;

	if (!session)
		return -ENODATA;
	if (copy_from_user(&status, user, sizeof(status)))
		return -EFAULT;
	failed = session_core_status(session, status.index, &status);
	if (failed)
		return failed;
	return copy_to_user(user, &status, sizeof(status)) ? -EFAULT : 0;
}

static long stop(struct permille_session *session)
{
	if (!session)
		return -ENODATA;
	session_stop(session, PERMILLE_END_STOPPED);
	return 0;
}

static long control(struct opened *opened, unsigned int command, void __user *user)
{
	switch (command) {
	case PERMILLE_IOC_INFO:
		return info(user);
	case PERMILLE_IOC_SETUP:
		return setup(opened, user);
	case PERMILLE_IOC_START:
		return opened->session ? session_start(opened->session) : -ENODATA;
	case PERMILLE_IOC_STOP:
		return stop(opened->session);
	case PERMILLE_IOC_SESSION:
		return session_info(opened->session, user);
	case PERMILLE_IOC_CORE:
		return core_info(opened->session, user);
	case PERMILLE_IOC_ADD_PROCESS:
		return add_process(opened->session, user);
	}
	return -ENOTTY;
}

static long permille_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct opened *opened = file->private_data;
	long result;

	if (mutex_lock_interruptible(&opened->lock))
		return -EINTR;
	result = control(opened, command, (void __user *)argument);
	mutex_unlock(&opened->lock);
	return result;
}

static __poll_t permille_poll(struct file *file, poll_table *wait)
{
	const struct opened *opened = file->private_data;
	/* Whole, by setup */
	struct permille_session *session = smp_load_acquire(&opened->session);

	if (!session)
		return EPOLLERR;
	poll_wait(file, &session->ended, wait);
	return session_state(session) == PERMILLE_ENDED ? EPOLLIN | EPOLLRDNORM : 0;
}

/* The trace cannot be made writable later either. */
static int keep_read_only(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			  unsigned long flags)
{
	return flags & VM_WRITE ? -EACCES : 0;
}

static const struct vm_operations_struct trace_memory = {
	.mprotect = keep_read_only,
};

static int map_trace(const struct permille_core *core, struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	if (vma_pages(vma) > core->topa.size >> PAGE_SHIFT)
		return -EINVAL;
	vma->vm_ops = &trace_memory;
	return topa_mmap(&core->topa, vma);
}

/* A mapping holds the file, so that the memory stays until the last one is gone. */
static int permille_mmap(struct file *file, struct vm_area_struct *vma)
{
	const struct opened *opened = file->private_data;
	/* Whole, by setup */
	struct permille_session *session = smp_load_acquire(&opened->session);
	u64 offset = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 index = offset >> 32;

	if (!session || !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (index >= session->core_count)
		return -EINVAL;
	if (offset == PERMILLE_MMAP_TRACE(index))
		return map_trace(&session->cores[index], vma);
	if (offset == PERMILLE_MMAP_SWITCHES(index))
		return ring_mmap(&session->cores[index].ring, vma);
	return -EINVAL;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = permille_open,
	.release = permille_release,
	.unlocked_ioctl = permille_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = permille_poll,
	.mmap = permille_mmap,
	.llseek = noop_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "permille",
	.fops = &operations,
	.mode = 0600,
};

int control_device_register(void)
{
	return misc_register(&device);
}

void control_device_unregister(void)
{
	misc_deregister(&device);
}
