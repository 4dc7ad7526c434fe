//! Creating volumes: the areas before the data, a root directory, and the super block.

use alloc::vec;

use obento_base::wire::to_u64;
use obento_base::{FileKind, Generation, Mode};
use obento_block::BlockDevice;
use obento_driver::{Contents, FormatError, FormatOptions, NewNode, erase_signatures};

use crate::{Inode, Inodes, bitmap};

/// Writes an empty volume of `format`. `super_block` is the number and the contents of its super block, which is
/// written last, since it makes the volume valid. Fails if the device fails.
pub fn make<F: Inodes>(
    device: &dyn BlockDevice,
    format: &F,
    (super_block, bytes): (u32, &[u8]),
    options: &FormatOptions,
) -> Result<(), FormatError> {
    let geometry = format.geometry();
    let mut zeros = vec![0; geometry.block_size()];
    // The signature of this format, too.
    erase_signatures(device, options.length_on(device.len())?, options.contents)?;
    let is_zeros = match options.contents {
        Contents::Zeros => true,
        Contents::Unknown => device.punch(0..geometry.offset_of(geometry.size))?,
        Contents::Preserved => false,
    };
    let bitmap =
        geometry.bitmap_start..geometry.bit_place(geometry.size.saturating_sub(1)).0.saturating_add(1);
    // Blocks that are read before they are written, and signatures of previous formats.
    let rest = (super_block.saturating_add(1)..geometry.data_start).filter(|block| !bitmap.contains(block));
    for block in rest.filter(|_| !is_zeros) {
        device.write_at(geometry.offset_of(block), &zeros)?;
    }
    for (at, block) in (0..).zip(bitmap) {
        device.write_at(geometry.offset_of(block), &bitmap::of_new_volume(geometry, at))?;
    }
    if let Some((block, place)) = geometry.inode_place(F::ROOT) {
        let start = geometry.offset_of(block).saturating_add(to_u64(place.start));
        let inode = zeros.get_mut(..place.len()).unwrap_or_default();
        format.encode(&root::<F>(options), inode);
        device.write_at(start, inode)?;
    }
    device.flush()?;
    device.write_at(geometry.offset_of(super_block), bytes)?;
    device.flush()?;
    Ok(())
}

fn root<F: Inodes>(options: &FormatOptions) -> Inode<F::Map> {
    let node = NewNode {
        kind: FileKind::Directory,
        mode: Mode::new(0o755),
        uid: 0,
        gid: 0,
        rdev: Default::default(),
        target: b"",
    };
    let mut root = Inode::new(node.attr(F::ROOT, Generation(1), options.clock.now()));
    root.attr.nlink = 2;
    root.parent = F::ROOT;
    root
}
