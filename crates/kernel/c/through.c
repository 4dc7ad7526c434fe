// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The page cache of files whose data only the driver can access (inline and journalled data), and of volumes with blocks
 * larger than a page. The driver reads and writes runs of adjacent pages, which are copied to one buffer; a single
 * page is passed without a copy.
 */
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/writeback.h>
#include "obento.h"

/* Whether all data of the file is journalled, while it is mounted: unlike data in the inode, it never leaves the driver. */
static bool ob_is_journalled(const struct inode *i)
{
	u32 flags = OBI(i)->flags;

	return !(flags & OB_INLINE_FL) && (SBI(i->i_sb)->options.data == OB_DATA_JOURNAL || (flags & FS_JOURNAL_DATA_FL));
}
/* Space for the page, so that write(2) reports a full volume. What the page does not need is given back when it is written. */
static int ob_reserve(struct inode *i, loff_t pos, unsigned int len)
{
	u64 unit = SBI(i->i_sb)->unit, start = round_down(pos, unit), end = round_up(pos + len, unit);
	u32 version = READ_ONCE(SBI(i->i_sb)->upgrades) + 1;
	struct ob_place e;
	int err;

	if (READ_ONCE(OBI(i)->unreserved) == version && pos + len <= i_size_read(i))
		return 0;
	while (start < end) {
		err = GATED(i->i_sb, map, i->i_ino, start, end, OB_RESERVE, &e);
		if (err)
			return err;
		WRITE_ONCE(OBI(i)->unreserved, e.kind == OB_DRIVER && ob_is_journalled(i) ? version : 0);
		start += max_t(u64, round_up(e.len, unit), unit);
	}
	return 0;
}
static int ob_fill_page(struct page *page)
{
	struct inode *i = page->mapping->host;
	void *at = kmap_local_page(page);
	int err = GATED(i->i_sb, read, i->i_ino, page_offset(page), (struct ob_buffer){ at, PAGE_SIZE });

	kunmap_local(at);
	if (!err) {
		flush_dcache_page(page);
		SetPageUptodate(page);
	}
	return err;
}
static int ob_through_read(struct file *f, struct folio *folio)
{
	int err = ob_fill_page(&folio->page);

	folio_unlock(folio);
	return err;
}
/*
 * Adjacent pages under writeback. The driver gets the first page itself, which stays locked, so that its data does not change
 * meanwhile. If more pages follow, all of them are copied to one buffer. Pages are locked in ascending order, as by ext4.
 */
#define OB_RUN (64UL << 10)
struct ob_run {
	struct inode *i;
	loff_t off;
	size_t len, room;
	u8 *data;
	unsigned int pages;
	bool is_written;
	struct page *page[OB_RUN / PAGE_SIZE];
};
static int ob_run_write(struct ob_run *r)
{
	struct inode *i = r->i;
	struct ob_moment when = ob_moment(i->i_mtime);	/* of the last of these pages */
	bool is_single = r->pages == 1;
	u8 *data = is_single ? kmap_local_page(r->page[0]) : r->data;
	unsigned int n;
	int err;

	mutex_lock(&OBI(i)->through);
	err = GATED(i->i_sb, write, i->i_ino, r->off, (struct ob_bytes){ data, r->len }, &when);
	mutex_unlock(&OBI(i)->through);
	if (is_single) {
		kunmap_local(data);
		unlock_page(r->page[0]);
	}
	if (err) {
		pr_err_ratelimited("obento (%s): writing inode %lu at %lld failed: %d\n", i->i_sb->s_id, i->i_ino, r->off, err);
		mapping_set_error(i->i_mapping, err);
	}
	for (n = 0; n < r->pages; n++) {
		if (err)
			SetPageError(r->page[n]);
		end_page_writeback(r->page[n]);
	}
	r->pages = r->len = 0;
	r->is_written = true;
	return err;
}
/* Whether a page continues the run, and the buffer has room for it. Without memory for the buffer, pages are written one by one. */
static bool ob_run_continues(struct ob_run *r, loff_t off, size_t len)
{
	if (r->off + r->len != off)
		return false;
	if (!r->data) {
		r->room = clamp_t(loff_t, round_up(i_size_read(r->i), PAGE_SIZE), PAGE_SIZE, OB_RUN);
		r->data = kvmalloc(r->room, GFP_NOFS | __GFP_NOWARN);
	}
	return r->data && r->len + len <= r->room;
}
static void ob_run_copy(struct ob_run *r, size_t at, struct page *page, size_t len)
{
	memcpy_from_page(r->data + at, page, 0, len);
	unlock_page(page);
}
/* Adds a locked page to the run; writes the run first unless the page continues it. */
static int ob_through_writepage(struct page *page, struct writeback_control *wbc, void *data)
{
	struct ob_run *r = data;
	loff_t size = i_size_read(r->i), off = page_offset(page);
	size_t len = min_t(loff_t, PAGE_SIZE, size - off);
	int err = 0;

	if (off >= size) {
		unlock_page(page);
		return 0;
	}
	if (r->pages && !ob_run_continues(r, off, len))
		err = ob_run_write(r);
	if (len < PAGE_SIZE)
		zero_user_segment(page, len, PAGE_SIZE);
	set_page_writeback(page);
	if (!r->pages)
		r->off = off;
	if (r->pages == 1)
		ob_run_copy(r, 0, r->page[0], r->len);
	if (r->pages)
		ob_run_copy(r, r->len, page, len);
	r->len += len;
	r->page[r->pages++] = page;
	return err;
}
static int ob_through_write_pages(struct address_space *m, struct writeback_control *wbc)
{
	struct ob_run *r = kmalloc(sizeof(*r), GFP_NOFS);
	int err, last = 0;

	if (!r)
		return -ENOMEM;
	*r = (struct ob_run){ .i = m->host };
	err = write_cache_pages(m, wbc, ob_through_writepage, r);
	if (r->pages)
		last = ob_run_write(r);
	if (r->is_written)
		ob_refresh_blocks(m->host);
	kvfree(r->data);
	kfree(r);
	return err ?: last;
}
static int ob_through_writepages(struct address_space *m, struct writeback_control *wbc) { return ob_write_parts(m, wbc, ob_through_write_pages); }
/* A page that cannot be read ahead is read again when it is used, and reports the error then. */
static void ob_end_read(struct bio *bio)
{
	struct bvec_iter_all iter;
	struct bio_vec *v;

	bio_for_each_segment_all(v, bio, iter) {
		if (!bio->bi_status)
			SetPageUptodate(v->bv_page);
		unlock_page(v->bv_page);
	}
	bio_put(bio);
}
/* Reads the next pages, which are at `at` on the device. */
static void ob_read_pages(struct readahead_control *rac, u64 at, size_t len)
{
	while (len) {
		unsigned int n = min_t(size_t, len >> PAGE_SHIFT, BIO_MAX_VECS);
		struct bio *bio = bio_alloc(rac->mapping->host->i_sb->s_bdev, n, REQ_OP_READ | REQ_RAHEAD, GFP_NOFS);
		struct page *page;

		bio->bi_iter.bi_sector = at >> SECTOR_SHIFT;
		bio->bi_end_io = ob_end_read;
		at += (u64)n << PAGE_SHIFT;
		len -= (size_t)n << PAGE_SHIFT;
		while (n-- && (page = readahead_page(rac))) {
			if (bio_add_page(bio, page, PAGE_SIZE, 0) != PAGE_SIZE)
				unlock_page(page);
			put_page(page);
		}
		submit_bio(bio);
	}
}
/* Reads the next pages through the driver. */
static void ob_copy_pages(struct readahead_control *rac, loff_t start, size_t len, u8 *data)
{
	struct inode *i = rac->mapping->host;
	int err = GATED(i->i_sb, read, i->i_ino, start, (struct ob_buffer){ data, len });
	struct page *page;
	size_t at;

	for (at = 0; at < len && (page = readahead_page(rac)); at += PAGE_SIZE) {
		if (!err) {
			memcpy_to_page(page, 0, data + at, PAGE_SIZE);
			SetPageUptodate(page);
		}
		unlock_page(page);
		put_page(page);
	}
}
/*
 * The device contains most data of a file whose data is journalled. It is read to the pages, without a copy in the driver, which
 * has the rest. The pages are locked, so no write reaches their part of the file meanwhile.
 */
static void ob_through_readahead(struct readahead_control *rac)
{
	struct inode *i = rac->mapping->host;
	bool is_mapped = !(SBI(i->i_sb)->limits.features & OB_IS_THROUGH);
	loff_t start = readahead_pos(rac), size = i_size_read(i);
	size_t left = readahead_length(rac), len;
	struct page *page;
	u8 *data = NULL;

	for (; left; start += len, left -= len) {
		struct ob_place e = { .kind = OB_DRIVER, .len = left };

		if (is_mapped && start + (loff_t)PAGE_SIZE <= size &&
		    GATED(i->i_sb, map, i->i_ino, start, min_t(loff_t, start + left, round_down(size, PAGE_SIZE)), OB_READ, &e))
			e = (struct ob_place){ .kind = OB_DRIVER, .len = left };
		if (e.kind == OB_MAPPED && e.len >= PAGE_SIZE) {
			len = min_t(u64, round_down(e.len, PAGE_SIZE), left);
			ob_read_pages(rac, e.at, len);
			continue;
		}
		/* a single page needs no buffer */
		if (e.kind == OB_DRIVER && e.len <= PAGE_SIZE && (page = readahead_page(rac))) {
			len = PAGE_SIZE;
			ob_fill_page(page);
			unlock_page(page);
			put_page(page);
			continue;
		}
		if (!data)
			data = kvmalloc(min_t(size_t, left, OB_RUN), GFP_NOFS | __GFP_NOWARN);
		if (!data)
			break;
		len = min_t(u64, round_up(max_t(u64, e.len, 1), PAGE_SIZE), min_t(size_t, left, OB_RUN));
		ob_copy_pages(rac, start, len, data);
	}
	kvfree(data);
}
static int ob_write_begin(struct file *f, struct address_space *m, loff_t pos, unsigned int len, struct page **out, void **data)
{
	struct page *page;
	int err;

	ob_begin_promise(SBI(m->host->i_sb), OB_CALLER);	/* until the page is dirty */
	err = ob_reserve(m->host, pos, len);
	if (err)
		goto failed;
	page = grab_cache_page_write_begin(m, pos >> PAGE_SHIFT);
	err = page ? 0 : -ENOMEM;
	if (err)
		goto failed;
	if (!PageUptodate(page) && page_offset(page) >= i_size_read(m->host)) {
		zero_user_segment(page, 0, PAGE_SIZE);
		SetPageUptodate(page);
	}
	if (!PageUptodate(page)) {
		err = ob_fill_page(page);
		if (err) {
			unlock_page(page);
			put_page(page);
			goto failed;
		}
	}
	*out = page;
	return 0;
failed:
	ob_end_promise(SBI(m->host->i_sb), OB_CALLER);
	return err;
}
static int ob_write_end(struct file *f, struct address_space *m, loff_t pos, unsigned int len, unsigned int copied, struct page *page, void *data)
{
	struct inode *i = m->host;

	set_page_dirty(page);
	if (pos + copied > i_size_read(i))
		i_size_write(i, pos + copied);
	ob_end_promise(SBI(i->i_sb), OB_CALLER);
	unlock_page(page);
	put_page(page);
	return copied;
}
const struct address_space_operations ob_through_aops = {
	.read_folio = ob_through_read,
	.readahead = ob_through_readahead,
	.writepages = ob_through_writepages,
	.dirty_folio = filemap_dirty_folio,
	.write_begin = ob_write_begin,
	.write_end = ob_write_end,
	.direct_IO = noop_direct_IO,
	.migrate_folio = filemap_migrate_folio,
	.error_remove_page = generic_error_remove_page,
};
vm_fault_t ob_through_mkwrite(struct vm_fault *vmf)
{
	struct page *page = vmf->page;
	struct inode *i = file_inode(vmf->vma->vm_file);
	int err;

	lock_page(page);
	if (page->mapping != i->i_mapping || page_offset(page) >= i_size_read(i)) {
		unlock_page(page);
		return VM_FAULT_NOPAGE;
	}
	err = ob_reserve(i, page_offset(page), min_t(loff_t, PAGE_SIZE, i_size_read(i) - page_offset(page)));
	if (err) {
		unlock_page(page);
		return block_page_mkwrite_return(err);
	}
	set_page_dirty(page);
	wait_for_stable_page(page);
	return VM_FAULT_LOCKED;
}
