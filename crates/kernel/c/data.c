// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The data of files through the page cache: iomap asks the driver where blocks are, and a completed write publishes them.
 *
 * A write reserves blocks before it fills pages, so write(2) reports a full volume. Data is on the device before any metadata
 * names its blocks, so `data=ordered` costs nothing. An overwrite publishes its time before its data.
 */
#include <linux/backing-dev.h>
#include <linux/blkdev.h>
#include <linux/iomap.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/uio.h>
#include <linux/writeback.h>
#include "obento.h"

struct workqueue_struct *ob_wq;

/* Another driver has not reserved what this one has. */
static u64 ob_cookie(struct inode *i)
{
	u32 moved = atomic_read(&OBI(i)->moved) + READ_ONCE(SBI(i->i_sb)->upgrades);

	return (u64)moved << 32 | (u32)atomic_read(&OBI(i)->ended);
}
static bool ob_iomap_valid(struct inode *i, const struct iomap *m) { return m->validity_cookie == ob_cookie(i); }
/* The reservation of a page is a promise until the page is dirty. */
static int ob_page_prepare(struct inode *i, loff_t pos, unsigned int len)
{
	ob_begin_promise(SBI(i->i_sb), OB_CALLER);
	return 0;
}
static void ob_page_done(struct inode *i, loff_t pos, unsigned int copied, struct page *page) { ob_end_promise(SBI(i->i_sb), OB_CALLER); }
static const struct iomap_page_ops ob_page_ops = { .page_prepare = ob_page_prepare, .page_done = ob_page_done, .iomap_valid = ob_iomap_valid };

static int ob_iomap_fill(struct inode *i, loff_t off, loff_t len, unsigned int flags, struct iomap *m)
{
	u64 unit = SBI(i->i_sb)->unit, start = round_down(off, unit), end = round_up(off + len, unit);
	struct ob_place e;
	int err;

	m->validity_cookie = ob_cookie(i);
	m->bdev = i->i_sb->s_bdev;
	m->offset = start;
	m->flags = 0;
	if ((flags & IOMAP_WRITE) && start >= i_size_read(i)) {
		e = (struct ob_place){ .kind = OB_HOLE, .len = end - start };	/* past the end nothing is mapped */
	} else if (!(flags & IOMAP_WRITE) || !ob_known(i, start, end, &e)) {
		err = flags & IOMAP_WRITE ? ob_map_known(i, start, end, &e) :
			GATED(i->i_sb, map, i->i_ino, start, end, OB_LOOK, &e);
		if (err)
			return err;
	}
	if ((flags & IOMAP_WRITE) && e.kind != OB_MAPPED && e.kind != OB_DRIVER) {
		if ((flags & IOMAP_NOWAIT) || (flags & IOMAP_OVERWRITE_ONLY))
			return -EAGAIN;
		err = GATED(i->i_sb, map, i->i_ino, start, min_t(u64, end, start + round_up(e.len, unit)), OB_RESERVE, &e);
		if (err)
			return err;
		m->flags = IOMAP_F_NEW;
		m->page_ops = &ob_page_ops;
	}
	m->length = round_up(e.len, unit);
	m->addr = IOMAP_NULL_ADDR;
	switch (e.kind) {
	case OB_MAPPED:
		m->type = IOMAP_MAPPED;
		m->addr = e.at;
		return 0;
	case OB_HOLE:
		m->type = IOMAP_HOLE;
		return 0;
	case OB_UNWRITTEN:
		m->type = IOMAP_UNWRITTEN;
		return 0;
	default:
		/* the file has become one whose data only the driver can access */
		return flags & IOMAP_REPORT ? (m->type = IOMAP_INLINE, 0) : -EIO;
	}
}
static int ob_iomap_begin(struct inode *i, loff_t off, loff_t len, unsigned int flags, struct iomap *m, struct iomap *src)
{
	int err = ob_iomap_fill(i, off, len, flags, m);

	/* The driver does not say where unwritten blocks are. They read as zeros, as holes do. */
	if (!err && m->type == IOMAP_UNWRITTEN)
		m->type = IOMAP_HOLE;
	return err;
}
static int ob_iomap_end(struct inode *i, loff_t off, loff_t len, ssize_t done, unsigned int flags, struct iomap *m)
{
	loff_t unused = round_up(off + max_t(ssize_t, done, 0), (loff_t)SBI(i->i_sb)->unit);
	loff_t end = m->offset + m->length;

	/* A dirty page in the range needs its reservation. */
	if ((m->flags & IOMAP_F_NEW) && !(flags & IOMAP_DIRECT) && done < len && unused < end &&
	    !filemap_range_has_page(i->i_mapping, unused, end - 1))
		GATED_V(i->i_sb, abandon, i->i_ino, unused, end);
	return 0;
}
const struct iomap_ops ob_iomap_ops = { .iomap_begin = ob_iomap_begin, .iomap_end = ob_iomap_end };

/* For SEEK_DATA and SEEK_HOLE, a block that is reserved only counts as data if its page is in memory. */
static int ob_report_begin(struct inode *i, loff_t off, loff_t len, unsigned int flags, struct iomap *m, struct iomap *src)
{
	int err = ob_iomap_fill(i, off, len, flags, m);

	if (!err && m->type == IOMAP_HOLE)
		m->type = IOMAP_UNWRITTEN;
	if (!err && m->type == IOMAP_INLINE)
		m->type = IOMAP_MAPPED;
	return err;
}
const struct iomap_ops ob_report_ops = { .iomap_begin = ob_report_begin };

/* writing back */
struct ob_wpc {
	struct iomap_writepage_ctx ctx;
	int moved;
	bool is_stamped;		/* the volume has `mtime`, and at least `size` bytes of the file while `moved` is equal */
	struct timespec64 mtime;
	u64 size;
};
static bool ob_is_stamped(const struct ob_wpc *wpc, const struct inode *i) { return wpc->is_stamped && timespec64_equal(&wpc->mtime, &i->i_mtime); }

/* The dirty pages after `off`, up to 1 MiB: what is reserved and written at once. */
static u64 ob_dirty_end(struct inode *i, loff_t off)
{
	pgoff_t first = off >> PAGE_SHIFT, n = first + 1, most = min_t(pgoff_t, first + 256, DIV_ROUND_UP(i_size_read(i), PAGE_SIZE));

	if (SBI(i->i_sb)->unit != PAGE_SIZE)
		return round_up(off + 1, (loff_t)SBI(i->i_sb)->unit);
	while (n < most && xa_get_mark(&i->i_mapping->i_pages, n, PAGECACHE_TAG_DIRTY))
		n++;
	return (u64)n << PAGE_SHIFT;
}
/*
 * Publishes the modification time before the data overwrites written blocks at `off`, and asks how large the file is on the volume.
 * The answers are valid for this call of writepages: a write has stored its time before it locks a page.
 */
static int ob_stamp(struct ob_wpc *wpc, struct inode *i, u64 off)
{
	struct timespec64 mtime = i->i_mtime;
	struct ob_moment when = ob_moment(mtime);
	struct ob_attributes a;
	int err = GATED(i->i_sb, getattr, i->i_ino, &a);

	if (!err && off < a.size)
		err = GATED(i->i_sb, end_write, i->i_ino, off, min_t(u64, off + i_blocksize(i), a.size), &when);
	if (err)
		return err;
	wpc->is_stamped = off < a.size;
	wpc->mtime = mtime;
	wpc->size = a.size;
	return 0;
}
/*
 * An overwrite within the size on the volume leaves nothing to publish. In the last page of that size, the size in memory may grow
 * until the page is locked, so this page is an extent of its own.
 */
static int ob_map_overwrite(struct ob_wpc *wpc, struct inode *i, u64 off, struct ob_place *e)
{
	int err = ob_is_stamped(wpc, i) ? 0 : ob_stamp(wpc, i, off);
	u64 pages = round_down(wpc->size, PAGE_SIZE), next = round_down(off, PAGE_SIZE) + PAGE_SIZE;

	if (err)
		return err;
	e->len = min(e->len, max(pages, next) - off);
	if (off >= pages && min_t(u64, next, i_size_read(i)) > wpc->size)
		wpc->ctx.iomap.type = IOMAP_UNWRITTEN;
	return 0;
}
static int ob_map_blocks(struct iomap_writepage_ctx *ctx, struct inode *i, loff_t off)
{
	struct ob_wpc *wpc = container_of(ctx, struct ob_wpc, ctx);
	struct iomap *m = &ctx->iomap;
	u64 end;
	struct ob_place e;
	int err, moved = atomic_read(&OBI(i)->moved);

	if (wpc->moved != moved)
		wpc->is_stamped = false;
	else if (off >= m->offset && off < m->offset + m->length && (m->type != IOMAP_MAPPED || ob_is_stamped(wpc, i)))
		return 0;
	end = ob_dirty_end(i, off);
	err = ob_known(i, off, end, &e) ? 0 : GATED(i->i_sb, map, i->i_ino, off, end, OB_LOOK, &e);
	m->type = IOMAP_MAPPED;
	if (!err && e.kind != OB_MAPPED) {
		m->type = IOMAP_UNWRITTEN;	/* it was reserved when the page was filled */
		err = GATED(i->i_sb, map, i->i_ino, off, min_t(u64, end, off + round_up(e.len, i_blocksize(i))), OB_RESERVE, &e);
	} else if (!err) {
		err = ob_map_overwrite(wpc, i, off, &e);
	}
	if (!err && e.kind != OB_MAPPED)
		err = -EIO;
	if (err) {
		m->length = 0;
		return err;
	}
	wpc->moved = moved;
	m->bdev = i->i_sb->s_bdev;
	m->offset = off;
	m->length = round_up(e.len, i_blocksize(i));
	m->addr = e.at;
	m->flags = 0;
	return 0;
}
void ob_ended(struct work_struct *work)
{
	struct ob_sb *s = container_of(work, struct ob_sb, work);
	struct iomap_ioend *io;
	unsigned int nofs = memalloc_nofs_save();
	unsigned long flags;
	LIST_HEAD(list);

	spin_lock_irqsave(&s->lock, flags);
	list_splice_init(&s->ended, &list);
	spin_unlock_irqrestore(&s->lock, flags);
	while ((io = list_first_entry_or_null(&list, struct iomap_ioend, io_list))) {
		struct inode *i = io->io_inode;
		struct ob_moment when = ob_moment(i->i_mtime);
		u64 end = min_t(u64, io->io_offset + io->io_size, i_size_read(i));
		int err = blk_status_to_errno(io->io_bio->bi_status);

		list_del_init(&io->io_list);
		if (!err && io->io_offset < end) {
			err = GATED(i->i_sb, end_write, i->i_ino, io->io_offset, end, &when);
			atomic_inc(&OBI(i)->ended);
			ob_refresh_blocks(i);
		} else if (err) {
			GATED_V(i->i_sb, abandon, i->i_ino, io->io_offset, io->io_offset + io->io_size);
		}
		ob_end_promise(s, OB_WRITEBACK);
		iomap_finish_ioends(io, err);
		cond_resched();
	}
	memalloc_nofs_restore(nofs);
}
static void ob_end_bio(struct bio *bio)
{
	struct iomap_ioend *io = bio->bi_private;
	struct ob_sb *s = SBI(io->io_inode->i_sb);
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	list_add_tail(&io->io_list, &s->ended);
	spin_unlock_irqrestore(&s->lock, flags);
	queue_work(ob_wq, &s->work);
}
static int ob_prepare_ioend(struct iomap_ioend *io, int status)
{
	/* nothing is published after an overwrite, so it ends in the interrupt */
	if (io->io_type != IOMAP_UNWRITTEN)
		return status;
	/* the caller has a promise, too, so this one begins in time */
	atomic_inc(&SBI(io->io_inode->i_sb)->promises[OB_WRITEBACK]);
	io->io_bio->bi_end_io = ob_end_bio;
	return status;
}
static const struct iomap_writeback_ops ob_wb_ops = { .map_blocks = ob_map_blocks, .prepare_ioend = ob_prepare_ioend };

static int ob_read_folio(struct file *f, struct folio *folio) { return iomap_read_folio(folio, &ob_iomap_ops); }
static void ob_readahead(struct readahead_control *r) { iomap_readahead(r, &ob_iomap_ops); }
static int ob_write_pages(struct address_space *m, struct writeback_control *wbc)
{
	struct ob_wpc wpc = { };

	return iomap_writepages(m, wbc, &wpc.ctx, &ob_wb_ops);
}
static int ob_writepages(struct address_space *m, struct writeback_control *wbc) { return ob_write_parts(m, wbc, ob_write_pages); }
static sector_t ob_bmap(struct address_space *m, sector_t b) { return iomap_bmap(m, b, &ob_iomap_ops); }
const struct address_space_operations ob_aops = {
	.read_folio = ob_read_folio,
	.readahead = ob_readahead,
	.writepages = ob_writepages,
	.dirty_folio = filemap_dirty_folio,
	.bmap = ob_bmap,
	.direct_IO = noop_direct_IO,
	.release_folio = iomap_release_folio,
	.invalidate_folio = iomap_invalidate_folio,
	.migrate_folio = filemap_migrate_folio,
	.is_partially_uptodate = iomap_is_partially_uptodate,
	.error_remove_page = generic_error_remove_page,
};

/*
 * Grows the file to `to`, so that the part from `from` reads as zeros: the rest of the last block has bytes of its own on the
 * device, and a format without holes fills the gap itself. The caller has i_rwsem.
 */
int ob_grow(struct inode *i, loff_t from, loff_t to)
{
	bool fills = !(SBI(i->i_sb)->limits.features & OB_HAS_HOLES);
	int err;

	if (OBI(i)->is_through || fills) {
		err = filemap_write_and_wait(i->i_mapping);
		truncate_pagecache(i, from);	/* zeroes the rest of the last page */
		if (!err && !OBI(i)->is_through)
			err = iomap_zero_range(i, from, to - from, NULL, &ob_iomap_ops) ?: filemap_write_and_wait(i->i_mapping);
		if (!err)
			err = GATED(i->i_sb, truncate, i->i_ino, to, OBI(i)->is_through);
		if (!err) {
			i_size_write(i, to);
			pagecache_isize_extended(i, from, to);
			ob_refresh(i);	/* the change time on the volume is that of the driver */
		}
		return err;
	}
	/* A mapping of the process may have filled the rest of the last page. Writing it back zeroes that. */
	err = filemap_write_and_wait_range(i->i_mapping, from, from);
	return err ?: iomap_zero_range(i, from, to - from, NULL, &ob_iomap_ops);
}
int ob_set_size(struct inode *i, loff_t size)
{
	loff_t old = i_size_read(i);
	int err;

	if (size == old)
		return 0;
	filemap_invalidate_lock(i->i_mapping);
	inode_dio_wait(i);
	err = filemap_write_and_wait(i->i_mapping);
	if (!err && size > old)
		err = ob_grow(i, old, size) ?: filemap_write_and_wait(i->i_mapping);
	if (!err) {
		atomic_inc(&OBI(i)->moved);
		truncate_setsize(i, size);
		err = GATED(i->i_sb, truncate, i->i_ino, size, false);
		atomic_inc(&OBI(i)->moved);
	}
	filemap_invalidate_unlock(i->i_mapping);
	return err;
}

/* direct I/O */
static int ob_dio_end(struct kiocb *iocb, ssize_t size, int error, unsigned int flags)
{
	struct inode *i = file_inode(iocb->ki_filp);
	loff_t end = iocb->ki_pos + size;
	struct ob_moment when = ob_moment(i->i_mtime);
	int err = error;

	if (!err && size > 0)
		err = GATED(i->i_sb, end_write, i->i_ino, iocb->ki_pos, end, &when);
	if (!err && size > 0 && end > i_size_read(i))
		i_size_write(i, end);
	atomic_inc(&OBI(i)->ended);
	ob_refresh_blocks(i);
	return err;
}
static const struct iomap_dio_ops ob_dio_write = { .end_io = ob_dio_end };

static ssize_t ob_direct_write(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *i = file_inode(iocb->ki_filp);
	loff_t pos = iocb->ki_pos;
	size_t len = iov_iter_count(from);
	ssize_t n;

	ob_begin_promise(SBI(i->i_sb), OB_CALLER);
	n = iomap_dio_rw(iocb, from, &ob_iomap_ops, &ob_dio_write, IOMAP_DIO_FORCE_WAIT, NULL, 0);
	/* blocks that were reserved and not written */
	if (n < 0 || n < len)
		GATED_V(i->i_sb, abandon, i->i_ino, round_up(pos + max_t(ssize_t, n, 0), (loff_t)SBI(i->i_sb)->unit),
					    round_up(pos + len, (loff_t)SBI(i->i_sb)->unit));
	ob_end_promise(SBI(i->i_sb), OB_CALLER);
	return n;
}
static ssize_t ob_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *i = file_inode(iocb->ki_filp);
	loff_t pos;
	ssize_t n;
	int err = 0;

	if (iocb->ki_flags & IOCB_NOWAIT)
		return -EAGAIN;
	inode_lock(i);
	n = generic_write_checks(iocb, from);
	if (n <= 0)
		goto out;
	pos = iocb->ki_pos;
	err = file_modified(iocb->ki_filp);
	if (!err && iocb->ki_pos > i_size_read(i)) {
		filemap_invalidate_lock(i->i_mapping);
		err = ob_grow(i, i_size_read(i), iocb->ki_pos);
		filemap_invalidate_unlock(i->i_mapping);
	}
	if (err) {
		n = err;
	} else if (OBI(i)->is_through) {
		current->backing_dev_info = inode_to_bdi(i);
		n = generic_perform_write(iocb, from);
		current->backing_dev_info = NULL;
	} else if (iocb->ki_flags & IOCB_DIRECT) {
		n = ob_direct_write(iocb, from);
		if (n == -ENOTBLK) {
			/* pages of a mapping cannot be dropped: through the page cache */
			iocb->ki_flags &= ~IOCB_DIRECT;
			iocb->ki_flags |= IOCB_DSYNC;
			n = iomap_file_buffered_write(iocb, from, &ob_iomap_ops);
		} else {
			goto out;
		}
	} else {
		n = iomap_file_buffered_write(iocb, from, &ob_iomap_ops);
	}
	/* some releases of 6.1 have moved the position already, others leave it to the caller */
	if (n > 0)
		iocb->ki_pos = pos + n;
out:
	inode_unlock(i);
	if (n > 0)
		ob_note_write(iocb->ki_filp, iocb->ki_pos - n, iocb->ki_pos);
	return n > 0 ? generic_write_sync(iocb, n) : n;
}
static ssize_t ob_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct inode *i = file_inode(iocb->ki_filp);
	ssize_t n;

	if (!(iocb->ki_flags & IOCB_DIRECT) || OBI(i)->is_through) {
		iocb->ki_flags &= ~IOCB_DIRECT;
		n = generic_file_read_iter(iocb, to);
		ob_note_read(iocb->ki_filp, iocb->ki_pos - max_t(ssize_t, n, 0), iocb->ki_pos);
		return n;
	}
	if (iocb->ki_flags & IOCB_NOWAIT)
		return -EAGAIN;
	inode_lock_shared(i);
	n = iomap_dio_rw(iocb, to, &ob_iomap_ops, NULL, IOMAP_DIO_FORCE_WAIT, NULL, 0);
	inode_unlock_shared(i);
	file_accessed(iocb->ki_filp);
	ob_note_read(iocb->ki_filp, iocb->ki_pos - max_t(ssize_t, n, 0), iocb->ki_pos);
	return n;
}
static ssize_t ob_splice_read(struct file *f, loff_t *pos, struct pipe_inode_info *pipe, size_t len, unsigned int flags)
{
	loff_t start = *pos;
	ssize_t n = generic_file_splice_read(f, pos, pipe, len, flags);

	ob_note_read(f, start, start + max_t(ssize_t, n, 0));
	return n;
}
static vm_fault_t ob_mkwrite(struct vm_fault *vmf)
{
	struct inode *i = file_inode(vmf->vma->vm_file);
	vm_fault_t ret;

	sb_start_pagefault(i->i_sb);
	file_update_time(vmf->vma->vm_file);
	filemap_invalidate_lock_shared(i->i_mapping);
	ob_begin_promise(SBI(i->i_sb), OB_CALLER);
	ret = OBI(i)->is_through ? ob_through_mkwrite(vmf) : iomap_page_mkwrite(vmf, &ob_iomap_ops);
	ob_end_promise(SBI(i->i_sb), OB_CALLER);
	filemap_invalidate_unlock_shared(i->i_mapping);
	if (ret == VM_FAULT_LOCKED)
		ob_note_write(vmf->vma->vm_file, page_offset(vmf->page), min_t(loff_t, page_offset(vmf->page) + PAGE_SIZE, i_size_read(i)));
	sb_end_pagefault(i->i_sb);
	return ret;
}
static const struct vm_operations_struct ob_vm_ops = { .fault = filemap_fault, .map_pages = filemap_map_pages, .page_mkwrite = ob_mkwrite };
static int ob_mmap(struct file *f, struct vm_area_struct *vma)
{
	file_accessed(f);
	vma->vm_ops = &ob_vm_ops;
	return 0;
}
int ob_fsync(struct file *f, loff_t start, loff_t end, int datasync)
{
	struct inode *i = file_inode(f);
	int err = file_write_and_wait_range(f, start, end);

	if (err || sb_rdonly(i->i_sb))
		return err;
	return GATED(i->i_sb, sync_file, i->i_ino);
}
const struct file_operations ob_file_fops = {
	.read_iter = ob_read_iter, .write_iter = ob_write_iter, .llseek = ob_llseek, .mmap = ob_mmap, .fsync = ob_fsync,
	.splice_read = ob_splice_read, .splice_write = iter_file_splice_write, .fallocate = ob_fallocate,
	.open = ob_open_file, .release = ob_release_file, .unlocked_ioctl = ob_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = ob_compat_ioctl,
#endif
};
