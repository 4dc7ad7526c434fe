//! Numbers of blocks that operations change, for their credits.

use obento_journal::Credits;

/// An inode's record.
pub const INODE: Credits = Credits(1);
/// Allocating or freeing one run of blocks: its bitmap, and the part of the commit for it.
pub const RUN: Credits = Credits(2);
/// Allocating an inode: its bitmap, its record, a block bitmap that was never written, and the part of the commit
/// for it.
pub const NEW_INODE: Credits = Credits(4);
/// Freeing an inode: its bitmap, its record, and the part of the commit for it.
pub const FREE_INODE: Credits = Credits(3);
/// Adding or removing an orphan: its neighbour's record, or a block of the orphan file; the super block.
pub const ORPHAN: Credits = Credits(2);
/// Maximum credits of [`Writer::append_dir_block`](super::Writer::append_dir_block): the block and its bitmap, then at each level a node, and a new
/// one beside it with its bitmap.
pub const APPEND: Credits = Credits(3 + 4 * 6);
