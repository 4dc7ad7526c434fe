//! Hash trees of dm-verity, with which Linux verifies the blocks of another partition when it reads them.
//!
//! Layout: the super block in the first block, then the levels of the tree, from the root to the leaves. A block of the
//! tree contains the hashes of 128 blocks of the next level, or of the data. The root hash is the hash of the first
//! level, or of the only block of data. A hash is the SHA-256 of the salt and the block (hash type 1).
//! Source: cryptsetup, *lib/verity/verity.c* `struct verity_sb`; Linux,
//! *Documentation/admin-guide/device-mapper/verity.rst* and *drivers/md/dm-verity-target.c* `verity_ctr` for the order
//! of the levels.

use std::ops::Range;

use obento_block::BlockDevice;
use obento_driver::FormatError;
use obento_host::build::FreshFile;
use sha2::{Digest as _, Sha256};

use super::content::rounded;
use super::{BuildFailure, DiskSettings, Guid, PartitionContent, PartitionSettings, PartitionSize, numbered};

/// Size of a block of data and of the tree.
const BLOCK: u64 = 4096;
/// Number of hashes in a block.
const PER_BLOCK: u64 = BLOCK / size_of::<Hash>() as u64;
/// Maximum size of a salt in bytes: `struct verity_sb`.
const SALT_MAX: usize = 256;
/// Number of bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// A hash of a block.
pub type Hash = [u8; 32];

/// Checks that each hash tree refers to another partition that can have one, and that no two trees refer to the same
/// partition. Fails with `Layout`.
pub(super) fn expect_valid(settings: &DiskSettings) -> Result<(), BuildFailure> {
    for (at, partition) in settings.partitions.iter().enumerate() {
        let PartitionContent::Verity { data, salt, .. } = &partition.content else { continue };
        let why = match settings.partitions.get(*data).map(|of| &of.content) {
            None => "a hash tree refers to a partition that does not exist".to_owned(),
            Some(PartitionContent::Verity { .. }) => "a hash tree refers to another hash tree".to_owned(),
            // The root hash determines the GUID of the data, so that two trees would request different GUIDs.
            _ if settings.partitions.iter().take(at).any(|other| other.content.verifies(*data)) => {
                "two hash trees refer to the same partition".to_owned()
            }
            _ if salt.as_ref().is_some_and(|salt| salt.len() > SALT_MAX) => {
                format!("the salt has more than {SALT_MAX} bytes")
            }
            _ => continue,
        };
        return Err(numbered(settings, at, BuildFailure::Layout { why }));
    }
    Ok(())
}

/// Returns the length of the hash tree of `data`, which has `len` bytes before its end is aligned. Fails with
/// `Layout` if the length is not known yet.
pub(super) fn len_of(data: &PartitionSettings, len: u64) -> Result<u64, BuildFailure> {
    match (data.size, data.offset) {
        (PartitionSize::Rest, _) => {
            let why = "the hash tree of a partition with the size \"rest\" requires a size".to_owned();
            Err(BuildFailure::Layout { why })
        }
        (_, Some(_)) => Ok(tree_len(len.next_multiple_of(512) / BLOCK)),
        (_, None) => Ok(tree_len(rounded(len) / BLOCK)),
    }
}

/// Checks that the hash trees fit in their partitions. Fails with `TooSmall` or `Layout`.
pub(super) fn expect_room(settings: &DiskSettings, ranges: &[Range<u64>]) -> Result<(), BuildFailure> {
    for (at, data, ..) in trees(settings) {
        let len = |range: &Range<u64>| range.end - range.start;
        let (data, size) = (len(&ranges[data]), len(&ranges[at]));
        let needed = tree_len(data / BLOCK);
        if !data.is_multiple_of(BLOCK) || data == 0 {
            let why = format!("the length of the verified partition is not a multiple of {BLOCK} bytes");
            return Err(numbered(settings, at, BuildFailure::Layout { why }));
        }
        if size < needed {
            return Err(numbered(settings, at, BuildFailure::TooSmall { size, needed }));
        }
    }
    Ok(())
}

/// Writes the hash trees of a disk whose other contents are complete, and returns the root hash of each tree.
/// If no GUID is requested for a partition, its GUID is derived from the root hash. The first half is the
/// GUID of the data, and the second half the GUID of the tree (*Discoverable Partitions Specification*).
pub(super) fn write(
    settings: &DiskSettings,
    ranges: &[Range<u64>],
    guids: &mut [Guid],
    fresh: &FreshFile,
) -> Result<Vec<Option<Hash>>, BuildFailure> {
    let mut roots = vec![None; ranges.len()];
    for (at, data, salt, uuid) in trees(settings) {
        let drawn = *guids[at].as_bytes();
        let salt = salt.map_or_else(|| derived_salt(drawn), <[u8]>::to_vec);
        let uuid = uuid.unwrap_or(drawn);
        let device = fresh.device();
        let root = Tree::write(device, ranges[data].clone(), ranges[at].start, (&salt, uuid));
        let root = root.map_err(|error| numbered(settings, at, FormatError::from(error).into()))?;
        let (first, second) = root.split_at(16);
        for (at, half) in [(data, first), (at, second)] {
            if settings.partitions[at].uuid.is_none() {
                guids[at] = Guid::from_u128(half.iter().fold(0, |all, &byte| all << 8 | u128::from(byte)));
            }
        }
        roots[at] = Some(root);
    }
    Ok(roots)
}

/// Returns a salt that depends only on the GUID of the partition. Unless that GUID is requested, it is
/// derived from the layout of the disk and the identities of its contents.
fn derived_salt(guid: [u8; 16]) -> Vec<u8> {
    Sha256::new().chain_update(b"obento verity salt 1").chain_update(guid).finalize().to_vec()
}

/// The position of a hash tree, that of its data, its salt and its UUID.
type Requested<'s> = (usize, usize, Option<&'s [u8]>, Option<[u8; 16]>);

impl PartitionContent {
    /// Returns whether this is a hash tree of the partition at position `of`.
    fn verifies(&self, of: usize) -> bool {
        matches!(self, Self::Verity { data, .. } if *data == of)
    }
}

fn trees(settings: &DiskSettings) -> impl Iterator<Item = Requested<'_>> {
    let partitions = settings.partitions.iter().enumerate();
    partitions.filter_map(|(at, partition)| match &partition.content {
        PartitionContent::Verity { data, salt, uuid } => Some((at, *data, salt.as_deref(), *uuid)),
        _ => None,
    })
}

/// Returns the number of blocks of each level above `data` blocks of data. The level of the root is the last one.
fn levels(data: u64) -> Vec<u64> {
    let above = |&count: &u64| (count > 1).then(|| count.div_ceil(PER_BLOCK));
    std::iter::successors(Some(data), above).skip(1).collect()
}

/// Returns the length of the super block and the tree in bytes.
fn tree_len(data: u64) -> u64 {
    let blocks = levels(data).iter().fold(1_u64, |sum, count| sum.saturating_add(*count));
    blocks.saturating_mul(BLOCK)
}

/// A tree that is written while the data is read.
struct Tree<'d> {
    device: &'d dyn BlockDevice,
    /// The state after the salt.
    salted: Sha256,
    /// The levels; the leaves are the first one.
    levels: Vec<Level>,
    root: Hash,
}

/// The block of a level that is not full yet.
struct Level {
    bytes: Vec<u8>,
    /// The place of the block on the device.
    at: u64,
}

impl<'d> Tree<'d> {
    /// Writes the super block and the tree of `data` to byte `start`, and returns the root hash. Fails if the device
    /// fails.
    fn write(
        device: &'d dyn BlockDevice,
        data: Range<u64>,
        start: u64,
        (salt, uuid): (&[u8], [u8; 16]),
    ) -> obento_base::Result<Hash> {
        let blocks = (data.end - data.start) / BLOCK;
        let mut end = start + tree_len(blocks);
        let levels = levels(blocks).into_iter().map(|count| {
            end -= count * BLOCK;
            Level { bytes: Vec::new(), at: end }
        });
        let levels = levels.collect();
        let mut tree = Self { device, salted: Sha256::new_with_prefix(salt), levels, root: Hash::default() };
        tree.add_data(data)?;
        tree.finish()?;
        device.write_at(start, &super_block(blocks, salt, uuid))?;
        Ok(tree.root)
    }

    fn add_data(&mut self, data: Range<u64>) -> obento_base::Result<()> {
        let zeros = vec![0; BLOCK as usize];
        let hash_of_zeros = self.hash(&zeros);
        let mut buffer = vec![0; CHUNK];
        for at in data.clone().step_by(CHUNK) {
            let len = usize::try_from(data.end - at).map_or(CHUNK, |left| left.min(CHUNK));
            let read = &mut buffer[..len];
            self.device.read_at(at, read)?;
            for block in read.chunks_exact(BLOCK as usize) {
                let hash = if *block == *zeros { hash_of_zeros } else { self.hash(block) };
                self.add(hash)?;
            }
        }
        Ok(())
    }

    fn hash(&self, block: &[u8]) -> Hash {
        self.salted.clone().chain_update(block).finalize().into()
    }

    /// Adds the hash of the next block of data.
    fn add(&mut self, mut hash: Hash) -> obento_base::Result<()> {
        for level in 0..self.levels.len() {
            let bytes = &mut self.levels[level].bytes;
            bytes.extend(hash);
            if bytes.len() < BLOCK as usize {
                return Ok(());
            }
            hash = self.write_block(level)?;
        }
        self.root = hash;
        Ok(())
    }

    /// Writes the blocks that are not full.
    fn finish(&mut self) -> obento_base::Result<()> {
        let mut below = None;
        for level in 0..self.levels.len() {
            self.levels[level].bytes.extend(below.take().into_iter().flatten());
            if !self.levels[level].bytes.is_empty() {
                below = Some(self.write_block(level)?);
            }
        }
        self.root = below.unwrap_or(self.root);
        Ok(())
    }

    /// Writes the block of a level, and returns its hash.
    fn write_block(&mut self, level: usize) -> obento_base::Result<Hash> {
        let level = &mut self.levels[level];
        let mut bytes = std::mem::take(&mut level.bytes);
        bytes.resize(BLOCK as usize, 0);
        self.device.write_at(level.at, &bytes)?;
        level.at += BLOCK;
        Ok(self.hash(&bytes))
    }
}

/// Returns `struct verity_sb`.
fn super_block(data_blocks: u64, salt: &[u8], uuid: [u8; 16]) -> Vec<u8> {
    const VERSION: u32 = 1;
    const HASH_TYPE: u32 = 1;
    let mut bytes = b"verity\0\0".to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(HASH_TYPE.to_le_bytes());
    bytes.extend(uuid);
    bytes.extend(b"sha256");
    bytes.resize(64, 0);
    bytes.extend((BLOCK as u32).to_le_bytes());
    bytes.extend((BLOCK as u32).to_le_bytes());
    bytes.extend(data_blocks.to_le_bytes());
    bytes.extend((salt.len() as u16).to_le_bytes());
    bytes.resize(88, 0);
    bytes.extend(salt);
    bytes.resize(512, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_as_many_levels_as_its_data_needs() {
        assert_eq!(levels(1), [0; 0]);
        assert_eq!(levels(2), [1]);
        assert_eq!(levels(128), [1]);
        assert_eq!(levels(129), [2, 1]);
        assert_eq!(levels(128 * 128), [128, 1]);
        assert_eq!(levels(128 * 128 + 1), [129, 2, 1]);
        assert_eq!(tree_len(129), 4 * BLOCK);
    }
}
