// SPDX-License-Identifier: MIT OR GPL-2.0
/* The module, mounting, and the life of inodes. */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/compat.h>
#include <linux/exportfs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/posix_acl.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/statfs.h>
#include <linux/writeback.h>
#include <linux/xattr.h>
#include "obento.h"

#define OB_MAGIC 0x0be0
static struct kmem_cache *ob_inodes;
/* The drivers in this module. */
static struct ob_driver ob_drivers_here = { .abi = OB_ABI, .size = sizeof(struct ob_ops), .owner = THIS_MODULE, .ops = &ob_ops };
static u8 ob_boot[16];		/* identifies the boot in recorded histories */

/* inodes */
void ob_fill(struct inode *i, const struct ob_attributes *a, bool times)
{
	struct timespec64 ctime = ob_ts(&a->ctime), mtime = ob_ts(&a->mtime);

	OBI(i)->btime = a->btime;
	OBI(i)->flags = a->flags;
	OBI(i)->project = a->project;
	i->i_mode = a->mode;
	set_nlink(i, a->nlink);
	i_uid_write(i, a->uid);
	i_gid_write(i, a->gid);
	i->i_blocks = a->blocks;
	i->i_generation = a->generation;
	/* a format without a ctime returns the mtime that it has, and the page cache may have a later one */
	if (times || timespec64_compare(&i->i_ctime, &ctime) < 0)
		i->i_ctime = ctime;
	/* fallocate(2) by the driver ends later than the time that the kernel set at its start */
	if (times || timespec64_compare(&i->i_mtime, &mtime) < 0)
		i->i_mtime = mtime;
	if (times)
		i->i_atime = OBI(i)->stored_atime = ob_ts(&a->atime);
	inode_set_flags(i, ((a->flags & FS_SYNC_FL) ? S_SYNC : 0) | ((a->flags & FS_APPEND_FL) ? S_APPEND : 0) |
			((a->flags & FS_IMMUTABLE_FL) ? S_IMMUTABLE : 0) | ((a->flags & FS_NOATIME_FL) ? S_NOATIME : 0) |
			((a->flags & FS_DIRSYNC_FL) ? S_DIRSYNC : 0),
			S_SYNC | S_APPEND | S_IMMUTABLE | S_NOATIME | S_DIRSYNC);
}
static void ob_init(struct inode *i, const struct ob_attributes *a)
{
	struct ob_sb *s = SBI(i->i_sb);

	ob_fill(i, a, true);
	i->i_size = a->size;
	/* data in the inode and journalled data: the driver moves it */
	OBI(i)->is_through = (s->limits.features & OB_IS_THROUGH) || s->unit > PAGE_SIZE ||
		s->options.data == OB_DATA_JOURNAL || (a->flags & (OB_INLINE_FL | FS_JOURNAL_DATA_FL));
	if (S_ISREG(a->mode)) {
		i->i_op = &ob_file_iops;
		i->i_fop = &ob_file_fops;
		i->i_mapping->a_ops = OBI(i)->is_through ? &ob_through_aops : &ob_aops;
	} else if (S_ISDIR(a->mode)) {
		i->i_op = &ob_dir_iops;
		i->i_fop = &ob_dir_fops;
	} else if (S_ISLNK(a->mode)) {
		i->i_op = &ob_link_iops;
		inode_nohighmem(i);
	} else {
		i->i_op = &ob_special_iops;
		init_special_inode(i, a->mode, MKDEV(a->major, a->minor));
	}
	if (!(s->limits.features & OB_HAS_XATTRS))
		cache_no_acl(i);
	spin_lock(&s->uses_lock);
	list_add_tail(&OBI(i)->uses, &s->uses);
	spin_unlock(&s->uses_lock);
}
/* After a change by the driver: the size of a regular file is that of the page cache, and so are later times. */
void ob_refresh(struct inode *i)
{
	struct ob_attributes a;

	if (GATED(i->i_sb, getattr, i->i_ino, &a))
		return;
	ob_fill(i, &a, !S_ISREG(i->i_mode));
	if (!S_ISREG(i->i_mode))
		i_size_write(i, a.size);
	atomic_inc(&OBI(i)->ended);
}
void ob_refresh_blocks(struct inode *i)
{
	struct ob_attributes a;

	if (!GATED(i->i_sb, getattr, i->i_ino, &a))
		i->i_blocks = a.blocks;
}
struct inode *ob_iget(struct super_block *sb, u64 ino)
{
	struct inode *i = iget_locked(sb, ino);
	struct ob_attributes a;
	int err;

	if (!i)
		return ERR_PTR(-ENOMEM);
	if (!(i->i_state & I_NEW))
		return i;
	err = GATED(sb, getattr, ino, &a);
	if (err) {
		iget_failed(i);
		return ERR_PTR(err);
	}
	ob_init(i, &a);
	unlock_new_inode(i);
	return i;
}
/* The inode that the driver has just created; it is locked as a new one. */
struct inode *ob_new_inode(struct super_block *sb, const struct ob_attributes *a)
{
	struct inode *i = iget_locked(sb, a->ino);

	if (!i)
		return ERR_PTR(-ENOMEM);
	if (!(i->i_state & I_NEW)) {
		/* the volume is damaged: a free inode is in use */
		iput(i);
		return ERR_PTR(-EUCLEAN);
	}
	ob_init(i, a);
	return i;
}
static struct inode *ob_alloc_inode(struct super_block *sb)
{
	struct ob_inode *o = alloc_inode_sb(sb, ob_inodes, GFP_KERNEL);

	if (!o)
		return NULL;
	INIT_LIST_HEAD(&o->uses);
	o->btime = (struct ob_moment){ };
	o->stored_atime = (struct timespec64){ };
	o->flags = o->project = 0;
	o->is_through = false;
	o->unreserved = 0;
	o->known = (struct ob_known){ };
	atomic_set(&o->moved, 0);
	atomic_set(&o->ended, 0);
	return &o->vfs;
}
static void ob_free_inode(struct inode *i) { kmem_cache_free(ob_inodes, OBI(i)); }
static void ob_inode_once(void *p)
{
	inode_init_once(&((struct ob_inode *)p)->vfs);
	mutex_init(&((struct ob_inode *)p)->through);
}
/* The inode stays hashed while the driver frees it, so its number cannot come back early. */
static void ob_evict(struct inode *i)
{
	struct ob_sb *s = SBI(i->i_sb);
	bool lives;

	truncate_inode_pages_final(&i->i_data);
	clear_inode(i);
	if (!s)
		return;
	/* a driver that takes over the volume gets the list, and frees the nameless inodes that are not in it */
	lives = !READ_ONCE(ob_dead);
	if (likely(lives)) {
		down_read(&s->gate);
		if (likely(!READ_ONCE(ob_dead)))
			s->ops->forget(s->vol, i->i_ino);
	}
	spin_lock(&s->uses_lock);
	list_del_init(&OBI(i)->uses);
	spin_unlock(&s->uses_lock);
	if (likely(lives))
		up_read(&s->gate);
}
/* Data brings its times to the volume with it; here only access times remain. */
static int ob_write_inode(struct inode *i, struct writeback_control *wbc)
{
	struct ob_change c = { .valid = OB_ATIME, .atime = ob_moment(i->i_atime) };
	struct ob_attributes a;
	int err;

	if (sb_rdonly(i->i_sb) || !i->i_nlink || timespec64_equal(&i->i_atime, &OBI(i)->stored_atime))
		return 0;
	err = GATED(i->i_sb, setattr, i->i_ino, &c, &a);
	if (!err)
		OBI(i)->stored_atime = i->i_atime;
	return err;
}

/* file handles */
static struct inode *ob_nfs_inode(struct super_block *sb, u64 ino, u32 generation)
{
	struct inode *i = ino ? ob_iget(sb, ino) : ERR_PTR(-ESTALE);

	if (IS_ERR(i))
		return i;
	if (generation && i->i_generation != generation) {
		iput(i);
		return ERR_PTR(-ESTALE);
	}
	return i;
}
static struct dentry *ob_fh_to_dentry(struct super_block *sb, struct fid *f, int len, int type) { return generic_fh_to_dentry(sb, f, len, type, ob_nfs_inode); }
static struct dentry *ob_fh_to_parent(struct super_block *sb, struct fid *f, int len, int type) { return generic_fh_to_parent(sb, f, len, type, ob_nfs_inode); }
static struct dentry *ob_get_parent(struct dentry *d)
{
	struct ob_sb *s = SBI(d->d_sb);
	struct inode *i;
	u64 ino;
	int err;

	ob_begin_promise(s, OB_CALLER);
	err = GATED(d->d_sb, parent, d_inode(d)->i_ino, &ino);
	i = err ? ERR_PTR(err) : ob_iget(d->d_sb, ino);
	ob_end_promise(s, OB_CALLER);
	return d_obtain_alias(i);
}
static const struct export_operations ob_exports = { .fh_to_dentry = ob_fh_to_dentry, .fh_to_parent = ob_fh_to_parent, .get_parent = ob_get_parent };

/* the volume */
static int ob_sync_fs(struct super_block *sb, int wait) { return wait && !sb_rdonly(sb) ? GATED(sb, sync) : 0; }
static int ob_freeze(struct super_block *sb) { return ob_sync_fs(sb, 1); }
static int ob_thaw(struct super_block *sb) { return 0; }
static int ob_statfs_op(struct dentry *d, struct kstatfs *k)
{
	struct ob_usage u;
	int err = GATED(d->d_sb, statfs, &u);

	if (err)
		return err;
	k->f_type = d->d_sb->s_magic;
	k->f_bsize = u.block_size;
	k->f_blocks = u.blocks;
	k->f_bfree = u.free;
	k->f_bavail = u.available;
	k->f_files = u.inodes;
	k->f_ffree = u.free_inodes;
	k->f_namelen = u.name_max;
	k->f_fsid = u64_to_fsid(u.id);
	return 0;
}
static void ob_put_super(struct super_block *sb)
{
	struct ob_sb *s = SBI(sb);
	int err;

	ob_hide(s);
	if (READ_ONCE(ob_dead))
		return;		/* the volume cannot be closed: it is as after a crash, and its memory stays */
	err = s->ops->close(s->vol);
	if (err)
		pr_err("obento (%s): closing the volume failed: %d\n", sb->s_id, err);
	s->ops->free_volume(s->vol);
	module_put(s->driver->owner);
	sb->s_fs_info = NULL;
	kfree(s);
}

/* mount options */
enum {
	OPT_DATA, OPT_COMMIT, OPT_BARRIER, OPT_NOBARRIER, OPT_NORECOVERY, OPT_SB, OPT_UID, OPT_GID, OPT_UMASK, OPT_FMASK, OPT_DMASK,
	OPT_CODEPAGE, OPT_IOCHARSET, OPT_TZ, OPT_TIME_OFFSET, OPT_DISCARD, OPT_NODISCARD, OPT_KEEP_LAST_DOTS, OPT_ERRORS,
	OPT_ACL, OPT_XATTR, OPT_PROVENANCE, OPT_SHOW_PROVENANCE,
};
static const struct constant_table ob_data_modes[] = {
	{ "ordered", OB_DATA_ORDERED }, { "journal", OB_DATA_JOURNAL }, { "writeback", OB_DATA_WRITEBACK }, { }
};
enum { ERRORS_CONTINUE, ERRORS_RO, ERRORS_PANIC };
static const struct constant_table ob_errors[] = {
	{ "continue", ERRORS_CONTINUE }, { "remount-ro", ERRORS_RO }, { "panic", ERRORS_PANIC }, { }
};
static const struct constant_table ob_charsets[] = { { "utf8", 0 }, { } };
static const struct constant_table ob_zones[] = { { "UTC", 0 }, { } };
const struct fs_parameter_spec ob_parameters[] = {
	fsparam_enum("data", OPT_DATA, ob_data_modes),
	fsparam_u32("commit", OPT_COMMIT),
	fsparam_u32("barrier", OPT_BARRIER),
	fsparam_flag("nobarrier", OPT_NOBARRIER),
	fsparam_flag("norecovery", OPT_NORECOVERY),
	fsparam_flag("noload", OPT_NORECOVERY),
	fsparam_u64("sb", OPT_SB),
	fsparam_u32("uid", OPT_UID),
	fsparam_u32("gid", OPT_GID),
	fsparam_u32oct("umask", OPT_UMASK),
	fsparam_u32oct("fmask", OPT_FMASK),
	fsparam_u32oct("dmask", OPT_DMASK),
	fsparam_u32("codepage", OPT_CODEPAGE),
	fsparam_enum("iocharset", OPT_IOCHARSET, ob_charsets),
	fsparam_enum("tz", OPT_TZ, ob_zones),
	fsparam_s32("time_offset", OPT_TIME_OFFSET),
	fsparam_flag("discard", OPT_DISCARD),
	fsparam_flag("nodiscard", OPT_NODISCARD),
	fsparam_flag("keep_last_dots", OPT_KEEP_LAST_DOTS),
	fsparam_enum("errors", OPT_ERRORS, ob_errors),
	fsparam_flag("acl", OPT_ACL),
	fsparam_flag("user_xattr", OPT_XATTR),
	fsparam_flag("provenance", OPT_PROVENANCE),
	fsparam_flag("show_provenance", OPT_SHOW_PROVENANCE),
	{ }
};
struct ob_context { struct ob_options options; unsigned int errors; bool has_errors; };

static int ob_parse(struct fs_context *fc, struct fs_parameter *p)
{
	struct ob_context *c = fc->fs_private;
	struct ob_options *o = &c->options;
	struct fs_parse_result r;
	int opt = fs_parse(fc, ob_parameters, p, &r);

	switch (opt) {
	case OPT_DATA: o->data = r.uint_32; return 0;
	case OPT_COMMIT: o->commit = r.uint_32; o->flags |= OB_SET_COMMIT; return 0;
	case OPT_BARRIER: o->flags = r.uint_32 ? o->flags & ~OB_NO_BARRIER : o->flags | OB_NO_BARRIER; return 0;
	case OPT_NOBARRIER: o->flags |= OB_NO_BARRIER; return 0;
	case OPT_NORECOVERY: o->flags |= OB_NO_REPLAY; return 0;
	case OPT_SB: o->super_block = r.uint_64; o->flags |= OB_SET_SUPER_BLOCK; return 0;
	case OPT_UID: o->uid = r.uint_32; o->flags |= OB_SET_UID; return 0;
	case OPT_GID: o->gid = r.uint_32; o->flags |= OB_SET_GID; return 0;
	case OPT_UMASK: o->fmask = o->dmask = r.uint_32; o->flags |= OB_SET_FMASK | OB_SET_DMASK; return 0;
	case OPT_FMASK: o->fmask = r.uint_32; o->flags |= OB_SET_FMASK; return 0;
	case OPT_DMASK: o->dmask = r.uint_32; o->flags |= OB_SET_DMASK; return 0;
	case OPT_CODEPAGE:
		if (r.uint_32 > U16_MAX)
			return invalf(fc, "obento: codepage is out of range");
		o->codepage = r.uint_32;
		o->flags |= OB_SET_CODEPAGE;
		return 0;
	case OPT_TIME_OFFSET:
		if (r.int_32 < -1440 || r.int_32 > 1440)
			return invalf(fc, "obento: time_offset is out of range");
		o->time_offset = r.int_32;
		o->flags |= OB_SET_TIME_OFFSET;
		return 0;
	case OPT_TZ: o->time_offset = 0; o->flags |= OB_SET_TIME_OFFSET; return 0;
	case OPT_DISCARD: o->flags |= OB_DISCARD; return 0;
	case OPT_NODISCARD: o->flags &= ~OB_DISCARD; return 0;
	case OPT_KEEP_LAST_DOTS: o->flags |= OB_KEEP_LAST_DOTS; return 0;
	case OPT_PROVENANCE: o->flags |= OB_PROVENANCE; return 0;
	case OPT_SHOW_PROVENANCE: o->flags |= OB_SHOW_PROVENANCE; return 0;
	case OPT_ERRORS: c->errors = r.uint_32; c->has_errors = true; return 0;
	case OPT_IOCHARSET: case OPT_ACL: case OPT_XATTR: return 0;
	default: return opt < 0 ? opt : -EINVAL;
	}
}
static int ob_show_options(struct seq_file *m, struct dentry *root)
{
	struct ob_sb *s = SBI(root->d_sb);
	const struct ob_options *o = &s->options;

	if (o->data)
		seq_printf(m, ",data=%s", ob_data_modes[o->data].name);
	if (o->flags & OB_SET_COMMIT)
		seq_printf(m, ",commit=%u", o->commit);
	if (o->flags & OB_NO_BARRIER)
		seq_puts(m, ",barrier=0");
	if (o->flags & OB_NO_REPLAY)
		seq_puts(m, ",norecovery");
	if (o->flags & OB_SET_SUPER_BLOCK)
		seq_printf(m, ",sb=%llu", o->super_block);
	if (o->flags & OB_SET_UID)
		seq_printf(m, ",uid=%u", o->uid);
	if (o->flags & OB_SET_GID)
		seq_printf(m, ",gid=%u", o->gid);
	if (o->flags & OB_SET_FMASK)
		seq_printf(m, ",fmask=%04o", o->fmask);
	if (o->flags & OB_SET_DMASK)
		seq_printf(m, ",dmask=%04o", o->dmask);
	if (o->flags & OB_SET_CODEPAGE)
		seq_printf(m, ",codepage=%u", o->codepage);
	if (o->flags & OB_SET_TIME_OFFSET)
		seq_printf(m, ",time_offset=%d", o->time_offset);
	if (o->flags & OB_DISCARD)
		seq_puts(m, ",discard");
	if (o->flags & OB_KEEP_LAST_DOTS)
		seq_puts(m, ",keep_last_dots");
	if (o->flags & OB_PROVENANCE)
		seq_puts(m, ",provenance");
	if (o->flags & OB_SHOW_PROVENANCE)
		seq_puts(m, ",show_provenance");
	if (s->stops || s->panics)
		seq_printf(m, ",errors=%s", s->panics ? "panic" : "remount-ro");
	return 0;
}
static void ob_set_errors(struct ob_sb *s, unsigned int errors)
{
	s->panics = errors == ERRORS_PANIC;
	s->stops = errors == ERRORS_RO;
}
static const struct super_operations ob_sops = {
	.alloc_inode = ob_alloc_inode, .free_inode = ob_free_inode, .evict_inode = ob_evict, .write_inode = ob_write_inode,
	.put_super = ob_put_super, .statfs = ob_statfs_op, .sync_fs = ob_sync_fs, .freeze_fs = ob_freeze, .unfreeze_fs = ob_thaw,
	.show_options = ob_show_options,
};

static struct ob_sb *ob_new_sb(struct super_block *sb)
{
	struct ob_sb *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&s->lock);
	spin_lock_init(&s->uses_lock);
	INIT_LIST_HEAD(&s->ended);
	INIT_LIST_HEAD(&s->uses);
	INIT_WORK(&s->work, ob_ended);
	init_rwsem(&s->gate);
	init_waitqueue_head(&s->turn);
	s->sb = sb;
	s->driver = ob_get_driver(sb->s_type->name);
	if (!s->driver) {
		kfree(s);
		return ERR_PTR(-ENODEV);
	}
	s->ops = s->driver->ops;
	return s;
}
static int ob_fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct ob_context *c = fc->fs_private;
	struct ob_sb *s;
	struct inode *root;
	int err;

	if (READ_ONCE(ob_dead))
		return -EIO;
	s = ob_new_sb(sb);
	if (IS_ERR(s))
		return PTR_ERR(s);
	if (bdev_read_only(sb->s_bdev))
		sb->s_flags |= SB_RDONLY;
	s->options = c->options;
	s->options.type_index = ob_type_index(s->driver, sb->s_type->name);
	memcpy(s->options.boot, ob_boot, sizeof(ob_boot));
	if (sb_rdonly(sb))
		s->options.flags |= OB_READ_ONLY;
	ob_set_errors(s, c->errors);
	/* The driver reads the device itself, so no page of the device may be newer or older. */
	sync_blockdev(sb->s_bdev);
	invalidate_bdev(sb->s_bdev);
	err = s->ops->open(sb->s_bdev, sb, bdev_nr_bytes(sb->s_bdev), &s->options, &s->vol);
	if (err)
		goto free;
	err = s->ops->statfs(s->vol, &s->limits);
	if (!err) {
		s->unit = s->limits.block_size;
		/* The page cache needs a block size between that of a sector and a page. */
		if (!is_power_of_2(s->unit) || !sb_set_blocksize(sb, min_t(u32, s->unit, PAGE_SIZE)))
			err = -EINVAL;
	}
	if (err)
		goto close;
	sb->s_fs_info = s;
	sb->s_magic = OB_MAGIC;
	sb->s_op = &ob_sops;
	sb->s_export_op = &ob_exports;
	sb->s_maxbytes = min_t(u64, s->limits.size_max, MAX_LFS_FILESIZE);
	sb->s_time_gran = clamp_t(u64, s->limits.granularity, 1, NSEC_PER_SEC);
	if (s->limits.features & OB_HAS_XATTRS) {
		sb->s_xattr = ob_xattrs;
		sb->s_flags |= SB_POSIXACL;
	}
	root = ob_iget(sb, s->ops->root(s->vol));
	err = PTR_ERR_OR_ZERO(root);
	if (!err && !S_ISDIR(root->i_mode)) {
		iput(root);
		err = -EUCLEAN;
	} else if (!err && !(sb->s_root = d_make_root(root))) {
		err = -ENOMEM;
	}
	/* without a root, put_super is not called */
	if (!err)
		return ob_show(s);
close:
	s->ops->close(s->vol);
	s->ops->free_volume(s->vol);
free:
	sb->s_fs_info = NULL;
	module_put(s->driver->owner);
	kfree(s);
	return err;
}
/* From read-only to writable the volume is opened again, since an open for reading has replayed its journal in memory only. */
static int ob_reopen(struct super_block *sb)
{
	struct ob_sb *s = SBI(sb);
	struct ob_options options = s->options;
	struct ob_volume *new, *old = s->vol;
	int err;

	options.flags &= ~OB_READ_ONLY;
	down_write(&s->gate);
	err = s->ops->open(sb->s_bdev, sb, bdev_nr_bytes(sb->s_bdev), &options, &new);
	if (!err) {
		s->vol = new;
		s->options = options;
		s->ops->statfs(new, &s->limits);
		s->ops->free_volume(old);
	}
	up_write(&s->gate);
	return err;
}
static int ob_reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct ob_context *c = fc->fs_private;
	struct ob_sb *s = SBI(sb);
	int err = 0;

	sync_filesystem(sb);
	if (c->has_errors)
		ob_set_errors(s, c->errors);
	if (READ_ONCE(ob_dead))
		return -EIO;
	if ((fc->sb_flags & SB_RDONLY) && !sb_rdonly(sb)) {
		down_write(&s->gate);
		err = READ_ONCE(ob_dead) ? -EIO : s->ops->close(s->vol);
		up_write(&s->gate);
		if (!err)
			s->options.flags |= OB_READ_ONLY;
	} else if (!(fc->sb_flags & SB_RDONLY) && sb_rdonly(sb)) {
		/* What an open for reading shows may be elsewhere on the device than what is written: pages start over. */
		shrink_dcache_sb(sb);
		err = bdev_read_only(sb->s_bdev) ? -EROFS : ob_reopen(sb);
	}
	return err;
}
static void ob_free_fc(struct fs_context *fc) { kfree(fc->fs_private); }
static int ob_get_tree(struct fs_context *fc) { return get_tree_bdev(fc, ob_fill_super); }
static const struct fs_context_operations ob_ctx = {
	.parse_param = ob_parse, .get_tree = ob_get_tree, .reconfigure = ob_reconfigure, .free = ob_free_fc,
};
int ob_init_fc(struct fs_context *fc)
{
	fc->fs_private = kzalloc(sizeof(struct ob_context), GFP_KERNEL);
	if (!fc->fs_private)
		return -ENOMEM;
	fc->ops = &ob_ctx;
	return 0;
}

/* One call discards this much, so that a replacement of the driver does not wait for more. */
#define OB_TRIM_PART (1ULL << 30)

/* Discards what is free in a range of the device, and returns the number of bytes. Damage does not prevent the other parts. */
static s64 ob_trim_range(struct super_block *sb, const struct fstrim_range *r)
{
	u64 size = bdev_nr_bytes(sb->s_bdev), min_len = max_t(u64, r->minlen, bdev_discard_granularity(sb->s_bdev));
	u64 at = r->start, end, next;
	s64 n, bytes = 0, damage = 0;

	if (at >= size || r->len < SBI(sb)->unit)
		return -EINVAL;
	end = r->len > size - at ? size : at + r->len;
	for (; at < end; at = next) {
		if (fatal_signal_pending(current))
			return -EINTR;
		/* parts of a run that is long enough could be too short, so few runs may be divided */
		next = min_len > OB_TRIM_PART / 16 ? end : min(end, round_down(at, OB_TRIM_PART) + OB_TRIM_PART);
		n = GATED(sb, trim, at, next, min_len);
		if (n < 0 && n != -EUCLEAN)
			return n;
		if (n < 0)
			damage = n;
		else
			bytes += n;
		cond_resched();
	}
	return damage ?: bytes;
}
static int ob_set_label_op(struct file *f, const char *label)
{
	struct super_block *sb = file_inode(f)->i_sb;
	int err = mnt_want_write_file(f);

	if (err)
		return err;
	err = GATED(sb, set_label, (struct ob_bytes){ label, strnlen(label, FSLABEL_MAX) });
	mnt_drop_write_file(f);
	return err;
}
/* ioctl(2) on any file */
long ob_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
{
	struct super_block *sb = file_inode(f)->i_sb;
	void __user *to = (void __user *)arg;
	struct fstrim_range range;
	char label[FSLABEL_MAX] = { };
	s64 n;

	switch (cmd) {
	case FITRIM:
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		if (!(SBI(sb)->limits.features & OB_HAS_TRIM) || !bdev_max_discard_sectors(sb->s_bdev))
			return -EOPNOTSUPP;
		if (copy_from_user(&range, to, sizeof(range)))
			return -EFAULT;
		n = ob_trim_range(sb, &range);
		if (n < 0)
			return n;
		range.len = n;
		return copy_to_user(to, &range, sizeof(range)) ? -EFAULT : 0;
	case FS_IOC_GETFSLABEL:
		n = GATED(sb, label, (struct ob_buffer){ label, sizeof(label) - 1 });
		if (n < 0)
			return n;
		return copy_to_user(to, label, sizeof(label)) ? -EFAULT : 0;
	case FS_IOC_SETFSLABEL:
		if (!capable(CAP_SYS_ADMIN))
			return -EPERM;
		return copy_from_user(label, to, sizeof(label)) ? -EFAULT : ob_set_label_op(f, label);
	case FS_IOC_GETVERSION:
		return put_user(file_inode(f)->i_generation, (int __user *)to);
	default:
		return -ENOTTY;
	}
}
#ifdef CONFIG_COMPAT
long ob_compat_ioctl(struct file *f, unsigned int cmd, unsigned long arg) { return ob_ioctl(f, cmd, (unsigned long)compat_ptr(arg)); }
#endif

static int __init ob_module_init(void)
{
	int err = -ENOMEM;

	get_random_bytes(ob_boot, sizeof(ob_boot));
	ob_inodes = kmem_cache_create("obento_inode", sizeof(struct ob_inode), 0,
				      SLAB_RECLAIM_ACCOUNT | SLAB_MEM_SPREAD | SLAB_ACCOUNT, ob_inode_once);
	if (!ob_inodes)
		return err;
	ob_wq = alloc_workqueue("obento-io", WQ_MEM_RECLAIM, 0);
	if (!ob_wq)
		goto free;
	err = ob_init_sysfs();
	if (err)
		goto destroy;
	ob_init_checksums();
	err = ob_register(&ob_drivers_here);
	if (!err)
		return 0;
	ob_exit_checksums();
	ob_exit_sysfs();
destroy:
	destroy_workqueue(ob_wq);
free:
	kmem_cache_destroy(ob_inodes);
	return err;
}
static void __exit ob_module_exit(void)
{
	ob_unregister(&ob_drivers_here);
	ob_exit_checksums();
	ob_exit_sysfs();
	destroy_workqueue(ob_wq);
	rcu_barrier();
	kmem_cache_destroy(ob_inodes);
}
module_init(ob_module_init);
module_exit(ob_module_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("File systems of obento, written in safe Rust");
MODULE_ALIAS_FS("obento-ext4");
MODULE_ALIAS_FS("obento-fat");
MODULE_ALIAS_FS("obento-exfat");
MODULE_ALIAS_FS("obento-xv6");
