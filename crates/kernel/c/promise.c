// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Promises: what a driver has in memory only, and the page cache or the VFS does not show yet. Its driver cannot be replaced
 * meanwhile.
 *
 * OB_CALLER: blocks are reserved and their page is not dirty yet, or an inode number is known and has no inode yet.
 * OB_WRITEBACK: pages are no longer dirty, and their blocks are not published yet.
 *
 * Invariant: a promise of a caller may wait for writeback, and writeback waits for no caller. So callers are stopped first.
 * Invariant: no new promise begins under a promise of the same kind, a folio lock or the gate.
 * A caller may wait for memory of its process, so a replacement waits for a limited time.
 */
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/pagemap.h>
#include <linux/wait.h>
#include <linux/writeback.h>
#include "obento.h"

#define OB_PROMISE_PATIENCE (2 * HZ)

void ob_begin_promise(struct ob_sb *s, int kind)
{
	for (;;) {
		atomic_inc(&s->promises[kind]);
		smp_mb__after_atomic();	/* with the barrier in ob_stop_promises */
		if (likely(READ_ONCE(s->pausing) <= kind))
			return;
		ob_end_promise(s, kind);
		wait_event(s->turn, READ_ONCE(s->pausing) <= kind);
	}
}
void ob_end_promise(struct ob_sb *s, int kind)
{
	if (atomic_dec_and_test(&s->promises[kind]) && READ_ONCE(s->pausing))
		wake_up_all(&s->turn);
}
/* Waits until there is no promise. New ones wait then, until ob_permit_promises. */
int ob_stop_promises(struct ob_sb *s)
{
	int kind;

	for (kind = OB_CALLER; kind <= OB_WRITEBACK; kind++) {
		WRITE_ONCE(s->pausing, kind + 1);
		smp_mb();
		if (!wait_event_timeout(s->turn, !atomic_read(&s->promises[kind]), OB_PROMISE_PATIENCE))
			return -ETIMEDOUT;
	}
	return 0;
}
void ob_permit_promises(struct ob_sb *s)
{
	WRITE_ONCE(s->pausing, 0);
	smp_mb();
	wake_up_all(&s->turn);
}

static int ob_reserve_again(struct inode *i, const struct ob_ops *ops, struct ob_volume *vol, u64 start, u64 end)
{
	u64 unit = SBI(i->i_sb)->unit;
	struct ob_place e;
	int err;

	while (start < end) {
		err = ops->map(vol, i->i_ino, start, end, OB_LOOK, &e);
		if (!err && e.kind != OB_MAPPED && e.kind != OB_DRIVER)
			err = ops->map(vol, i->i_ino, start, min(end, start + round_up(e.len, unit)), OB_RESERVE, &e);
		if (err)
			return err;
		start += max(round_up(e.len, unit), unit);
	}
	return 0;
}
/* Reserves the blocks of dirty pages in another driver. The caller has the gate for writing, and no promise exists. */
int ob_promise_again(struct ob_sb *s, const struct ob_ops *ops, struct ob_volume *vol, struct inode *i)
{
	u64 size = round_up((u64)i_size_read(i), s->unit), start, end;
	struct xarray *pages = &i->i_data.i_pages;
	unsigned long first = 0, n;
	int err = 0;

	while (!err && xa_find(pages, &first, ULONG_MAX, PAGECACHE_TAG_DIRTY)) {
		for (n = first + 1; xa_get_mark(pages, n, PAGECACHE_TAG_DIRTY); n++)
			;
		start = round_down((u64)first << PAGE_SHIFT, s->unit);
		end = min_t(u64, size, round_up((u64)n << PAGE_SHIFT, s->unit));
		if (start < end)
			err = ob_reserve_again(i, ops, vol, start, end);
		first = n;
	}
	return err;
}

/* Writing back: a promise covers at most this much, so that a replacement does not wait for more. */
#define OB_PART (4UL << 20)

static int ob_write_part(struct address_space *m, struct writeback_control *wbc, ob_writepages_t write)
{
	struct ob_sb *s = SBI(m->host->i_sb);
	int err;

	ob_begin_promise(s, OB_WRITEBACK);
	err = write(m, wbc);
	ob_end_promise(s, OB_WRITEBACK);
	return err;
}
/* The next pages of a file, wherever the last call ended. */
static int ob_write_cyclic(struct address_space *m, struct writeback_control *wbc, ob_writepages_t write)
{
	long left = wbc->nr_to_write, part;
	int err;

	do {
		part = min_t(long, left, OB_PART >> PAGE_SHIFT);
		wbc->nr_to_write = part;
		err = ob_write_part(m, wbc, write);
		left -= part - wbc->nr_to_write;
	} while (!err && wbc->nr_to_write <= 0 && left > 0);
	wbc->nr_to_write = left;
	return err;
}
int ob_write_parts(struct address_space *m, struct writeback_control *wbc, ob_writepages_t write)
{
	loff_t start = wbc->range_start, end = wbc->range_end;
	unsigned long n = start >> PAGE_SHIFT;
	int err = 0, last;

	if (wbc->range_cyclic)
		return ob_write_cyclic(m, wbc, write);
	/* fsync(2) writes the other parts, too, if one fails */
	while ((!err || wbc->sync_mode == WB_SYNC_ALL) && xa_find(&m->i_pages, &n, end >> PAGE_SHIFT, PAGECACHE_TAG_DIRTY)) {
		wbc->range_start = max_t(loff_t, start, (loff_t)n << PAGE_SHIFT);
		wbc->range_end = end - wbc->range_start < OB_PART ? end : wbc->range_start + OB_PART - 1;
		last = ob_write_part(m, wbc, write);
		err = err ?: last;
		n = (wbc->range_end >> PAGE_SHIFT) + 1;
		if (wbc->range_end == end || (wbc->sync_mode == WB_SYNC_NONE && wbc->nr_to_write <= 0))
			break;
	}
	wbc->range_start = start;
	wbc->range_end = end;
	return err;
}
