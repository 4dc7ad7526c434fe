/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* The border between C and Rust: crates/kernel/src/abi.rs declares the same types. */
#pragma once
#include <linux/fs.h>
#include <linux/fs_parser.h>
#include <linux/kobject.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/version.h>
#include <linux/workqueue.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#error "obento.ko supports Linux 6.1 only: the VFS of other versions has other operations"
#endif
#ifndef CONFIG_X86_64
#error "obento.ko supports x86-64 only"
#endif
#if !IS_ENABLED(CONFIG_FS_IOMAP)
#error "obento.ko requires CONFIG_FS_IOMAP: the kernel exports no iomap without it"
#endif

struct ob_volume;
struct ob_moment { s64 secs; u32 nanos, valid; };
struct ob_attributes {
	u64 ino, size, blocks;
	struct ob_moment atime, mtime, ctime, btime;
	u32 mode, nlink, uid, gid, major, minor, generation, flags, project, pad;
};
struct ob_place { u32 kind, pad; u64 at, len; };
enum { OB_MAPPED, OB_HOLE, OB_UNWRITTEN, OB_DRIVER };
/* why `map` is called; pages to read are locked until they have been read */
enum { OB_LOOK, OB_RESERVE, OB_READ };
struct ob_usage {
	u64 block_size, blocks, free, available, inodes, free_inodes, name_max, size_max, granularity, link_max, id, features;
};
enum { OB_HAS_XATTRS = 1, OB_HAS_NAMELESS = 2, OB_HAS_HOLES = 4, OB_IS_THROUGH = 8, OB_HAS_TRIM = 16 };
struct ob_change { u32 valid, mode, uid, gid, flags, project; struct ob_moment atime, mtime; };
enum { OB_MODE = 1, OB_UID = 2, OB_GID = 4, OB_ATIME = 8, OB_MTIME = 16, OB_FLAGS = 32, OB_PROJECT = 64 };
struct ob_bytes { const void *at; size_t len; };
struct ob_buffer { void *at; size_t len; };
struct ob_node { u32 mode, uid, gid, major, minor, pad; struct ob_bytes target; };
struct ob_options {
	u32 flags, data, commit, uid, gid, fmask, dmask, codepage;
	s32 time_offset;
	u32 type_index;
	u64 super_block;
	u8 boot[16];
};
enum {
	OB_READ_ONLY = 1, OB_NO_REPLAY = 2, OB_NO_BARRIER = 4, OB_DISCARD = 8, OB_KEEP_LAST_DOTS = 16, OB_SET_COMMIT = 32,
	OB_SET_UID = 64, OB_SET_GID = 128, OB_SET_FMASK = 256, OB_SET_DMASK = 512, OB_SET_CODEPAGE = 1024,
	OB_SET_TIME_OFFSET = 2048, OB_SET_SUPER_BLOCK = 4096, OB_PROVENANCE = 8192, OB_SHOW_PROVENANCE = 16384,
};
enum { OB_DATA_ORDERED, OB_DATA_JOURNAL, OB_DATA_WRITEBACK };
enum { OB_ALLOCATE, OB_PUNCH, OB_ZERO, OB_COLLAPSE, OB_INSERT };
#define OB_XATTR_REMOVE (1U << 31)
struct ob_process { u64 start; u32 pid, uid, gid; u8 comm[16]; u32 pad; };
struct ob_read { u64 bytes, start, end; };
enum { OB_READS = 1, OB_WRITES = 2 };
struct ob_numbers { const u64 *at; size_t len; };
typedef int (*ob_take_t)(void *, struct ob_bytes);
typedef bool (*ob_emit_t)(void *, struct ob_bytes, u64 ino, u32 kind, u64 next);

/*
 * The functions of a driver, which table.c lists. The first argument is the volume, if there is one.
 * A change of this list, or of a type above, needs another OB_ABI: modules of drivers are built one by one.
 */
#define OB_ABI 2
#define OB_CALLS(X) \
	X(const char *, type_name, (size_t)) \
	X(void, states, (u32 *first, u32 *last)) \
	X(int, open, (struct block_device *, struct super_block *, u64 len, const struct ob_options *, struct ob_volume **)) \
	X(int, resume, (struct block_device *, struct super_block *, u64 len, const struct ob_options *, struct ob_bytes state, struct ob_volume **)) \
	X(int, release, (struct ob_volume *)) \
	X(int, prepare, (struct ob_volume *)) \
	X(int, leave, (struct ob_volume *, struct ob_numbers used, ob_take_t, void *)) \
	X(int, depart, (struct ob_volume *)) \
	X(void, stay, (struct ob_volume *)) \
	X(int, close, (struct ob_volume *)) \
	X(void, free_volume, (struct ob_volume *)) \
	X(u64, root, (struct ob_volume *)) \
	X(int, statfs, (struct ob_volume *, struct ob_usage *)) \
	X(s64, label, (struct ob_volume *, struct ob_buffer)) \
	X(int, set_label, (struct ob_volume *, struct ob_bytes)) \
	X(int, sync_file, (struct ob_volume *, u64 ino)) \
	X(int, sync, (struct ob_volume *)) \
	X(s64, trim, (struct ob_volume *, u64 start, u64 end, u64 min_len)) \
	X(int, lookup, (struct ob_volume *, u64 dir, struct ob_bytes, u64 *)) \
	X(int, parent, (struct ob_volume *, u64 dir, u64 *)) \
	X(int, getattr, (struct ob_volume *, u64 ino, struct ob_attributes *)) \
	X(int, readdir, (struct ob_volume *, u64 dir, u64 from, ob_emit_t, void *)) \
	X(s64, readlink, (struct ob_volume *, u64 ino, struct ob_buffer)) \
	X(void, forget, (struct ob_volume *, u64 ino)) \
	X(int, create, (struct ob_volume *, u64 dir, struct ob_bytes, const struct ob_node *, struct ob_attributes *)) \
	X(int, link, (struct ob_volume *, u64 ino, u64 dir, struct ob_bytes, bool nameless)) \
	X(int, unlink, (struct ob_volume *, u64 dir, struct ob_bytes, bool is_dir)) \
	X(int, rename, (struct ob_volume *, u64 from, struct ob_bytes, u64 to, struct ob_bytes, u32 flags, const struct ob_node *whiteout)) \
	X(int, setattr, (struct ob_volume *, u64 ino, const struct ob_change *, struct ob_attributes *)) \
	X(int, map, (struct ob_volume *, u64 ino, u64 start, u64 end, u32 purpose, struct ob_place *)) \
	X(int, end_write, (struct ob_volume *, u64 ino, u64 start, u64 end, const struct ob_moment *)) \
	X(void, abandon, (struct ob_volume *, u64 ino, u64 start, u64 end)) \
	X(int, read, (struct ob_volume *, u64 ino, u64 off, struct ob_buffer)) \
	X(int, write, (struct ob_volume *, u64 ino, u64 off, struct ob_bytes, const struct ob_moment *)) \
	X(int, truncate, (struct ob_volume *, u64 ino, u64 size, bool through)) \
	X(int, space, (struct ob_volume *, u64 ino, u32 what, u64 start, u64 end, bool keep)) \
	X(s64, getxattr, (struct ob_volume *, u64 ino, struct ob_bytes name, struct ob_buffer)) \
	X(s64, listxattr, (struct ob_volume *, u64 ino, struct ob_buffer)) \
	X(int, setxattr, (struct ob_volume *, u64 ino, struct ob_bytes name, struct ob_bytes value, u32 flags)) \
	X(void, opened, (struct ob_volume *, u64 ino, const struct ob_process *, u32 mode)) \
	X(void, closed, (struct ob_volume *, u64 ino, const struct ob_process *, const struct ob_read *)) \
	X(void, wrote, (struct ob_volume *, u64 ino, const struct ob_process *, u64 start, u64 end))
#define OB_FIELD(result, name, arguments) result (*name) arguments;
struct ob_ops { OB_CALLS(OB_FIELD) };
/* A set of file system types that a module registers. */
struct ob_driver {
	u32 abi, size;		/* OB_ABI, and the size of ob_ops */
	struct module *owner;
	const struct ob_ops *ops;
	struct list_head list;
};
extern const struct ob_ops ob_ops;	/* table.c: of the Rust library in this module */

/* hyper.c */
extern atomic_long_t ob_live;
extern bool ob_dead;	/* Rust panicked: its state cannot be trusted, and every call fails with EIO */
void ob_damage(struct super_block *, struct ob_bytes);
void ob_await_threads(const struct module *);
bool ob_who(struct ob_process *);
void ob_init_checksums(void);
void ob_exit_checksums(void);

/* The rest of this file is for C only. */
struct ob_sb {
	/* calls to Rust read the gate; it is written when the first three change */
	struct rw_semaphore gate;
	const struct ob_ops *ops;
	struct ob_volume *vol;
	struct ob_driver *driver;
	struct ob_usage limits;
	struct ob_options options;
	u32 unit;			/* granularity of mappings */
	bool panics, stops;		/* errors=panic, errors=remount-ro */
	spinlock_t lock;
	struct list_head ended;		/* writes whose I/O has completed */
	struct work_struct work;
	/* promise.c */
	atomic_t promises[2];
	int pausing;			/* promises below this one wait */
	wait_queue_head_t turn;
	u32 upgrades;			/* how often the driver was replaced */
	s64 pause;			/* the last time, in nanoseconds */
	/* inodes for which the driver gets a `forget` */
	spinlock_t uses_lock;
	struct list_head uses;
	/* drivers.c, sysfs.c */
	struct super_block *sb;
	struct list_head mounts;
	struct kobject kobj;
	struct completion hidden;
	bool is_shown;
};
#define OB_INLINE_FL 0x10000000	/* EXT4_INLINE_DATA_FL */
struct ob_known { u64 start, end, at; int moved; };	/* an extent of written blocks */
struct ob_inode {
	struct inode vfs;
	struct list_head uses;
	struct ob_moment btime;
	struct timespec64 stored_atime;	/* the volume has this one */
	u32 flags, project;
	bool is_through;		/* data goes through the driver */
	u32 unreserved;			/* `upgrades` + 1: that driver reserves nothing for a write within the size */
	atomic_t moved;			/* blocks were freed or moved */
	atomic_t ended;			/* a write has completed */
	struct ob_known known;		/* under i_lock; valid while `moved` is equal */
	struct mutex through;		/* one write through the driver at a time */
};
static inline struct ob_sb *SBI(const struct super_block *sb) { return sb->s_fs_info; }
static inline struct ob_inode *OBI(const struct inode *i) { return container_of(i, struct ob_inode, vfs); }

/*
 * Every call to Rust on a mounted volume is one of these: GATED(sb, lookup, ...) calls `lookup` of the driver. A thread that ended
 * in a panic keeps the gate, and a writer may wait for it, so a call after that must not wait, too.
 */
#define GATED(sb, op, ...) ({ \
	struct ob_sb *s_ = SBI(sb); \
	__typeof__(s_->ops->op(s_->vol, ##__VA_ARGS__)) r_ = -EIO; \
	if (likely(!READ_ONCE(ob_dead))) { \
		down_read(&s_->gate); \
		if (likely(!READ_ONCE(ob_dead))) \
			r_ = s_->ops->op(s_->vol, ##__VA_ARGS__); \
		up_read(&s_->gate); \
	} \
	r_; })
#define GATED_V(sb, op, ...) ({ \
	struct ob_sb *s_ = SBI(sb); \
	if (likely(!READ_ONCE(ob_dead))) { \
		down_read(&s_->gate); \
		if (likely(!READ_ONCE(ob_dead))) \
			s_->ops->op(s_->vol, ##__VA_ARGS__); \
		up_read(&s_->gate); \
	} })
#define NAME(d) ((struct ob_bytes){ (d)->d_name.name, (d)->d_name.len })

static inline struct timespec64 ob_ts(const struct ob_moment *t) { return (struct timespec64){ t->secs, t->nanos }; }
static inline struct ob_moment ob_moment(struct timespec64 t) { return (struct ob_moment){ t.tv_sec, t.tv_nsec, 1 }; }

/* drivers.c: the drivers that are registered, and the volumes that use them */
#define OB_NAME_MAX 32
extern struct mutex ob_lock;	/* of both lists, and of replacing drivers: after it, s_umount is tried only */
extern struct list_head ob_mounts;
int ob_register(struct ob_driver *);
void ob_unregister(struct ob_driver *);
struct ob_driver *ob_find(const char *type, const char *module);
struct ob_driver *ob_get_driver(const char *type);
ssize_t ob_list_drivers(const char *type, const struct ob_driver *used, char *to);
int ob_type_index(const struct ob_driver *, const char *type);
/* promise.c */
enum { OB_CALLER, OB_WRITEBACK };
void ob_begin_promise(struct ob_sb *, int kind);
void ob_end_promise(struct ob_sb *, int kind);
int ob_stop_promises(struct ob_sb *);
void ob_permit_promises(struct ob_sb *);
int ob_promise_again(struct ob_sb *, const struct ob_ops *, struct ob_volume *, struct inode *);
typedef int (*ob_writepages_t)(struct address_space *, struct writeback_control *);
int ob_write_parts(struct address_space *, struct writeback_control *, ob_writepages_t);
/* upgrade.c */
int ob_upgrade(struct ob_sb *, const char *module, unsigned long *patience);
/* How long a request to replace drivers waits for users of s_umount, such as sync(2) and writeback, on all volumes together. */
#define OB_MOUNT_PATIENCE (5 * HZ)
void ob_end_dead_upgrade(void);
/* sysfs.c */
int ob_init_sysfs(void);
void ob_exit_sysfs(void);
int ob_show(struct ob_sb *);
void ob_hide(struct ob_sb *);
/* super.c */
int ob_init_fc(struct fs_context *);
extern const struct fs_parameter_spec ob_parameters[];
struct inode *ob_iget(struct super_block *, u64 ino);
struct inode *ob_new_inode(struct super_block *, const struct ob_attributes *);
void ob_fill(struct inode *, const struct ob_attributes *, bool times);
void ob_refresh(struct inode *);
void ob_refresh_blocks(struct inode *);
long ob_ioctl(struct file *, unsigned int, unsigned long);
#ifdef CONFIG_COMPAT
long ob_compat_ioctl(struct file *, unsigned int, unsigned long);
#endif
/* names.c */
extern const struct inode_operations ob_dir_iops, ob_file_iops, ob_link_iops, ob_special_iops;
extern const struct file_operations ob_dir_fops;
int ob_getattr_op(struct user_namespace *, const struct path *, struct kstat *, u32, unsigned int);
int ob_update_time(struct inode *, struct timespec64 *, int);
int ob_setattr_op(struct user_namespace *, struct dentry *, struct iattr *);
int ob_fileattr_get(struct dentry *, struct fileattr *);
int ob_fileattr_set(struct user_namespace *, struct dentry *, struct fileattr *);
/* data.c */
extern const struct file_operations ob_file_fops;
extern const struct address_space_operations ob_aops;
extern const struct iomap_ops ob_iomap_ops, ob_report_ops;
extern struct workqueue_struct *ob_wq;
void ob_ended(struct work_struct *);
int ob_fsync(struct file *, loff_t, loff_t, int);
int ob_set_size(struct inode *, loff_t);
int ob_grow(struct inode *, loff_t from, loff_t to);
/* history.c */
int ob_open_file(struct inode *, struct file *);
int ob_release_file(struct inode *, struct file *);
void ob_note_read(struct file *, loff_t start, loff_t end);
void ob_note_write(struct file *, loff_t start, loff_t end);
/* known.c */
bool ob_known(struct inode *, u64 start, u64 end, struct ob_place *);
int ob_map_known(struct inode *, u64 start, u64 end, struct ob_place *);
/* through.c */
extern const struct address_space_operations ob_through_aops;
vm_fault_t ob_through_mkwrite(struct vm_fault *);
/* space.c */
long ob_fallocate(struct file *, int, loff_t, loff_t);
int ob_fiemap(struct inode *, struct fiemap_extent_info *, u64, u64);
loff_t ob_llseek(struct file *, loff_t, int);
/* xattr.c */
extern const struct xattr_handler *ob_xattrs[];
ssize_t ob_listxattr_op(struct dentry *, char *, size_t);
struct posix_acl *ob_get_acl(struct inode *, int, bool);
int ob_set_acl(struct user_namespace *, struct inode *, struct posix_acl *, int);
int ob_store_acl(struct inode *, struct posix_acl *, int);
int ob_init_security(struct inode *, struct inode *dir, const struct qstr *);
