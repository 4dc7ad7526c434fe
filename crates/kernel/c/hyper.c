// SPDX-License-Identifier: MIT OR GPL-2.0
/* The hypercalls: what Rust requires from the kernel. */
#include <crypto/hash.h>
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/sched/mm.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>
#include "obento.h"

atomic_long_t ob_live;
bool ob_dead;
static unsigned long ob_deepest[3];
static int ob_deepest_count = ARRAY_SIZE(ob_deepest);
static int ob_get_live(char *to, const struct kernel_param *p) { return sysfs_emit(to, "%ld\n", atomic_long_read(&ob_live)); }
static const struct kernel_param_ops ob_live_ops = { .get = ob_get_live };
module_param_cb(live, &ob_live_ops, NULL, 0444);
MODULE_PARM_DESC(live, "Number of allocations of the drivers that are in use");
module_param_array_named(stack, ob_deepest, ulong, &ob_deepest_count, 0644);
MODULE_PARM_DESC(stack, "Deepest stack in bytes at an allocation, a device request and a wait");

/* The stack of the kernel that is in use below a call into Rust. */
static void ob_depth(int what)
{
	unsigned long used = (unsigned long)task_stack_page(current) + THREAD_SIZE - (unsigned long)&used;

	if (used < THREAD_SIZE && used > ob_deepest[what])
		ob_deepest[what] = used;
}

void *ob_alloc(size_t size, size_t align, bool zero)
{
	gfp_t gfp = GFP_NOFS | (zero ? __GFP_ZERO : 0);
	void *p;

	ob_depth(0);
	/* kmalloc returns naturally aligned memory for powers of two only */
	if (align > ARCH_KMALLOC_MINALIGN)
		size = roundup_pow_of_two(max(size, align));
	if (size <= PAGE_SIZE)
		p = kmalloc(size, gfp | __GFP_NOFAIL);	/* a caller that cannot fail waits */
	else
		p = kvmalloc(size, gfp);
	if (p)
		atomic_long_inc(&ob_live);
	return p;
}
void ob_free(void *p)
{
	atomic_long_dec(&ob_live);
	kvfree(p);
}
void *ob_realloc(void *p, size_t old, size_t new, size_t align)
{
	void *q = ob_alloc(new, align, false);

	if (q) {
		memcpy(q, p, min(old, new));
		ob_free(p);
	}
	return q;
}

void ob_print(struct ob_bytes text) { pr_info("obento: %.*s\n", (int)text.len, (const char *)text.at); }
void ob_damage(struct super_block *sb, struct ob_bytes text)
{
	struct ob_sb *s = SBI(sb);

	pr_err_ratelimited("obento (%s): %.*s\n", sb->s_id, (int)text.len, (const char *)text.at);
	if (s && s->panics)
		panic("obento (%s): errors=panic\n", sb->s_id);
	if (s && s->stops && !sb_rdonly(sb)) {
		pr_err("obento (%s): remounting read-only\n", sb->s_id);
		sb->s_flags |= SB_RDONLY;
	}
}
/*
 * The threads of drivers. A volume that was dropped does not always wait for its thread, which may drop the rest of the volume
 * itself. The module waits. A thread that ended in a panic stays in the list.
 */
struct ob_running { struct list_head list; void (*run)(void *); };
static LIST_HEAD(ob_threads);
static DEFINE_SPINLOCK(ob_threads_lock);
static DECLARE_WAIT_QUEUE_HEAD(ob_thread_ended);
static bool ob_runs_in(const struct module *m)
{
	struct ob_running *r;
	bool found = false;

	spin_lock(&ob_threads_lock);
	list_for_each_entry(r, &ob_threads, list)
		found = found || within_module((unsigned long)r->run, m);
	spin_unlock(&ob_threads_lock);
	return found;
}
/* Waits until no thread is in a module that is being unloaded. */
void ob_await_threads(const struct module *m)
{
	if (m)
		wait_event(ob_thread_ended, READ_ONCE(ob_dead) || !ob_runs_in(m));
}

/* A panic of Rust cannot unwind: the thread ends with its locks taken, so no other call may start, and the module stays. */
void __noreturn ob_bug(void)
{
	WRITE_ONCE(ob_dead, true);
	wake_up_all(&ob_thread_ended);
	ob_end_dead_upgrade();
	__module_get(THIS_MODULE);
	BUG();
}
void ob_now(s64 *secs, u32 *nanos)
{
	struct timespec64 t;

	ktime_get_coarse_real_ts64(&t);
	*secs = t.tv_sec;
	*nanos = t.tv_nsec;
}

/* nanos: 0 for a lock; U64_MAX for a condition without a limit */
void ob_wait(const u32 *word, u32 expected, u64 nanos)
{
	/* a thread of the driver without work is not a hung task */
	int state = nanos && (current->flags & PF_KTHREAD) ? TASK_IDLE : TASK_UNINTERRUPTIBLE;

	might_sleep();
	ob_depth(2);
	if (nanos == 0 || nanos == U64_MAX)
		(void)___wait_var_event((void *)word, READ_ONCE(*word) != expected, state, 1, 0, schedule());
	else
		(void)___wait_var_event((void *)word, ___wait_cond_timeout(READ_ONCE(*word) != expected), state, 1,
					nsecs_to_jiffies(nanos) + 1, __ret = schedule_timeout(__ret));
}
void ob_wake(const u32 *word, bool all)
{
	struct wait_queue_head *wq = __var_waitqueue((void *)word);

	smp_mb(); /* the change of the word before the look for waiting threads */
	if (!all) {
		__wake_up_bit(wq, (void *)word, -1);
	} else if (waitqueue_active(wq)) {
		struct wait_bit_key key = __WAIT_BIT_KEY_INITIALIZER((void *)word, -1);

		__wake_up(wq, TASK_NORMAL, 0, &key);
	}
}

static void ob_end_running(struct ob_running *r)
{
	spin_lock(&ob_threads_lock);
	list_del(&r->list);
	spin_unlock(&ob_threads_lock);
	kfree(r);
	wake_up_all(&ob_thread_ended);
}
struct ob_thread { struct ob_running *running; void *data; struct completion begun; };
static int ob_thread_main(void *p)
{
	struct ob_thread *t = p;
	struct ob_running *running = t->running;
	void *data = t->data;
	unsigned int flags = memalloc_nofs_save();

	complete(&t->begun);	/* the end of *t */
	running->run(data);
	memalloc_nofs_restore(flags);
	ob_end_running(running);
	return 0;
}
/* Waits for the begin of the thread: one that kthread_stop ends before would never call `run`, which frees `data`. */
void *ob_spawn(const u8 *name, size_t len, void (*run)(void *), void *data)
{
	struct ob_running *running = kmalloc(sizeof(*running), GFP_NOFS);
	struct ob_thread t = { running, data, COMPLETION_INITIALIZER_ONSTACK(t.begun) };
	struct task_struct *task;

	if (!running)
		return NULL;
	running->run = run;
	spin_lock(&ob_threads_lock);
	list_add(&running->list, &ob_threads);
	spin_unlock(&ob_threads_lock);
	task = kthread_create(ob_thread_main, &t, "%.*s", (int)len, name);
	if (IS_ERR(task)) {
		ob_end_running(running);
		return NULL;
	}
	get_task_struct(task);
	wake_up_process(task);
	wait_for_completion(&t.begun);
	return task;
}
void ob_join(struct task_struct *task)
{
	if (task != current)
		kthread_stop(task);	/* the thread ignores kthread_should_stop, so this waits for its end */
	put_task_struct(task);
}
void ob_detach(struct task_struct *task) { put_task_struct(task); }

u32 ob_dev_sector(struct block_device *bdev) { return bdev_logical_block_size(bdev); }
int ob_dev_flush(struct block_device *bdev) { return blkdev_issue_flush(bdev); }
int ob_dev_discard(struct block_device *bdev, u64 off, u64 len)
{
	if (!bdev_max_discard_sectors(bdev))
		return 0;
	return blkdev_issue_discard(bdev, off >> 9, len >> 9, GFP_NOFS);
}
#define OB_READ_OP (REQ_OP_READ | REQ_META | REQ_PRIO)
#define OB_WRITE_OP (REQ_OP_WRITE | REQ_SYNC | REQ_META | REQ_PRIO)

/* Adds bytes to a request, and returns how many it has room for. */
static size_t ob_add(struct bio *bio, const u8 *buf, size_t len)
{
	size_t left = len;

	while (left) {
		struct page *page = is_vmalloc_addr(buf) ? vmalloc_to_page(buf) : virt_to_page(buf);
		unsigned int n = min_t(size_t, left, PAGE_SIZE - offset_in_page(buf));

		if (bio_add_page(bio, page, n, offset_in_page(buf)) != n)
			break;
		buf += n;
		left -= n;
	}
	return len - left;
}
static int ob_bio(struct block_device *bdev, blk_opf_t op, u64 off, u8 *buf, size_t len)
{
	while (len) {
		unsigned int pages = min_t(size_t, BIO_MAX_VECS, (len >> PAGE_SHIFT) + 2);
		struct bio *bio = bio_alloc(bdev, pages, op, GFP_NOFS);
		size_t n;
		int err;

		bio->bi_iter.bi_sector = off >> 9;
		n = ob_add(bio, buf, len);
		buf += n;
		off += n;
		len -= n;
		err = submit_bio_wait(bio);
		bio_put(bio);
		if (err)
			return err;
	}
	return 0;
}
/* Whether the device can use a buffer: a stack may be in vmalloc space, and static data is in the module. */
static bool ob_is_direct(u64 off, const u8 *buf, size_t len, u64 mask)
{
	return !((off | len | (unsigned long)buf) & mask) && !object_is_on_stack(buf) && (is_vmalloc_addr(buf) || virt_addr_valid(buf));
}
int ob_dev_rw(struct block_device *, bool write, u64 off, u8 *buf, size_t len);
/* Writes after all earlier writes, and waits until both are on stable storage. */
int ob_dev_write_in_order(struct block_device *bdev, u64 off, u8 *buf, size_t len)
{
	int err;

	/* one request of at most this size */
	if (len <= PAGE_SIZE && ob_is_direct(off, buf, len, bdev_logical_block_size(bdev) - 1)) {
		ob_depth(1);
		return ob_bio(bdev, OB_WRITE_OP | REQ_PREFLUSH | REQ_FUA, off, buf, len);
	}
	err = blkdev_issue_flush(bdev);
	err = err ?: ob_dev_rw(bdev, true, off, buf, len);
	return err ?: blkdev_issue_flush(bdev);
}
int ob_dev_rw(struct block_device *bdev, bool write, u64 off, u8 *buf, size_t len)
{
	u64 mask = bdev_logical_block_size(bdev) - 1;

	ob_depth(1);
	if (ob_is_direct(off, buf, len, mask))
		return ob_bio(bdev, write ? OB_WRITE_OP : OB_READ_OP, off, buf, len);
	/* other buffers are copied */
	while (len) {
		u64 start = off & ~mask, skip = off - start;
		size_t n = min_t(size_t, len, 65536 - skip), whole = (skip + n + mask) & ~mask;
		u8 *b = kmalloc(roundup_pow_of_two(whole), GFP_NOFS);
		int err = b ? 0 : -ENOMEM;

		if (!err && (!write || skip || n != whole))
			err = ob_bio(bdev, OB_READ_OP, start, b, whole);
		if (!err && write) {
			memcpy(b + skip, buf, n);
			err = ob_bio(bdev, OB_WRITE_OP, start, b, whole);
		} else if (!err) {
			memcpy(buf, b + skip, n);
		}
		kfree(b);
		if (err)
			return err;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* The kernel selects the fastest code for the processor; without any, drivers use a table of their own. */
static struct crypto_shash *ob_crc;

void ob_init_checksums(void)
{
#if IS_ENABLED(CONFIG_CRYPTO_HASH)
	struct crypto_shash *crc = crypto_alloc_shash("crc32c", 0, 0);

	if (IS_ERR(crc))
		return;
	if (crypto_shash_descsize(crc) == sizeof(u32))
		ob_crc = crc;
	else
		crypto_free_shash(crc);
#endif
}
void ob_exit_checksums(void)
{
#if IS_ENABLED(CONFIG_CRYPTO_HASH)
	if (ob_crc)
		crypto_free_shash(ob_crc);
#endif
}
bool ob_has_crc32c(void) { return ob_crc; }
u32 ob_crc32c(u32 seed, const u8 *at, size_t len)
{
#if IS_ENABLED(CONFIG_CRYPTO_HASH)
	/* as ext4_chksum of Linux */
	struct {
		struct shash_desc shash;
		u32 ctx;
	} desc = { .shash.tfm = ob_crc };

	*(u32 *)shash_desc_ctx(&desc.shash) = seed;
	BUG_ON(crypto_shash_update(&desc.shash, at, len));
	return *(u32 *)shash_desc_ctx(&desc.shash);
#else
	return seed;	/* not called */
#endif
}

/* Writes buffers to adjacent places, as far as the device can use them in one request each. */
int ob_dev_write_parts(struct block_device *bdev, u64 off, const struct ob_bytes *parts, size_t count)
{
	u64 mask = bdev_logical_block_size(bdev) - 1;
	size_t i = 0;
	int err = 0;

	ob_depth(1);
	while (!err && i < count) {
		size_t first = i, len = 0, pages = 0;
		struct bio *bio;

		/* a buffer may begin and end within a page */
		for (; i < count && ob_is_direct(off + len, parts[i].at, parts[i].len, mask); i++) {
			pages += (parts[i].len >> PAGE_SHIFT) + (parts[i].len & ~PAGE_MASK || offset_in_page(parts[i].at) ? 2 : 0);
			if (pages > BIO_MAX_VECS)
				break;
			len += parts[i].len;
		}
		if (i == first) {
			err = ob_dev_rw(bdev, true, off, (u8 *)parts[i].at, parts[i].len);
			off += parts[i++].len;
			continue;
		}
		bio = bio_alloc(bdev, min_t(size_t, pages, BIO_MAX_VECS), OB_WRITE_OP, GFP_NOFS);
		bio->bi_iter.bi_sector = off >> 9;
		for (; first < i; first++)
			if (ob_add(bio, parts[first].at, parts[first].len) != parts[first].len)
				err = -EIO;	/* the room was counted */
		err = err ?: submit_bio_wait(bio);
		bio_put(bio);
		off += len;
	}
	return err;
}

/* For modules with drivers. */
EXPORT_SYMBOL_GPL(ob_alloc);
EXPORT_SYMBOL_GPL(ob_free);
EXPORT_SYMBOL_GPL(ob_realloc);
EXPORT_SYMBOL_GPL(ob_print);
EXPORT_SYMBOL_GPL(ob_damage);
EXPORT_SYMBOL_GPL(ob_bug);
EXPORT_SYMBOL_GPL(ob_now);
EXPORT_SYMBOL_GPL(ob_wait);
EXPORT_SYMBOL_GPL(ob_wake);
EXPORT_SYMBOL_GPL(ob_spawn);
EXPORT_SYMBOL_GPL(ob_join);
EXPORT_SYMBOL_GPL(ob_detach);
EXPORT_SYMBOL_GPL(ob_dev_sector);
EXPORT_SYMBOL_GPL(ob_dev_flush);
EXPORT_SYMBOL_GPL(ob_dev_discard);
EXPORT_SYMBOL_GPL(ob_dev_rw);
EXPORT_SYMBOL_GPL(ob_dev_write_in_order);
EXPORT_SYMBOL_GPL(ob_dev_write_parts);
EXPORT_SYMBOL_GPL(ob_has_crc32c);
EXPORT_SYMBOL_GPL(ob_crc32c);
