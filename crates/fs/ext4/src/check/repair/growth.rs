//! Commits the growth of a volume as a repair commits its changes.

use alloc::sync::Arc;

use obento_base::wire::IntoBytes;
use obento_base::{Error, Result};
use obento_block::BlockDevice;
use obento_driver::CheckOptions;

use super::commit::Target;
use super::edits::{Copy, Edits};
use crate::locate;

/// Writes the changes of `copy`, in which the volume has its new size, to the device: as one transaction if the journal
/// can take them, and otherwise in place, while the volume is marked as having errors. With `renews_inode`, the resize
/// inode is first adapted to the new size.
///
/// # Errors
///
/// - `Invalid`: the resize inode has no usable block, or the super block contradicts its backups.
/// - `Corrupt`: the volume is damaged.
/// - The device failed.
pub(crate) fn commit_growth(
    device: &Arc<dyn BlockDevice>,
    options: &CheckOptions,
    copy: &Arc<Copy>,
    renews_inode: bool,
) -> Result<()> {
    let mut edits = Edits::open(copy, options)?;
    let sb = locate::find(&**copy)?.super_block;
    let is_same = edits.view.sb.raw.as_bytes() == sb.raw.as_bytes();
    if !is_same || renews_inode && !edits.make_resize_inode()? {
        return Err(Error::Invalid);
    }
    drop(edits);
    Target::new(device, options).commit_at_once(copy)
}
