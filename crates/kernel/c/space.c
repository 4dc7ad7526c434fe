// SPDX-License-Identifier: MIT OR GPL-2.0
/* fallocate(2), FIEMAP, and SEEK_DATA and SEEK_HOLE of lseek(2). */
#include "obento.h"
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/iomap.h>
#include <linux/pagemap.h>

/* Zeroes a part of a block within the file. */
static int ob_zero_part(struct inode *i, loff_t start, loff_t end)
{
	end = min_t(loff_t, end, i_size_read(i));
	return start < end ? iomap_zero_range(i, start, end - start, NULL, &ob_iomap_ops) : 0;
}
static int ob_space_op(struct inode *i, int what, loff_t start, loff_t end, bool keep)
{
	int err;

	if (what == OB_ALLOCATE)
		return GATED(i->i_sb, space, i->i_ino, what, start, end, keep);
	atomic_inc(&OBI(i)->moved);
	/* All pages were written. A page with a block that moves is dropped whole: zeroing a part of it would lose that block. */
	if (what == OB_COLLAPSE || what == OB_INSERT)
		truncate_pagecache(i, round_down(start, PAGE_SIZE));
	else	/* the driver zeroes whole blocks */
		truncate_pagecache_range(i, start, round_up(end, (loff_t)SBI(i->i_sb)->unit) - 1);
	err = GATED(i->i_sb, space, i->i_ino, what, start, end, keep);
	atomic_inc(&OBI(i)->moved);
	return err;
}
/* Moves the blocks after `end` or `start`; a file without an error has the size `size` afterwards. */
static int ob_move(struct inode *i, int what, loff_t start, loff_t end, loff_t size)
{
	struct ob_attributes now;
	int err = ob_space_op(i, what, start, end, true);

	/* an insert that fails midway has its new size, and so has a collapse that was done but could not be synced */
	if (err && !GATED(i->i_sb, getattr, i->i_ino, &now))
		size = now.size;
	else if (err)
		return err;
	i_size_write(i, size);
	return err;
}
static int ob_punch_or_zero(struct inode *i, int what, loff_t start, loff_t end, bool keep)
{
	loff_t unit = SBI(i->i_sb)->unit, first = round_up(start, unit), last = round_down(end, unit);
	int err;

	/* a block that the end of the file cuts is whole */
	if (end >= i_size_read(i))
		last = round_up(end, unit);
	if (first > last || (first == last && round_down(start, unit) == round_down(end - 1, unit)))
		return ob_zero_part(i, start, end);
	err = ob_zero_part(i, start, first) ?: ob_zero_part(i, last, end);
	err = err ?: filemap_write_and_wait(i->i_mapping);
	if (err || first >= last)
		return err;
	return ob_space_op(i, what, first, what == OB_ZERO && last > end ? end : last, keep);
}
static int ob_zero_space(struct inode *i, loff_t start, loff_t end, bool keep)
{
	/* The parts of blocks at both ends get space, too. A driver that cannot allocate changes nothing. */
	int err = ob_space_op(i, OB_ALLOCATE, start, end, true);

	if (!err && !keep && end > i_size_read(i))
		err = ob_grow(i, i_size_read(i), end) ?: filemap_write_and_wait(i->i_mapping);
	/* the last call stores the size */
	return err ?: ob_punch_or_zero(i, OB_ZERO, start, end, keep) ?: ob_space_op(i, OB_ALLOCATE, start, end, keep);
}
long ob_fallocate(struct file *f, int mode, loff_t start, loff_t len)
{
	struct inode *i = file_inode(f);
	loff_t end = start + len, unit = SBI(i->i_sb)->unit, size;
	bool keep = mode & FALLOC_FL_KEEP_SIZE;
	int err;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		return -EOPNOTSUPP;
	if (OBI(i)->is_through)
		return -EOPNOTSUPP;
	/* a format without holes can only allocate; parts of blocks must not change before its driver refuses */
	if ((mode & ~FALLOC_FL_KEEP_SIZE) && !(SBI(i->i_sb)->limits.features & OB_HAS_HOLES))
		return -EOPNOTSUPP;
	inode_lock(i);
	size = i_size_read(i);
	if (!keep && !(mode & FALLOC_FL_COLLAPSE_RANGE) && end > size) {
		err = inode_newsize_ok(i, end);
		if (err)
			goto unlock;
	}
	inode_dio_wait(i);
	err = file_modified(f);
	if (err)
		goto unlock;
	filemap_invalidate_lock(i->i_mapping);
	err = filemap_write_and_wait(i->i_mapping);
	if (err)
		goto out;
	if (mode & FALLOC_FL_PUNCH_HOLE) {
		err = ob_punch_or_zero(i, OB_PUNCH, start, min_t(loff_t, end, round_up(size, unit)), true);
	} else if (mode & FALLOC_FL_ZERO_RANGE) {
		err = ob_zero_space(i, start, end, keep);
	} else if (mode & FALLOC_FL_COLLAPSE_RANGE) {
		err = (start | end) & (unit - 1) || end >= size ? -EINVAL : ob_move(i, OB_COLLAPSE, start, end, size - len);
	} else if (mode & FALLOC_FL_INSERT_RANGE) {
		err = (start | end) & (unit - 1) || start >= size ? -EINVAL :
			size + len > i->i_sb->s_maxbytes ? -EFBIG : ob_move(i, OB_INSERT, start, end, size + len);
	} else {
		if (!keep && end > size)
			err = ob_grow(i, size, end) ?: filemap_write_and_wait(i->i_mapping);
		err = err ?: ob_space_op(i, OB_ALLOCATE, start, end, keep);
	}
	if (!err && !keep && !(mode & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) && end > i_size_read(i))
		i_size_write(i, end);
	ob_refresh(i);
out:
	filemap_invalidate_unlock(i->i_mapping);
unlock:
	inode_unlock(i);
	if (!err && (f->f_flags & O_DSYNC))
		err = vfs_fsync(f, 0);
	return err;
}
static int ob_fiemap_begin(struct inode *i, loff_t off, loff_t len, unsigned int flags, struct iomap *m, struct iomap *src)
{
	struct ob_place e;
	u64 unit = SBI(i->i_sb)->unit, start = round_down(off, unit);
	int err = GATED(i->i_sb, map, i->i_ino, start, round_up(off + len, unit), OB_LOOK, &e);

	if (err)
		return err;
	m->bdev = i->i_sb->s_bdev;
	m->offset = start;
	m->length = round_up(e.len, unit);
	m->addr = e.kind == OB_MAPPED ? e.at : IOMAP_NULL_ADDR;
	m->type = e.kind == OB_MAPPED ? IOMAP_MAPPED : e.kind == OB_HOLE ? IOMAP_HOLE : e.kind == OB_UNWRITTEN ? IOMAP_UNWRITTEN : IOMAP_INLINE;
	return 0;
}
static const struct iomap_ops ob_fiemap_ops = { .iomap_begin = ob_fiemap_begin };
int ob_fiemap(struct inode *i, struct fiemap_extent_info *info, u64 start, u64 len)
{
	int err;

	inode_lock_shared(i);
	err = iomap_fiemap(i, info, start, min_t(u64, len, i_size_read(i) > start ? i_size_read(i) - start : 0), &ob_fiemap_ops);
	inode_unlock_shared(i);
	return err;
}
loff_t ob_llseek(struct file *f, loff_t off, int whence)
{
	struct inode *i = file_inode(f);

	switch (whence) {
	case SEEK_HOLE:
		inode_lock_shared(i);
		off = iomap_seek_hole(i, off, &ob_report_ops);
		inode_unlock_shared(i);
		break;
	case SEEK_DATA:
		inode_lock_shared(i);
		off = iomap_seek_data(i, off, &ob_report_ops);
		inode_unlock_shared(i);
		break;
	default:
		return generic_file_llseek(f, off, whence);
	}
	return off < 0 ? off : vfs_setpos(f, off, i->i_sb->s_maxbytes);
}
