// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * /sys/fs/obento: `upgrade` replaces the drivers of all volumes of a type, and each volume has a folder.
 *
 * DEVICE/driver lists the modules that have the type, the one in use in brackets. `upgrade`, or `upgrade MODULE`, replaces it.
 * DEVICE/upgrades counts the replacements, and DEVICE/pause is the length of the last pause in nanoseconds.
 */
#include <linux/capability.h>
#include <linux/module.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include "obento.h"

static struct kobject *ob_folder;

struct ob_attribute {
	struct attribute attr;
	ssize_t (*show)(struct ob_sb *, char *);
	ssize_t (*store)(struct ob_sb *, const char *, size_t);
};
static ssize_t ob_show_driver(struct ob_sb *s, char *to)
{
	ssize_t len;

	mutex_lock(&ob_lock);
	len = ob_list_drivers(s->sb->s_type->name, s->driver, to);
	mutex_unlock(&ob_lock);
	return len;
}
static ssize_t ob_store_driver(struct ob_sb *s, const char *text, size_t len)
{
	char words[OB_NAME_MAX + MODULE_NAME_LEN], *rest, *verb, *module;
	unsigned long patience = OB_MOUNT_PATIENCE;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (len >= sizeof(words))
		return -EINVAL;
	memcpy(words, text, len);
	words[len] = 0;
	rest = strim(words);
	verb = strsep(&rest, " ");
	module = rest ? strim(rest) : NULL;
	if (strcmp(verb, "upgrade"))
		return -EINVAL;
	mutex_lock(&ob_lock);
	err = ob_upgrade(s, module, &patience);
	mutex_unlock(&ob_lock);
	return err ?: len;
}
static ssize_t ob_show_upgrades(struct ob_sb *s, char *to) { return sysfs_emit(to, "%u\n", s->upgrades); }
static ssize_t ob_show_pause(struct ob_sb *s, char *to) { return sysfs_emit(to, "%lld\n", s->pause); }

static struct ob_attribute ob_driver_attr = { { "driver", 0644 }, ob_show_driver, ob_store_driver };
static struct ob_attribute ob_upgrades_attr = { { "upgrades", 0444 }, ob_show_upgrades };
static struct ob_attribute ob_pause_attr = { { "pause", 0444 }, ob_show_pause };
static struct attribute *ob_attrs[] = { &ob_driver_attr.attr, &ob_upgrades_attr.attr, &ob_pause_attr.attr, NULL };
ATTRIBUTE_GROUPS(ob);

static ssize_t ob_attr_show(struct kobject *k, struct attribute *a, char *to)
{
	if (READ_ONCE(ob_dead))
		return -EIO;
	return container_of(a, struct ob_attribute, attr)->show(container_of(k, struct ob_sb, kobj), to);
}
static ssize_t ob_attr_store(struct kobject *k, struct attribute *a, const char *text, size_t len)
{
	if (READ_ONCE(ob_dead))
		return -EIO;
	return container_of(a, struct ob_attribute, attr)->store(container_of(k, struct ob_sb, kobj), text, len);
}
static const struct sysfs_ops ob_sysfs_ops = { .show = ob_attr_show, .store = ob_attr_store };
static void ob_hidden(struct kobject *k) { complete(&container_of(k, struct ob_sb, kobj)->hidden); }
static struct kobj_type ob_volume_type = { .sysfs_ops = &ob_sysfs_ops, .default_groups = ob_groups, .release = ob_hidden };

/*
 * All volumes of a type: the first error is returned, and the others are replaced nevertheless. A process that is being killed
 * replaces no further one.
 */
static ssize_t ob_upgrade_all(struct kobject *k, struct kobj_attribute *a, const char *text, size_t len)
{
	char words[OB_NAME_MAX + 2], *type;
	unsigned long patience = OB_MOUNT_PATIENCE;
	struct ob_sb *s;
	int err = 0, one, found = 0;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (len >= sizeof(words))
		return -EINVAL;
	memcpy(words, text, len);
	words[len] = 0;
	type = strim(words);
	/* a thread that ended in a panic may have the lock */
	if (READ_ONCE(ob_dead))
		return -EIO;
	mutex_lock(&ob_lock);
	list_for_each_entry(s, &ob_mounts, mounts) {
		/* a volume stays in the list after its unmount then */
		if (READ_ONCE(ob_dead)) {
			err = -EIO;
			break;
		}
		if (strcmp(type, s->sb->s_type->name))
			continue;
		found++;
		one = ob_upgrade(s, NULL, &patience);
		if (one != -EALREADY)
			err = err ?: one;
		if (one == -EINTR)
			break;
	}
	mutex_unlock(&ob_lock);
	return err ?: found ? len : -ENOENT;
}
static struct kobj_attribute ob_upgrade_attr = __ATTR(upgrade, 0200, NULL, ob_upgrade_all);

int ob_init_sysfs(void)
{
	int err;

	ob_folder = kobject_create_and_add("obento", fs_kobj);
	if (!ob_folder)
		return -ENOMEM;
	err = sysfs_create_file(ob_folder, &ob_upgrade_attr.attr);
	if (err)
		kobject_put(ob_folder);
	return err;
}
void ob_exit_sysfs(void) { kobject_put(ob_folder); }

int ob_show(struct ob_sb *s)
{
	int err;

	init_completion(&s->hidden);
	err = kobject_init_and_add(&s->kobj, &ob_volume_type, ob_folder, "%s", s->sb->s_id);
	if (err) {
		kobject_put(&s->kobj);
		wait_for_completion(&s->hidden);
		return err;
	}
	mutex_lock(&ob_lock);
	list_add_tail(&s->mounts, &ob_mounts);
	mutex_unlock(&ob_lock);
	s->is_shown = true;
	return 0;
}
/* The caller has s_umount for writing, so a replacement that waits for ob_lock ends with EBUSY. */
void ob_hide(struct ob_sb *s)
{
	/* a thread that ended in a panic may use the folder and have the lock for ever; the memory of the volume stays then */
	if (!s->is_shown || READ_ONCE(ob_dead))
		return;
	kobject_del(&s->kobj);
	kobject_put(&s->kobj);
	wait_for_completion(&s->hidden);
	mutex_lock(&ob_lock);
	list_del(&s->mounts);
	mutex_unlock(&ob_lock);
}
