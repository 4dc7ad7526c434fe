//! The structures on disk. All integers are little-endian.

use obento_base::crc::crc32c;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of a volume.
pub const MAGIC: [u8; 8] = *b"twins  1";
/// The size of a page, the unit of file data.
pub const PAGE: usize = 4096;
/// The positions of root 0 and root 1; the first slot follows.
pub const ROOTS: [u64; 2] = [0, PAGE as u64];
pub const SLOTS: u64 = 2 * PAGE as u64;

/// Describes the contents of the slot with the same number. The root with the higher `sequence` is valid.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRoot {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The CRC-32C of this structure with zeros in this field.
    pub checksum: U32,
    /// The CRC-32C of the slot's contents.
    pub state_checksum: U32,
    /// The number of syncs; even ones are in slot 0.
    pub sequence: U64,
    /// The length of the slot's contents in bytes.
    pub state_len: U64,
    /// The length of the volume in bytes.
    pub len: U64,
    /// The highest inode number that was ever assigned.
    pub last: U64,
    /// The UUID of the volume.
    pub uuid: [u8; 16],
}
const _: () = assert!(size_of::<RawRoot>() == 64);

/// An inode. It is followed by `count` entries, pages, or bytes of a symbolic link target, depending on the type.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawInode {
    /// The inode number.
    pub ino: U64,
    /// The size in bytes, including holes.
    pub size: U64,
    /// The number of changes.
    pub change: U64,
    /// The number of following items.
    pub count: U64,
    /// The times of the last access, of the last change of data, of the last change, and of the creation.
    pub seconds: [I64; 4],
    /// The nanoseconds of these times.
    pub nanos: [U32; 4],
    /// The type and the permissions, as in `st_mode`.
    pub mode: U16,
    /// Zero.
    pub reserved: U16,
    /// The owner.
    pub uid: U32,
    /// The group.
    pub gid: U32,
    /// The device number: major and minor.
    pub rdev: [U32; 2],
    /// The flags, with the values of Linux.
    pub flags: U32,
}
const _: () = assert!(size_of::<RawInode>() == 104);

/// An entry of a directory. It is followed by `len` bytes of the name.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawEntry {
    /// The inode.
    pub ino: U64,
    /// The length of the name in bytes.
    pub len: U16,
}
const _: () = assert!(size_of::<RawEntry>() == 10);

/// A page of a file. A page that is not stored is a hole.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawPage {
    /// The index of the page in the file.
    pub index: U64,
    /// The data; zeros after the end of the file.
    pub bytes: [u8; PAGE],
}

impl RawRoot {
    pub(crate) fn new(len: u64, uuid: [u8; 16]) -> Self {
        Self { magic: MAGIC, len: len.into(), uuid, ..Self::new_zeroed() }
    }

    /// Returns the checksum of the root.
    pub(crate) fn sum(&self) -> u32 {
        crc32c(!0, Self { checksum: 0.into(), ..*self }.as_bytes())
    }

    /// Returns the slot that the root describes.
    pub(crate) fn slot(&self) -> usize {
        (self.sequence.get() % 2) as usize
    }

    /// Returns the length of a slot in bytes.
    pub(crate) fn slot_len(&self) -> u64 {
        self.len.get().saturating_sub(SLOTS) / 2 / PAGE as u64 * PAGE as u64
    }

    /// Returns the position of the slot's contents.
    pub(crate) fn state_at(&self) -> u64 {
        SLOTS + self.slot() as u64 * self.slot_len()
    }
}

/// Corrects the checksums of both roots, so that a test of damage reaches the code after the comparison of checksums.
pub fn seal(volume: &mut [u8]) {
    for at in ROOTS.map(|at| at as usize) {
        let Some(Ok(mut root)) =
            volume.get(at..).map(|rest| RawRoot::read_from_prefix(rest).map(|(root, _)| root))
        else {
            return;
        };
        let state = || Some(root.state_at()..root.state_at().checked_add(root.state_len.get())?);
        let state = state().and_then(|state| volume.get(state.start as usize..state.end as usize));
        root.state_checksum = state.map_or(0, |state| crc32c(!0, state)).into();
        root.checksum = root.sum().into();
        volume[at..at + size_of::<RawRoot>()].copy_from_slice(root.as_bytes());
    }
}

/// Returns a volume with the contents `state` and valid checksums, so that a fuzzer's bytes reach the decoders.
pub fn volume_of(state: &[u8]) -> Vec<u8> {
    let slot = state.len().next_multiple_of(PAGE).max(PAGE);
    let mut root = RawRoot::new(SLOTS + 2 * slot as u64, [1; 16]);
    (root.state_len, root.last) = ((state.len() as u64).into(), u64::from(u32::MAX).into());
    let mut volume = vec![0; root.len.get() as usize];
    volume[..size_of::<RawRoot>()].copy_from_slice(root.as_bytes());
    volume[root.state_at() as usize..][..state.len()].copy_from_slice(state);
    seal(&mut volume);
    volume
}

/// Returns the valid contents of a sound `volume`, from which [`volume_of`] creates a volume.
pub fn state_of(volume: &[u8]) -> Vec<u8> {
    let roots = ROOTS.map(|at| RawRoot::read_from_prefix(&volume[at as usize..]).expect("a root").0);
    let root = roots.into_iter().filter(|root| root.magic == MAGIC).max_by_key(|root| root.sequence.get());
    let root = root.expect("a sound volume");
    volume[root.state_at() as usize..][..root.state_len.get() as usize].to_vec()
}
