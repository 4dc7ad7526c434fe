// SPDX-License-Identifier: MIT OR GPL-2.0
/* Names, directories and attributes. */
#include "obento.h"
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/fileattr.h>
#include <linux/iomap.h>
#include <linux/pagemap.h>
#include <linux/posix_acl.h>
#include <linux/slab.h>
#include <linux/xattr.h>

static struct dentry *ob_lookup_op(struct inode *dir, struct dentry *d, unsigned int flags)
{
	struct inode *i = NULL;
	struct ob_sb *s = SBI(dir->i_sb);
	u64 ino;
	int err;

	if (d->d_name.len > s->limits.name_max)
		return ERR_PTR(-ENAMETOOLONG);
	ob_begin_promise(s, OB_CALLER);
	err = GATED(dir->i_sb, lookup, dir->i_ino, NAME(d), &ino);
	if (!err)
		i = ob_iget(dir->i_sb, ino);
	ob_end_promise(s, OB_CALLER);
	if (err && err != -ENOENT)
		return ERR_PTR(err);
	return d_splice_alias(i, d);
}

/*
 * Listing. Entries are gathered first: a copy to the memory of the process may fault, and the fault may call the
 * file system again, which must not happen under the gate. What the process has no room for is kept for its next call.
 *
 * A process can leave many directories open in the middle of a listing. So the entries are in memory that its cgroup is
 * charged for, that is no larger than the directory needs, and that is freed as the process receives them.
 */
#define OB_LIST_MIN 4096
#define OB_LIST_MAX 65536
struct ob_entry { u64 ino, next; u16 len; u8 kind; u8 name[]; };
#define OB_ENTRY_SIZE(len) ALIGN(offsetof(struct ob_entry, name) + (len), 8)
struct ob_listing {
	loff_t pos;		/* of the first entry at `at` */
	int changes;		/* of the directory, when the entries were read */
	bool ends;		/* no entry follows those in `bytes` */
	size_t at, len, room;
	u8 *bytes;
};
static bool ob_emit(void *data, struct ob_bytes name, u64 ino, u32 kind, u64 next)
{
	struct ob_listing *l = data;
	struct ob_entry *e = (void *)(l->bytes + l->len);
	size_t need = OB_ENTRY_SIZE(name.len);

	if (l->len + need > l->room) {
		l->ends = false;
		return false;
	}
	e->ino = ino;
	e->next = next;
	e->kind = kind;
	e->len = name.len;
	memcpy(e->name, name.at, name.len);
	l->len += need;
	return true;
}
static void ob_drop_entries(struct ob_listing *l)
{
	kvfree(l->bytes);
	l->bytes = NULL;
	l->at = l->len = 0;
}
/* Frees the memory of entries that the process has, once they are half of the buffer. */
static void ob_keep_rest(struct ob_listing *l)
{
	size_t rest = l->len - l->at;
	u8 *bytes;

	if (rest > l->room / 2)
		return;
	bytes = kvmalloc(rest, GFP_KERNEL_ACCOUNT);
	if (!bytes)
		return;
	memcpy(bytes, l->bytes + l->at, rest);
	ob_drop_entries(l);
	l->bytes = bytes;
	l->len = l->room = rest;
}
/* Reads the entries from `pos` on. */
static int ob_read_entries(struct inode *dir, struct ob_listing *l, loff_t pos)
{
	int err;

	ob_drop_entries(l);
	/* an entry needs at most twice the space of its record in a directory of ext4; a second read would sort them again */
	l->room = clamp_t(loff_t, 2 * i_size_read(dir), OB_LIST_MIN, OB_LIST_MAX);
	l->bytes = kvmalloc(l->room, GFP_KERNEL_ACCOUNT);
	if (!l->bytes) {
		l->pos = -1;
		return -ENOMEM;
	}
	l->ends = true;
	l->pos = pos;
	l->changes = atomic_read(&OBI(dir)->ended);
	err = GATED(dir->i_sb, readdir, dir->i_ino, pos - 2, ob_emit, l);
	if (err)
		l->ends = false;
	return err;
}
static int ob_iterate(struct file *f, struct dir_context *ctx)
{
	struct inode *dir = file_inode(f);
	struct ob_listing *l = f->private_data;
	int err = 0;

	if (!dir_emit_dots(f, ctx))
		return 0;
	if (!l) {
		l = f->private_data = kzalloc(sizeof(*l), GFP_KERNEL_ACCOUNT);
		if (!l)
			return -ENOMEM;
		l->pos = -1;
	}
	for (;;) {
		bool is_current = l->pos == ctx->pos && l->changes == atomic_read(&OBI(dir)->ended);

		if (is_current && l->at >= l->len && l->ends)
			return 0;
		if (!is_current || l->at >= l->len) {
			/* the damage in a directory costs the entries in it, not the others */
			err = ob_read_entries(dir, l, ctx->pos);
			if (!l->len)
				ob_drop_entries(l);
			if (!l->bytes)
				return err;
		}
		while (l->at < l->len) {
			struct ob_entry *e = (void *)(l->bytes + l->at);

			if (!dir_emit(ctx, e->name, e->len, e->ino, e->kind)) {
				ob_keep_rest(l);
				return 0;
			}
			l->pos = ctx->pos = e->next + 2;
			l->at += OB_ENTRY_SIZE(e->len);
		}
		ob_drop_entries(l);
		if (err)
			return err;
	}
}
/* A position is a number of the driver, such as a hash, and may be larger than any file. */
static loff_t ob_seek_dir(struct file *f, loff_t pos, int whence) { return generic_file_llseek_size(f, pos, whence, LLONG_MAX, i_size_read(file_inode(f))); }
static int ob_release_dir(struct inode *i, struct file *f)
{
	struct ob_listing *l = f->private_data;

	if (l)
		kvfree(l->bytes);
	kfree(l);
	return 0;
}

static struct ob_node ob_node(struct user_namespace *ns, struct inode *dir, umode_t mode, dev_t rdev, const char *target)
{
	return (struct ob_node){
		.mode = mode,
		.uid = from_kuid(&init_user_ns, mapped_fsuid(ns, dir->i_sb->s_user_ns)),
		.gid = dir->i_mode & S_ISGID ? i_gid_read(dir) : from_kgid(&init_user_ns, mapped_fsgid(ns, dir->i_sb->s_user_ns)),
		.major = MAJOR(rdev), .minor = MINOR(rdev),
		.target = { target, target ? strlen(target) : 0 },
	};
}
/* The result is locked as a new inode. */
static struct inode *ob_create_and_get(struct inode *dir, struct ob_bytes name, const struct ob_node *node)
{
	struct ob_sb *s = SBI(dir->i_sb);
	struct ob_attributes a;
	struct inode *i;
	int err;

	ob_begin_promise(s, OB_CALLER);
	err = GATED(dir->i_sb, create, dir->i_ino, name, node, &a);
	i = err ? ERR_PTR(err) : ob_new_inode(dir->i_sb, &a);
	if (!err && IS_ERR(i))
		GATED_V(dir->i_sb, forget, a.ino);
	ob_end_promise(s, OB_CALLER);
	return i;
}
/* Creates an inode; without a name if `name` is NULL. The result is locked as a new inode. */
static struct inode *ob_create_inode(struct user_namespace *ns, struct inode *dir, const struct qstr *name, umode_t mode, dev_t rdev, const char *target)
{
	struct posix_acl *initial = NULL, *acl = NULL;
	struct ob_bytes bytes = { name ? name->name : NULL, name ? name->len : 0 };
	struct ob_node node;
	struct inode *i;
	int err;

	if (name && name->len > SBI(dir->i_sb)->limits.name_max)
		return ERR_PTR(-ENAMETOOLONG);
	if (S_ISDIR(mode) && (dir->i_mode & S_ISGID))
		mode |= S_ISGID;
	err = posix_acl_create(dir, &mode, &initial, &acl);
	if (err)
		return ERR_PTR(err);
	node = ob_node(ns, dir, mode, rdev, target);
	i = ob_create_and_get(dir, bytes, &node);
	if (IS_ERR(i))
		goto out;
	/* The name is on the volume already; without its lists the file would grant more than it should. */
	if (initial)
		err = ob_store_acl(i, initial, ACL_TYPE_DEFAULT);
	if (!err && acl)
		err = ob_store_acl(i, acl, ACL_TYPE_ACCESS);
	/* a new file has no other lists, so nothing looks for them */
	if (!acl)
		i->i_acl = NULL;
	if (!initial)
		i->i_default_acl = NULL;
	/* nor does a write look for attributes of a new file that it would have to remove */
	inode_has_no_xattr(i);
	if (!err)
		err = ob_init_security(i, dir, name);
	if (err) {
		if (name)
			GATED(dir->i_sb, unlink, dir->i_ino, bytes, S_ISDIR(mode));
		clear_nlink(i);
		unlock_new_inode(i);
		iput(i);
		i = ERR_PTR(err);
	}
out:
	posix_acl_release(initial);
	posix_acl_release(acl);
	return i;
}
static int ob_make(struct user_namespace *ns, struct inode *dir, struct dentry *d, umode_t mode, dev_t rdev, const char *target)
{
	struct inode *i = ob_create_inode(ns, dir, &d->d_name, mode, rdev, target);

	if (IS_ERR(i))
		return PTR_ERR(i);
	ob_refresh(dir);
	d_instantiate_new(d, i);
	return IS_DIRSYNC(dir) ? GATED(dir->i_sb, sync_file, i->i_ino) : 0;
}
static int ob_create_op(struct user_namespace *ns, struct inode *dir, struct dentry *d, umode_t mode, bool excl) { return ob_make(ns, dir, d, mode | S_IFREG, 0, NULL); }
static int ob_mkdir(struct user_namespace *ns, struct inode *dir, struct dentry *d, umode_t mode) { return ob_make(ns, dir, d, mode | S_IFDIR, 0, NULL); }
static int ob_mknod(struct user_namespace *ns, struct inode *dir, struct dentry *d, umode_t mode, dev_t rdev) { return ob_make(ns, dir, d, mode, rdev, NULL); }
static int ob_symlink(struct user_namespace *ns, struct inode *dir, struct dentry *d, const char *to) { return ob_make(ns, dir, d, S_IFLNK | 0777, 0, to); }
static int ob_tmpfile(struct user_namespace *ns, struct inode *dir, struct file *f, umode_t mode)
{
	struct inode *i;

	if (!(SBI(dir->i_sb)->limits.features & OB_HAS_NAMELESS))
		return -EOPNOTSUPP;
	i = ob_create_inode(ns, dir, NULL, mode | S_IFREG, 0, NULL);
	if (IS_ERR(i))
		return finish_open_simple(f, PTR_ERR(i));
	set_nlink(i, 1);	/* d_tmpfile takes it away */
	d_tmpfile(f, i);
	unlock_new_inode(i);
	return finish_open_simple(f, 0);
}
static int ob_link_op(struct dentry *old, struct inode *dir, struct dentry *d)
{
	struct inode *i = d_inode(old);
	int err;

	if (d->d_name.len > SBI(dir->i_sb)->limits.name_max)
		return -ENAMETOOLONG;
	err = GATED(dir->i_sb, link, i->i_ino, dir->i_ino, NAME(d), !i->i_nlink);
	if (err)
		return err;
	ob_refresh(i);
	ob_refresh(dir);
	ihold(i);
	d_instantiate(d, i);
	return IS_DIRSYNC(dir) ? GATED(dir->i_sb, sync_file, i->i_ino) : 0;
}
static int ob_remove(struct inode *dir, struct dentry *d, bool is_dir)
{
	int err = GATED(dir->i_sb, unlink, dir->i_ino, NAME(d), is_dir);

	if (err)
		return err;
	ob_refresh(d_inode(d));
	ob_refresh(dir);
	return IS_DIRSYNC(dir) ? GATED(dir->i_sb, sync_file, dir->i_ino) : 0;
}
static int ob_unlink_op(struct inode *dir, struct dentry *d) { return ob_remove(dir, d, false); }
static int ob_rmdir(struct inode *dir, struct dentry *d) { return ob_remove(dir, d, true); }
static int ob_rename_op(struct user_namespace *ns, struct inode *from, struct dentry *d, struct inode *to, struct dentry *nd, unsigned int flags)
{
	struct ob_node whiteout = ob_node(ns, from, S_IFCHR | WHITEOUT_MODE, WHITEOUT_DEV, NULL);
	int err;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if (nd->d_name.len > SBI(to->i_sb)->limits.name_max)
		return -ENAMETOOLONG;
	err = GATED(from->i_sb, rename, from->i_ino, NAME(d), to->i_ino, NAME(nd), flags & ~RENAME_WHITEOUT,
			flags & RENAME_WHITEOUT ? &whiteout : NULL);
	if (err)
		return err;
	ob_refresh(d_inode(d));
	ob_refresh(from);
	if (to != from)
		ob_refresh(to);
	if (d_inode(nd))
		ob_refresh(d_inode(nd));
	return IS_DIRSYNC(from) || IS_DIRSYNC(to) ? GATED(to->i_sb, sync) : 0;
}
static const char *ob_get_link(struct dentry *d, struct inode *i, struct delayed_call *done)
{
	char *buf;
	s64 n;

	if (!d)
		return ERR_PTR(-ECHILD);
	buf = kmalloc(PAGE_SIZE, GFP_KERNEL_ACCOUNT);	/* it lives until the path is resolved */
	if (!buf)
		return ERR_PTR(-ENOMEM);
	n = GATED(i->i_sb, readlink, i->i_ino, (struct ob_buffer){ buf, PAGE_SIZE - 1 });
	if (n < 0) {
		kfree(buf);
		return ERR_PTR(n);
	}
	buf[n] = 0;
	set_delayed_call(done, kfree_link, buf);
	return buf;
}

/* attributes */
int ob_getattr_op(struct user_namespace *ns, const struct path *path, struct kstat *k, u32 mask, unsigned int flags)
{
	struct inode *i = d_inode(path->dentry);
	struct ob_inode *o = OBI(i);

	generic_fillattr(ns, i, k);
	if (o->btime.valid) {
		k->result_mask |= STATX_BTIME;
		k->btime = ob_ts(&o->btime);
	}
	k->attributes |= ((o->flags & FS_APPEND_FL) ? STATX_ATTR_APPEND : 0) | ((o->flags & FS_COMPR_FL) ? STATX_ATTR_COMPRESSED : 0) |
		((o->flags & FS_ENCRYPT_FL) ? STATX_ATTR_ENCRYPTED : 0) | ((o->flags & FS_IMMUTABLE_FL) ? STATX_ATTR_IMMUTABLE : 0) |
		((o->flags & FS_NODUMP_FL) ? STATX_ATTR_NODUMP : 0);
	k->attributes_mask |= STATX_ATTR_APPEND | STATX_ATTR_COMPRESSED | STATX_ATTR_ENCRYPTED | STATX_ATTR_IMMUTABLE | STATX_ATTR_NODUMP;
	if ((mask & STATX_DIOALIGN) && S_ISREG(i->i_mode)) {
		k->result_mask |= STATX_DIOALIGN;
		k->dio_mem_align = k->dio_offset_align = o->is_through ? 0 : bdev_logical_block_size(i->i_sb->s_bdev);
	}
	return 0;
}
int ob_update_time(struct inode *i, struct timespec64 *t, int flags)
{
	u64 unit = div_u64(SBI(i->i_sb)->limits.granularity, NSEC_PER_SEC);

	if (sb_rdonly(i->i_sb))
		return 0;
	/* Linux rounds to a second at most, and FAT stores even seconds */
	if (unit > 1 && unit < 60)
		*t = (struct timespec64){ t->tv_sec - (u32)t->tv_sec % (u32)unit, 0 };
	return generic_update_time(i, t, flags);
}
int ob_setattr_op(struct user_namespace *ns, struct dentry *d, struct iattr *a)
{
	struct inode *i = d_inode(d);
	struct ob_change c = { };
	struct ob_attributes now;
	int err = setattr_prepare(ns, d, a);

	if (err)
		return err;
	if ((a->ia_valid & ATTR_SIZE) && S_ISREG(i->i_mode)) {
		err = ob_set_size(i, a->ia_size);
		if (err)
			return err;
	}
	if (a->ia_valid & ATTR_MODE) {
		c.valid |= OB_MODE;
		c.mode = a->ia_mode & 07777;
		if (!vfsgid_in_group_p(i_gid_into_vfsgid(ns, i)) && !capable_wrt_inode_uidgid(ns, i, CAP_FSETID))
			c.mode &= ~S_ISGID;
	}
	if (a->ia_valid & ATTR_UID) {
		c.valid |= OB_UID;
		c.uid = from_kuid(&init_user_ns, from_vfsuid(ns, i->i_sb->s_user_ns, a->ia_vfsuid));
	}
	if (a->ia_valid & ATTR_GID) {
		c.valid |= OB_GID;
		c.gid = from_kgid(&init_user_ns, from_vfsgid(ns, i->i_sb->s_user_ns, a->ia_vfsgid));
	}
	if (a->ia_valid & ATTR_ATIME) {
		c.valid |= OB_ATIME;
		c.atime = ob_moment(a->ia_atime);
	}
	/* data that is written later would bring another time with it */
	if ((a->ia_valid & (ATTR_ATIME | ATTR_MTIME)) && S_ISREG(i->i_mode) && !(a->ia_valid & ATTR_SIZE))
		filemap_write_and_wait(i->i_mapping);
	if (a->ia_valid & ATTR_MTIME) {
		c.valid |= OB_MTIME;
		c.mtime = ob_moment(a->ia_mtime);
	}
	err = c.valid ? GATED(i->i_sb, setattr, i->i_ino, &c, &now) : GATED(i->i_sb, getattr, i->i_ino, &now);
	if (err)
		return err;
	/* an access time in memory may be newer than the one on the volume */
	if (!(c.valid & OB_ATIME) && timespec64_compare(&i->i_atime, &OBI(i)->stored_atime) > 0)
		now.atime = ob_moment(i->i_atime);
	ob_fill(i, &now, !S_ISREG(i->i_mode) || (c.valid & (OB_ATIME | OB_MTIME)) || (a->ia_valid & ATTR_SIZE));
	if (a->ia_valid & ATTR_MODE)
		err = posix_acl_chmod(ns, i, i->i_mode);
	return err == -EOPNOTSUPP ? 0 : err;
}
/* chattr(1): flags that the format computes stay as they are */
#define OB_USER_FLAGS (FS_SECRM_FL | FS_UNRM_FL | FS_COMPR_FL | FS_SYNC_FL | FS_IMMUTABLE_FL | FS_APPEND_FL | FS_NODUMP_FL | \
	FS_NOATIME_FL | FS_JOURNAL_DATA_FL | FS_NOTAIL_FL | FS_DIRSYNC_FL | FS_TOPDIR_FL | FS_NOCOW_FL | FS_PROJINHERIT_FL | FS_CASEFOLD_FL)
int ob_fileattr_get(struct dentry *d, struct fileattr *fa)
{
	struct ob_inode *o = OBI(d_inode(d));

	fileattr_fill_flags(fa, o->flags);
	fa->fsx_projid = o->project;
	return 0;
}
int ob_fileattr_set(struct user_namespace *ns, struct dentry *d, struct fileattr *fa)
{
	struct inode *i = d_inode(d);
	struct ob_inode *o = OBI(i);
	struct ob_change c = { .valid = OB_FLAGS, .flags = (fa->flags & OB_USER_FLAGS) | (o->flags & ~OB_USER_FLAGS) };
	struct ob_attributes now;
	int err;

	if (fa->flags_valid && (fa->flags & ~(OB_USER_FLAGS | o->flags)))
		return -EOPNOTSUPP;
	if (fa->fsx_valid && (fa->fsx_extsize || fa->fsx_cowextsize))
		return -EOPNOTSUPP;
	/* the page cache of the file works in another way with this flag */
	if ((c.flags ^ o->flags) & FS_JOURNAL_DATA_FL)
		return -EOPNOTSUPP;
	if (fa->fsx_valid) {
		c.valid |= OB_PROJECT;
		c.project = fa->fsx_projid;
	}
	err = GATED(i->i_sb, setattr, i->i_ino, &c, &now);
	if (!err)
		ob_fill(i, &now, !S_ISREG(i->i_mode));
	return err;
}

#define OB_COMMON .getattr = ob_getattr_op, .setattr = ob_setattr_op, .listxattr = ob_listxattr_op, .update_time = ob_update_time
#define OB_ACLS .get_acl = ob_get_acl, .set_acl = ob_set_acl
#define OB_FLAGS_OPS .fileattr_get = ob_fileattr_get, .fileattr_set = ob_fileattr_set
const struct inode_operations ob_dir_iops = {
	.lookup = ob_lookup_op, .create = ob_create_op, .mkdir = ob_mkdir, .mknod = ob_mknod, .symlink = ob_symlink, .link = ob_link_op,
	.unlink = ob_unlink_op, .rmdir = ob_rmdir, .rename = ob_rename_op, .tmpfile = ob_tmpfile, OB_COMMON, OB_ACLS, OB_FLAGS_OPS,
};
const struct inode_operations ob_file_iops = { OB_COMMON, OB_ACLS, OB_FLAGS_OPS, .fiemap = ob_fiemap };
const struct inode_operations ob_special_iops = { OB_COMMON, OB_ACLS };
const struct inode_operations ob_link_iops = { .get_link = ob_get_link, OB_COMMON };
const struct file_operations ob_dir_fops = {
	.iterate_shared = ob_iterate, .llseek = ob_seek_dir, .read = generic_read_dir, .release = ob_release_dir, .fsync = ob_fsync,
	.unlocked_ioctl = ob_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = ob_compat_ioctl,
#endif
};
