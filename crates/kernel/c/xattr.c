// SPDX-License-Identifier: MIT OR GPL-2.0
/* Extended attributes by name space, access control lists, and security labels. */
#include "obento.h"
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/xattr.h>

ssize_t ob_listxattr_op(struct dentry *d, char *to, size_t room)
{
	struct inode *i = d_inode(d);

	if (!(SBI(i->i_sb)->limits.features & OB_HAS_XATTRS))
		return 0;
	return GATED(i->i_sb, listxattr, i->i_ino, (struct ob_buffer){ to, to ? room : 0 });
}
static int ob_store(struct inode *i, const char *name, const void *value, size_t len, int flags)
{
	struct ob_bytes n = { name, strlen(name) }, v = { value, len };
	int err = GATED(i->i_sb, setxattr, i->i_ino, n, v, value ? flags : OB_XATTR_REMOVE);

	if (!err)
		ob_refresh(i);
	return err;
}
/* The driver has whole names: user.note. */
static int ob_xattr_get(const struct xattr_handler *h, struct dentry *d, struct inode *i, const char *name, void *to, size_t room)
{
	const char *full = xattr_full_name(h, name);

	return GATED(i->i_sb, getxattr, i->i_ino, (struct ob_bytes){ full, strlen(full) }, (struct ob_buffer){ to, to ? room : 0 });
}
static int ob_xattr_set(const struct xattr_handler *h, struct user_namespace *ns, struct dentry *d, struct inode *i, const char *name,
			const void *value, size_t len, int flags)
{
	return ob_store(i, xattr_full_name(h, name), value, len, flags);
}
static bool ob_xattr_list_trusted(struct dentry *d) { return capable(CAP_SYS_ADMIN); }
static const struct xattr_handler ob_user = { .prefix = XATTR_USER_PREFIX, .get = ob_xattr_get, .set = ob_xattr_set };
static const struct xattr_handler ob_trusted = { .prefix = XATTR_TRUSTED_PREFIX, .list = ob_xattr_list_trusted, .get = ob_xattr_get, .set = ob_xattr_set };
static const struct xattr_handler ob_security = { .prefix = XATTR_SECURITY_PREFIX, .get = ob_xattr_get, .set = ob_xattr_set };
const struct xattr_handler *ob_xattrs[] = { &posix_acl_access_xattr_handler, &posix_acl_default_xattr_handler, &ob_user, &ob_trusted, &ob_security, NULL };

static const char *ob_acl_name(int type) { return type == ACL_TYPE_ACCESS ? XATTR_NAME_POSIX_ACL_ACCESS : XATTR_NAME_POSIX_ACL_DEFAULT; }
struct posix_acl *ob_get_acl(struct inode *i, int type, bool rcu)
{
	const char *name = ob_acl_name(type);
	struct ob_bytes n = { name, strlen(name) };
	struct posix_acl *acl;
	size_t room = 4096;
	void *buf;
	s64 len;

	if (rcu)
		return ERR_PTR(-ECHILD);
	if (!(SBI(i->i_sb)->limits.features & OB_HAS_XATTRS))
		return NULL;
	buf = kmalloc(room, GFP_NOFS);
	if (!buf)
		return ERR_PTR(-ENOMEM);
	len = GATED(i->i_sb, getxattr, i->i_ino, n, (struct ob_buffer){ buf, room });
	if (len == -ERANGE) {
		room = XATTR_SIZE_MAX;
		kfree(buf);
		buf = kvmalloc(room, GFP_NOFS);
		if (!buf)
			return ERR_PTR(-ENOMEM);
		len = GATED(i->i_sb, getxattr, i->i_ino, n, (struct ob_buffer){ buf, room });
	}
	if (len == -ENODATA || len == -EOPNOTSUPP)
		acl = NULL;
	else
		acl = len < 0 ? ERR_PTR(len) : posix_acl_from_xattr(&init_user_ns, buf, len);
	kvfree(buf);
	return acl;
}
int ob_store_acl(struct inode *i, struct posix_acl *acl, int type)
{
	void *value = NULL;
	size_t len = 0;
	int err;

	if (acl) {
		len = posix_acl_xattr_size(acl->a_count);
		value = kmalloc(len, GFP_NOFS);
		if (!value)
			return -ENOMEM;
		err = posix_acl_to_xattr(&init_user_ns, acl, value, len);
		if (err < 0)
			goto out;
	}
	err = ob_store(i, ob_acl_name(type), value, len, 0);
	if (!acl && err == -ENODATA)
		err = 0;
	if (!err)
		set_cached_acl(i, type, acl);
out:
	kfree(value);
	return err;
}
/* The list and the mode are two changes: after a crash between them, the file has the new list and the old mode. */
int ob_set_acl(struct user_namespace *ns, struct inode *i, struct posix_acl *acl, int type)
{
	struct ob_change c = { .valid = OB_MODE };
	struct ob_attributes now;
	umode_t mode = i->i_mode;
	int err;

	if (!(SBI(i->i_sb)->limits.features & OB_HAS_XATTRS))
		return -EOPNOTSUPP;
	if (type == ACL_TYPE_DEFAULT && !S_ISDIR(i->i_mode))
		return acl ? -EACCES : 0;
	if (type == ACL_TYPE_ACCESS && acl) {
		err = posix_acl_update_mode(ns, i, &mode, &acl);
		if (err)
			return err;
	}
	err = ob_store_acl(i, acl, type);
	if (err || mode == i->i_mode)
		return err;
	c.mode = mode & 07777;
	err = GATED(i->i_sb, setattr, i->i_ino, &c, &now);
	if (!err)
		ob_fill(i, &now, !S_ISREG(i->i_mode));
	return err;
}

static int ob_init_labels(struct inode *i, const struct xattr *labels, void *data)
{
	char name[XATTR_NAME_MAX + 1];
	int err = 0;

	for (; labels->name && !err; labels++) {
		snprintf(name, sizeof(name), "%s%s", XATTR_SECURITY_PREFIX, labels->name);
		err = ob_store(i, name, labels->value, labels->value_len, 0);
	}
	return err;
}
int ob_init_security(struct inode *i, struct inode *dir, const struct qstr *name)
{
	int err;

	if (!(SBI(i->i_sb)->limits.features & OB_HAS_XATTRS))
		return 0;
	err = security_inode_init_security(i, dir, name, ob_init_labels, NULL);
	return err == -EOPNOTSUPP ? 0 : err;
}
