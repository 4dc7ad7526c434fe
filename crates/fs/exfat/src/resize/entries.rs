//! Directory entries that refer to clusters.

use obento_base::Error;
use obento_base::wire::{IntoBytes as _, le};
use obento_clusters::Cluster;
use obento_driver::ResizeResult;

use crate::inode::Attributes;
use crate::raw::{RawEntry, RawFile, RawSecondary, kind};
use crate::set::{ALLOCATION, NO_FAT_CHAIN, checksum};

/// The contents of clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// The allocation bitmap.
    Bitmap,
    /// The up-case table.
    UpCase,
    /// A directory.
    Directory,
    /// A file, or data of a vendor.
    File,
}

/// A reference to clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    pub contents: Contents,
    pub first: Cluster,
    /// The length in bytes.
    pub len: u64,
    /// Whether the clusters are contiguous and have no FAT entries.
    pub is_contiguous: bool,
}

/// A function that returns the new value of a reference, or `None` if the reference stays the same.
pub type Change<'c> = &'c mut dyn FnMut(Allocation) -> ResizeResult<Option<Allocation>>;

/// Calls `change` for each reference in the entries of a directory, and stores the new values with the checksums of
/// their sets. Fails with `Invalid` for a set that is cut, or if `change` fails.
pub fn change(entries: &mut [RawEntry], change: Change<'_>) -> ResizeResult<()> {
    let mut rest = entries;
    while let Some(first) = rest.first().filter(|first| first.EntryType != kind::END) {
        let secondaries = match first.EntryType {
            kind::FILE => usize::from(as_kind::<RawFile>(first)?.SecondaryCount),
            _ => 0,
        };
        let parts = rest.split_at_mut_checked(secondaries.saturating_add(1)).ok_or(Error::Invalid)?;
        change_set(parts.0, change)?;
        rest = parts.1;
    }
    Ok(())
}

/// Changes the references of one set, or of one entry that has no set.
fn change_set(set: &mut [RawEntry], change: Change<'_>) -> ResizeResult<()> {
    let mut file: RawFile = as_kind(set.first().ok_or(Error::Invalid)?)?;
    let is_file = file.EntryType == kind::FILE;
    let attributes = Attributes::from_bits_retain(file.FileAttributes.get());
    let is_dir = is_file && attributes.contains(Attributes::DIRECTORY);
    let mut is_changed = false;
    for raw in set.iter_mut() {
        let contents = match raw.EntryType {
            kind::BITMAP => Contents::Bitmap,
            kind::UP_CASE => Contents::UpCase,
            kind::STREAM if is_dir => Contents::Directory,
            kind::STREAM | kind::VENDOR.. => Contents::File,
            _ => continue,
        };
        let Some(old) = allocation(raw, contents)? else { continue };
        if let Some(new) = change(old)? {
            *raw = with(raw, new)?;
            is_changed = true;
        }
    }
    if is_file && is_changed {
        file.SetChecksum = le::U16::new(checksum(set.iter()));
        if let Some(first) = set.first_mut() {
            *first = as_kind_of(file.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns the reference of an entry, if it has one. The flags of the bitmap and of the up-case table are no flags of a
/// secondary entry: the FAT chains both.
fn allocation(raw: &RawEntry, contents: Contents) -> ResizeResult<Option<Allocation>> {
    let fields: RawSecondary = as_kind(raw)?;
    let flags = match contents {
        Contents::Bitmap | Contents::UpCase => ALLOCATION,
        Contents::Directory | Contents::File => fields.GeneralSecondaryFlags,
    };
    let first = Cluster(fields.FirstCluster.get());
    let is_contiguous = flags & NO_FAT_CHAIN != 0;
    let found = Allocation { contents, first, len: fields.DataLength.get(), is_contiguous };
    Ok(Some(found).filter(|found| flags & ALLOCATION != 0 && found.first.0 != 0))
}

/// Returns an entry with another reference.
fn with(raw: &RawEntry, new: Allocation) -> ResizeResult<RawEntry> {
    let mut fields: RawSecondary = as_kind(raw)?;
    fields.FirstCluster = le::U32::new(new.first.0);
    match new.contents {
        Contents::Bitmap => fields.DataLength = le::U64::new(new.len),
        Contents::UpCase => {}
        Contents::Directory | Contents::File => {
            let others = fields.GeneralSecondaryFlags & !NO_FAT_CHAIN;
            fields.GeneralSecondaryFlags = others | if new.is_contiguous { NO_FAT_CHAIN } else { 0 };
        }
    }
    as_kind_of(fields.as_bytes())
}

fn as_kind<T: obento_base::wire::FromBytes>(raw: &RawEntry) -> ResizeResult<T> {
    as_kind_of(raw.as_bytes())
}

fn as_kind_of<T: obento_base::wire::FromBytes>(bytes: &[u8]) -> ResizeResult<T> {
    Ok(T::read_from_bytes(bytes).map_err(|_| Error::Invalid)?)
}
