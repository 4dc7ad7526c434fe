// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Replacing the driver of a mounted volume. Inodes, dentries, pages and open files stay: they contain numbers only.
 *
 * 1. Before the pause, the old driver writes its changes to their places, so little is left.
 * 2. The pause begins: no new promise (promise.c), and the existing ones end. Then the gate is closed: no call is in the driver.
 * 3. The old driver leaves: its changes are in their places, and the rest of its state is a string of bytes.
 * 4. The new driver resumes. What it writes stays in memory, so the volume is as the old driver left it.
 * 5. It reserves the blocks of dirty pages, and may fail for lack of space.
 * 6. The old driver departs, which fails if it has written meanwhile; then the new one writes. From here there is no way back.
 *
 * If a step fails, the old driver continues as if nothing had happened. The exception is a new driver that wrote a part of its
 * changes: the volume is then as after a crash. The old driver only reads it until it is mounted again.
 */
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/writeback.h>
#include "obento.h"

/* How often changes are written before the pause. */
#define OB_ROUNDS 2

/* The state of the old driver. */
struct ob_state { struct inode **inodes; u64 *numbers; size_t count; void *bytes; size_t len; };

/* The part of a replacement that other processes notice. It runs in a thread of its own, since opening a volume needs most of a stack. */
struct ob_exchange {
	struct work_struct work;
	struct completion done;
	struct ob_sb *s;
	struct ob_driver *new;
	struct ob_options *options;
	struct ob_volume *gone;		/* the volume of the old driver */
	struct task_struct *thread;	/* while the gate is closed */
	int err;
};
/* The replacement in progress, under ob_lock. */
static struct ob_exchange *ob_exchanging;

/* A panic in a driver ends this thread: others must not wait for it, and get EIO. */
void ob_end_dead_upgrade(void)
{
	struct ob_exchange *x = READ_ONCE(ob_exchanging);

	if (!x || READ_ONCE(x->thread) != current)
		return;
	up_write(&x->s->gate);
	x->err = -EIO;
	complete(&x->done);
}

/* The inodes in use. The gate is closed: none of them disappears, and only file handles add others. */
static int ob_list_inodes(struct ob_sb *s, struct ob_state *state)
{
	struct ob_inode *o;
	size_t most = 64;

	spin_lock(&s->uses_lock);
	list_for_each_entry(o, &s->uses, uses)
		most++;
	spin_unlock(&s->uses_lock);
	state->inodes = kvmalloc_array(most, sizeof(*state->inodes), GFP_NOFS);
	state->numbers = kvmalloc_array(most, sizeof(*state->numbers), GFP_NOFS);
	if (!state->inodes || !state->numbers)
		return -ENOMEM;
	spin_lock(&s->uses_lock);
	list_for_each_entry(o, &s->uses, uses) {
		if (state->count == most)
			break;
		state->numbers[state->count] = o->vfs.i_ino;
		state->inodes[state->count++] = &o->vfs;
	}
	spin_unlock(&s->uses_lock);
	return state->count == most ? -EBUSY : 0;
}
static int ob_take_state(void *data, struct ob_bytes bytes)
{
	struct ob_state *state = data;

	state->bytes = kvmalloc(bytes.len, GFP_NOFS);
	if (!state->bytes)
		return -ENOMEM;
	memcpy(state->bytes, bytes.at, bytes.len);
	state->len = bytes.len;
	return 0;
}
static void ob_free_state(struct ob_state *state)
{
	kvfree(state->inodes);
	kvfree(state->numbers);
	kvfree(state->bytes);
}

/* The page cache depends on these properties of the volume, and inodes that exist have been created with them. */
static int ob_check_limits(struct ob_sb *s, const struct ob_usage *u)
{
	u64 fixed = OB_IS_THROUGH | OB_HAS_HOLES | OB_HAS_XATTRS;

	if (u->block_size == s->limits.block_size && !((u->features ^ s->limits.features) & fixed))
		return 0;
	pr_err("obento (%s): the drivers differ in block size, holes, extended attributes or passing of file data\n", s->sb->s_id);
	return -EPROTONOSUPPORT;
}
/* The old driver has departed. Lets it continue if the new one fails before its first write. */
static int ob_release_to(struct ob_sb *s, struct ob_driver *new, struct ob_volume *vol)
{
	static const char text[] = "another driver has written a part of its changes: remounting read-only";
	int err = new->ops->release(vol);

	if (err < 0) {
		s->ops->stay(s->vol);
	} else if (err > 0) {
		ob_damage(s->sb, (struct ob_bytes){ text, sizeof(text) - 1 });
		s->sb->s_flags |= SB_RDONLY;
		err = -err;
	}
	return err;
}
/* Opens the volume with another driver. The gate is closed. */
static int ob_resume_with(struct ob_sb *s, struct ob_driver *new, struct ob_options *options, struct ob_state *state, struct ob_volume **out)
{
	struct block_device *bdev = s->sb->s_bdev;
	struct ob_bytes bytes = { state->bytes, state->len };
	struct ob_usage limits;
	size_t n;
	int err;

	err = new->ops->resume(bdev, s->sb, bdev_nr_bytes(bdev), options, bytes, out);
	if (err)
		return err;
	err = new->ops->statfs(*out, &limits) ?: ob_check_limits(s, &limits);
	for (n = 0; !err && n < state->count; n++)
		if (mapping_tagged(&state->inodes[n]->i_data, PAGECACHE_TAG_DIRTY))
			err = ob_promise_again(s, new->ops, *out, state->inodes[n]);
	if (!err)
		err = s->ops->depart(s->vol);
	if (!err)
		err = ob_release_to(s, new, *out);
	if (err)
		new->ops->free_volume(*out);
	else
		s->limits = limits;
	return err;
}
/* Exchanges the driver. The gate is closed. */
static int ob_exchange(struct ob_exchange *x)
{
	struct ob_sb *s = x->s;
	struct ob_state state = { };
	struct ob_volume *vol;
	int err;

	if (READ_ONCE(ob_dead))
		return -EIO;
	err = ob_list_inodes(s, &state);
	if (!err)
		err = s->ops->leave(s->vol, (struct ob_numbers){ state.numbers, state.count }, ob_take_state, &state);
	if (!err)
		err = ob_resume_with(s, x->new, x->options, &state, &vol);
	if (!err) {
		x->gone = s->vol;
		s->vol = vol;
		s->ops = x->new->ops;
		s->driver = x->new;
		s->options = *x->options;
		s->upgrades++;
	}
	ob_free_state(&state);
	return err;
}
static void ob_exchange_work(struct work_struct *work)
{
	struct ob_exchange *x = container_of(work, struct ob_exchange, work);

	down_write(&x->s->gate);
	WRITE_ONCE(x->thread, current);
	x->err = ob_exchange(x);
	WRITE_ONCE(x->thread, NULL);
	up_write(&x->s->gate);
	complete(&x->done);
}
static int ob_pause(struct ob_exchange *x)
{
	ktime_t began = ktime_get();
	int err = ob_stop_promises(x->s);

	if (!err) {
		init_completion(&x->done);
		INIT_WORK_ONSTACK(&x->work, ob_exchange_work);
		ob_exchanging = x;
		queue_work(system_unbound_wq, &x->work);
		wait_for_completion(&x->done);
		ob_exchanging = NULL;
		destroy_work_on_stack(&x->work);
		err = x->err;
	}
	ob_permit_promises(x->s);
	x->s->pause = ktime_to_ns(ktime_sub(ktime_get(), began));
	return err;
}
/* The new driver must understand what the old one writes. */
static int ob_check_states(struct ob_sb *s, const struct ob_driver *new)
{
	u32 first, last, written;

	s->ops->states(&first, &written);
	new->ops->states(&first, &last);
	if (first <= written && written <= last)
		return 0;
	pr_err("obento (%s): %s writes version %u of the state, and %s supports versions %u to %u\n", s->sb->s_id,
	       module_name(s->driver->owner), written, module_name(new->owner), first, last);
	return -EPROTONOSUPPORT;
}
static int ob_replace(struct ob_sb *s, struct ob_driver *new)
{
	struct ob_driver *old = s->driver;
	const struct ob_ops *ops = s->ops;
	struct ob_options options = s->options;
	struct ob_exchange x = { .s = s, .new = new, .options = &options };
	int n, err = ob_check_states(s, new);

	options.type_index = ob_type_index(new, s->sb->s_type->name);
	for (n = 0; !err && n < OB_ROUNDS; n++)
		err = sync_filesystem(s->sb) ?: GATED(s->sb, prepare);
	if (!err)
		err = ob_pause(&x);
	if (err) {
		pr_err("obento (%s): %s does not replace %s: error %d\n", s->sb->s_id, module_name(new->owner), module_name(old->owner), err);
		return err;
	}
	pr_info("obento (%s): %s has replaced %s: a pause of %lld us\n", s->sb->s_id, module_name(new->owner), module_name(old->owner),
		div_s64(s->pause, NSEC_PER_USEC));
	ops->free_volume(x.gone);
	module_put(old->owner);
	return 0;
}
/*
 * Takes s_umount for writing: memory reclaim evicts inodes of volumes whose s_umount it can take for reading. It would wait for
 * the gate, which is held while the new driver may wait for memory or for a new thread. Waits for at most *patience jiffies, and
 * subtracts those for which it has waited.
 *
 * The caller has ob_lock. An unmount has s_umount and waits for that lock, so this function only tries.
 */
static int ob_lock_mount(struct super_block *sb, unsigned long *patience)
{
	unsigned long began = jiffies, waited = 0;
	int err = 0;

	while (!err && !down_write_trylock(&sb->s_umount)) {
		waited = jiffies - began;
		if (!(READ_ONCE(sb->s_flags) & SB_ACTIVE) || waited > *patience)
			err = -EBUSY;
		else if (fatal_signal_pending(current))
			err = -EINTR;
		else
			/* less than the time for which sync(2) leaves the volume */
			usleep_range(20, 50);
	}
	*patience -= min(waited, *patience);
	return err;
}
/*
 * Replaces the driver of a volume by the one of `module`, or by the newest one. Waits for at most *patience jiffies for users of
 * s_umount, and subtracts those for which it has waited. The caller has ob_lock.
 */
int ob_upgrade(struct ob_sb *s, const char *module, unsigned long *patience)
{
	struct ob_driver *new = ob_find(s->sb->s_type->name, module);
	int err;

	if (!new)
		return -ENOENT;
	if (new == s->driver)
		return -EALREADY;
	err = ob_lock_mount(s->sb, patience);
	if (err)
		return err;
	if (READ_ONCE(ob_dead) || s->sb->s_writers.frozen != SB_UNFROZEN) {
		err = READ_ONCE(ob_dead) ? -EIO : -EBUSY;
	} else if (!try_module_get(new->owner)) {
		err = -ENOENT;
	} else {
		err = ob_replace(s, new);
		/* after a panic, a thread may be in the module */
		if (err && !READ_ONCE(ob_dead))
			module_put(new->owner);
	}
	up_write(&s->sb->s_umount);
	return err;
}
