// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The drivers: modules register sets of file system types. A type exists while a module that is loaded has it. New volumes use
 * the module that was registered last. A volume refers to its module, so that module cannot be unloaded.
 */
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/sysfs.h>
#include "obento.h"

#define OB_TYPES 16
struct ob_type {
	struct file_system_type fs;
	char name[OB_NAME_MAX];
	unsigned int drivers;	/* how many have it */
};
DEFINE_MUTEX(ob_lock);
LIST_HEAD(ob_mounts);
static LIST_HEAD(ob_drivers);	/* the last one is the newest */
static struct ob_type ob_types[OB_TYPES];

int ob_type_index(const struct ob_driver *d, const char *type)
{
	const char *name;
	int n;

	for (n = 0; (name = d->ops->type_name(n)); n++)
		if (!strcmp(name, type))
			return n;
	return -ENOENT;
}
/* The newest driver of a type; with `module`, the one of this module. The caller has ob_lock. */
struct ob_driver *ob_find(const char *type, const char *module)
{
	struct ob_driver *d;

	list_for_each_entry_reverse(d, &ob_drivers, list)
		if (ob_type_index(d, type) >= 0 && (!module || !strcmp(module, module_name(d->owner))))
			return d;
	return NULL;
}
/* The newest driver of a type whose module is not being unloaded, with a reference to its module. */
struct ob_driver *ob_get_driver(const char *type)
{
	struct ob_driver *d, *found = NULL;

	mutex_lock(&ob_lock);
	list_for_each_entry_reverse(d, &ob_drivers, list)
		if (ob_type_index(d, type) >= 0 && try_module_get(d->owner)) {
			found = d;
			break;
		}
	mutex_unlock(&ob_lock);
	return found;
}

/* Prints the modules that have a type, the newest last, and the one in use in brackets. The caller has ob_lock. */
ssize_t ob_list_drivers(const char *type, const struct ob_driver *used, char *to)
{
	struct ob_driver *d;
	ssize_t len = 0;

	list_for_each_entry(d, &ob_drivers, list)
		if (ob_type_index(d, type) >= 0)
			len += sysfs_emit_at(to, len, d == used ? "%s[%s]" : "%s%s", len ? " " : "", module_name(d->owner));
	return len + sysfs_emit_at(to, len, "\n");
}

/* An entry keeps its name for ever: a mount that has just begun may refer to it. */
static struct ob_type *ob_type(const char *name)
{
	struct ob_type *t;

	if (strlen(name) >= sizeof(t->name))
		return NULL;
	for (t = ob_types; t < ob_types + OB_TYPES; t++) {
		if (t->name[0] && strcmp(t->name, name))
			continue;
		strscpy(t->name, name, sizeof(t->name));
		return t;
	}
	return NULL;
}
static int ob_add_type(const char *name)
{
	struct ob_type *t = ob_type(name);
	int err;

	if (!t)
		return -ENOSPC;
	if (!t->drivers) {
		t->fs = (struct file_system_type){
			.owner = THIS_MODULE, .name = t->name, .fs_flags = FS_REQUIRES_DEV,
			.init_fs_context = ob_init_fc, .parameters = ob_parameters, .kill_sb = kill_block_super,
		};
		err = register_filesystem(&t->fs);
		if (err)
			return err;
	}
	t->drivers++;
	return 0;
}
static void ob_remove_types(const struct ob_driver *d, int count)
{
	struct ob_type *t;

	while (count--) {
		t = ob_type(d->ops->type_name(count));
		if (t && !--t->drivers)
			unregister_filesystem(&t->fs);
	}
}
int ob_register(struct ob_driver *d)
{
	const char *name;
	int n, err = 0;

	if (d->abi != OB_ABI || d->size != sizeof(struct ob_ops)) {
		pr_err("obento: module %s has version %u of the interface to drivers, and this is version %u\n",
		       module_name(d->owner), d->abi, OB_ABI);
		return -EPROTONOSUPPORT;
	}
	mutex_lock(&ob_lock);
	for (n = 0; !err && (name = d->ops->type_name(n)); n++)
		err = ob_add_type(name);
	if (err)
		ob_remove_types(d, n - 1);
	else
		list_add_tail(&d->list, &ob_drivers);
	mutex_unlock(&ob_lock);
	return err;
}
EXPORT_SYMBOL_GPL(ob_register);
void ob_unregister(struct ob_driver *d)
{
	int n;

	mutex_lock(&ob_lock);
	for (n = 0; d->ops->type_name(n); n++)
		;
	ob_remove_types(d, n);
	list_del(&d->list);
	mutex_unlock(&ob_lock);
	ob_await_threads(d->owner);
}
EXPORT_SYMBOL_GPL(ob_unregister);
