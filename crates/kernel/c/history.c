// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * What processes open, read and write, for a volume whose history is recorded (-o provenance). A read or write counts for the
 * process that opened the file.
 */
#include "obento.h"
#include <linux/cred.h>
#include <linux/export.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

struct ob_opened_file {
	struct ob_process process;
	spinlock_t lock;
	struct ob_read read;
};

bool ob_who(struct ob_process *p)
{
	struct task_struct *leader = current->group_leader;

	if (current->flags & PF_KTHREAD)
		return false;
	*p = (struct ob_process){
		.start = div_u64(leader->start_boottime, NSEC_PER_SEC / USER_HZ),	/* as field 22 of /proc/PID/stat */
		.pid = task_tgid_nr(current),
		.uid = from_kuid(&init_user_ns, current_fsuid()),
		.gid = from_kgid(&init_user_ns, current_fsgid()),
	};
	__get_task_comm((char *)p->comm, sizeof(p->comm), leader);
	return true;
}
EXPORT_SYMBOL_GPL(ob_who);
int ob_open_file(struct inode *i, struct file *f)
{
	struct ob_opened_file *o;
	int err = generic_file_open(i, f);

	if (err || !(SBI(i->i_sb)->options.flags & (OB_PROVENANCE | OB_SHOW_PROVENANCE)))
		return err;
	o = kzalloc(sizeof(*o), GFP_KERNEL_ACCOUNT);
	if (!o)
		return -ENOMEM;
	spin_lock_init(&o->lock);
	ob_who(&o->process);
	GATED_V(i->i_sb, opened, i->i_ino, &o->process, (f->f_mode & FMODE_READ ? OB_READS : 0) | (f->f_mode & FMODE_WRITE ? OB_WRITES : 0));
	f->private_data = o;
	return 0;
}
int ob_release_file(struct inode *i, struct file *f)
{
	struct ob_opened_file *o = f->private_data;

	if (o) {
		GATED_V(i->i_sb, closed, i->i_ino, &o->process, &o->read);
		kfree(o);
	}
	return 0;
}
void ob_note_read(struct file *f, loff_t start, loff_t end)
{
	struct ob_opened_file *o = f->private_data;

	if (!o || start >= end)
		return;
	spin_lock(&o->lock);
	o->read.start = o->read.bytes ? min_t(u64, o->read.start, start) : start;
	o->read.end = max_t(u64, o->read.end, end);
	o->read.bytes += end - start;
	spin_unlock(&o->lock);
}
void ob_note_write(struct file *f, loff_t start, loff_t end)
{
	struct ob_opened_file *o = f->private_data;
	struct inode *i = file_inode(f);

	if (o && start < end)
		GATED_V(i->i_sb, wrote, i->i_ino, &o->process, start, end);
}
