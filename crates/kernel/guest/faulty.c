// SPDX-License-Identifier: MIT OR GPL-2.0
/* Drivers that refuse to take over a volume, for tests. The parameter `fault` selects how. */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>
#include "obento.h"

static char *fault = "";
module_param(fault, charp, 0444);

/* With the fault `busy`, the first `held` syncs wait until `held` is 0. `waiting` is their number. */
static int held;
module_param(held, int, 0644);
static int waiting;
module_param(waiting, int, 0444);
static DEFINE_SPINLOCK(waiting_lock);

static struct ob_ops faulty_ops;
static struct ob_driver faulty = { .abi = OB_ABI, .size = sizeof(struct ob_ops), .owner = THIS_MODULE, .ops = &faulty_ops };

static const char *other_name(size_t n) { return n ? NULL : "obento-other"; }
static void other_states(u32 *first, u32 *last) { *first = *last = 99; }
/* Opens the volume, and gives it up. */
static int fail_after_open(struct block_device *bdev, struct super_block *sb, u64 len, const struct ob_options *options, struct ob_bytes state,
			   struct ob_volume **out)
{
	int err = ob_ops.resume(bdev, sb, len, options, state, out);

	if (!err)
		ob_ops.free_volume(*out);
	return err ?: -EIO;
}
static int resume_changed(struct block_device *bdev, struct super_block *sb, u64 len, const struct ob_options *options, struct ob_bytes state,
			  struct ob_volume **out)
{
	u8 *bytes = kmemdup(state.at, state.len, GFP_NOFS);
	int err = -ENOMEM;

	if (bytes) {
		bytes[state.len / 2] ^= 1;
		err = ob_ops.resume(bdev, sb, len, options, (struct ob_bytes){ bytes, state.len }, out);
		kfree(bytes);
	}
	return err;
}
static int fail_to_reserve(struct ob_volume *vol, u64 ino, u64 start, u64 end, u32 purpose, struct ob_place *out)
{
	return purpose == OB_RESERVE ? -ENOSPC : ob_ops.map(vol, ino, start, end, purpose, out);
}
static int fail_to_release(struct ob_volume *vol) { return -EIO; }
static int wait_to_sync(struct ob_volume *vol)
{
	bool waits;

	spin_lock(&waiting_lock);
	waits = waiting < READ_ONCE(held);
	waiting += waits;
	spin_unlock(&waiting_lock);
	while (waits && READ_ONCE(held))
		msleep(10);
	return ob_ops.sync(vol);
}
static int __init faulty_init(void)
{
	faulty_ops = ob_ops;
	if (!strcmp(fault, "abi"))
		faulty.abi = 99;
	else if (!strcmp(fault, "name"))
		faulty_ops.type_name = other_name;
	else if (!strcmp(fault, "states"))
		faulty_ops.states = other_states;
	else if (!strcmp(fault, "resume"))
		faulty_ops.resume = fail_after_open;
	else if (!strcmp(fault, "changed"))
		faulty_ops.resume = resume_changed;
	else if (!strcmp(fault, "reserve"))
		faulty_ops.map = fail_to_reserve;
	else if (!strcmp(fault, "release"))
		faulty_ops.release = fail_to_release;
	else if (!strcmp(fault, "busy"))
		faulty_ops.sync = wait_to_sync;
	else
		return -EINVAL;
	return ob_register(&faulty);
}
static void __exit faulty_exit(void) { ob_unregister(&faulty); }
module_init(faulty_init);
module_exit(faulty_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Drivers of obento that fail, for tests");
