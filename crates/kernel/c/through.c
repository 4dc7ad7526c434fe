// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The page cache of files whose data only the driver can access (inline and journalled data), and of volumes with blocks
 * larger than a page. The driver reads and writes one page at a time.
 */
#include <linux/buffer_head.h>
#include <linux/highmem.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/writeback.h>
#include "obento.h"

/* Space for the page, so that write(2) reports a full volume. What the page does not need is given back when it is written. */
static int ob_reserve(struct inode *i, loff_t pos, unsigned int len)
{
	u64 unit = SBI(i->i_sb)->unit, start = round_down(pos, unit), end = round_up(pos + len, unit);
	struct ob_place e;
	int err;

	while (start < end) {
		err = GATED(i->i_sb, ob_map(VOL(i), i->i_ino, start, end, true, &e));
		if (err)
			return err;
		start += max_t(u64, round_up(e.len, unit), unit);
	}
	return 0;
}
static int ob_fill_page(struct page *page)
{
	struct inode *i = page->mapping->host;
	void *at = kmap_local_page(page);
	int err = GATED(i->i_sb, ob_read(VOL(i), i->i_ino, page_offset(page), (struct ob_buffer){ at, PAGE_SIZE }));

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
static int ob_through_writepage(struct page *page, struct writeback_control *wbc, void *data)
{
	struct inode *i = page->mapping->host;
	loff_t size = i_size_read(i), off = page_offset(page);
	struct ob_moment when = ob_moment(i->i_mtime);
	int err = 0;
	void *at;

	if (off >= size) {
		unlock_page(page);
		return 0;
	}
	if (size - off < PAGE_SIZE)
		zero_user_segment(page, size - off, PAGE_SIZE);
	set_page_writeback(page);
	mutex_lock(&OBI(i)->through);
	at = kmap_local_page(page);
	err = GATED(i->i_sb, ob_write(VOL(i), i->i_ino, off, (struct ob_bytes){ at, min_t(loff_t, PAGE_SIZE, size - off) }, &when));
	kunmap_local(at);
	mutex_unlock(&OBI(i)->through);
	if (err) {
		pr_err_ratelimited("obento (%s): writing inode %lu at %lld failed: %d\n", i->i_sb->s_id, i->i_ino, off, err);
		SetPageError(page);
		mapping_set_error(page->mapping, err);
	}
	unlock_page(page);
	end_page_writeback(page);
	ob_refresh_blocks(i);
	return err;
}
static int ob_through_writepages(struct address_space *m, struct writeback_control *wbc)
{
	return write_cache_pages(m, wbc, ob_through_writepage, NULL);
}
static int ob_write_begin(struct file *f, struct address_space *m, loff_t pos, unsigned int len, struct page **out, void **data)
{
	struct page *page;
	int err = ob_reserve(m->host, pos, len);

	if (err)
		return err;
	page = grab_cache_page_write_begin(m, pos >> PAGE_SHIFT);
	if (!page)
		return -ENOMEM;
	if (!PageUptodate(page)) {
		err = ob_fill_page(page);
		if (err) {
			unlock_page(page);
			put_page(page);
			return err;
		}
	}
	*out = page;
	return 0;
}
static int ob_write_end(struct file *f, struct address_space *m, loff_t pos, unsigned int len, unsigned int copied, struct page *page, void *data)
{
	struct inode *i = m->host;

	set_page_dirty(page);
	if (pos + copied > i_size_read(i))
		i_size_write(i, pos + copied);
	unlock_page(page);
	put_page(page);
	return copied;
}
const struct address_space_operations ob_through_aops = {
	.read_folio = ob_through_read,
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
