// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * The last known extent of written blocks of a file, so that a write to them needs no call to the driver.
 *
 * Blocks move only under i_rwsem and invalidate_lock, both taken for writing, and `moved` changes then. Writes and faults that
 * make a page writable have one of these locks, so an extent that they find stays valid until `moved` changes.
 */
#include "obento.h"
#include <linux/spinlock.h>

#define OB_WINDOW (256ULL << 10)	/* how far the first call looks */
#define OB_WINDOW_MAX (1ULL << 30)

/* Whether the range begins with written blocks that are known. Returns them, up to `end`. */
bool ob_known(struct inode *i, u64 start, u64 end, struct ob_place *e)
{
	struct ob_known *k = &OBI(i)->known;
	bool found;

	spin_lock(&i->i_lock);
	found = k->moved == atomic_read(&OBI(i)->moved) && start >= k->start && start < k->end;
	if (found)
		*e = (struct ob_place){ .kind = OB_MAPPED, .at = k->at + (start - k->start), .len = min(end, k->end) - start };
	spin_unlock(&i->i_lock);
	return found;
}
/*
 * Maps the range from `start` for a write, and remembers written blocks, those after `end` included. Each call looks
 * twice as far as the extent that is known already: a format that counts blocks one by one costs little then, too.
 */
int ob_map_known(struct inode *i, u64 start, u64 end, struct ob_place *e)
{
	struct ob_known *k = &OBI(i)->known;
	int err, moved = atomic_read(&OBI(i)->moved);
	u64 unit = SBI(i->i_sb)->unit, size = round_up(i_size_read(i), unit), window = OB_WINDOW, stop;

	spin_lock(&i->i_lock);
	if (k->moved == moved)
		window = clamp(2 * (k->end - k->start), OB_WINDOW, OB_WINDOW_MAX);
	spin_unlock(&i->i_lock);
	err = GATED(i->i_sb, map, i->i_ino, start, max(end, min(start + window, size)), OB_LOOK, e);
	if (err)
		return err;
	if (e->kind == OB_MAPPED) {
		stop = start + round_up(e->len, unit);
		spin_lock(&i->i_lock);
		if (k->moved == moved && start <= k->end && k->start <= stop && start - k->start == e->at - k->at) {
			/* it continues or overlaps the known extent, on the device too */
			if (start < k->start) {
				k->start = start;
				k->at = e->at;
			}
			k->end = max(k->end, stop);
		} else {
			*k = (struct ob_known){ .start = start, .end = stop, .at = e->at, .moved = moved };
		}
		spin_unlock(&i->i_lock);
	}
	e->len = min(e->len, end - start);
	return 0;
}
