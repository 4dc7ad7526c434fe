//! The structures on disk, and nothing else. All integers are little-endian.

use obento_base::crc::crc32c;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a volume begins with.
pub const MAGIC: [u8; 8] = *b"twins  1";
/// Bytes of a page, the unit in which files have bytes.
pub const PAGE: usize = 4096;
/// Where root 0 and root 1 are, and the first of the slots.
pub const ROOTS: [u64; 2] = [0, PAGE as u64];
pub const SLOTS: u64 = 2 * PAGE as u64;

/// Describes a state of the volume: what slot of the same number holds, if no root has a higher `sequence`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawRoot {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// CRC-32C of this structure with zeros here.
    pub checksum: U32,
    /// CRC-32C of the state.
    pub state_checksum: U32,
    /// Counts the states; even ones are in slot 0.
    pub sequence: U64,
    /// Bytes of the state.
    pub state_len: U64,
    /// Bytes of the volume.
    pub len: U64,
    /// The highest inode number that was ever given.
    pub last: U64,
    /// Of the volume.
    pub uuid: [u8; 16],
}
const _: () = assert!(size_of::<RawRoot>() == 64);

/// An inode. Behind it are `count` entries, pages or bytes of a target, as its kind has it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawInode {
    /// Its number.
    pub ino: U64,
    /// Its bytes, holes included.
    pub size: U64,
    /// How often it changed.
    pub change: U64,
    /// What is behind it.
    pub count: U64,
    /// Last access, change of the data, change, and creation.
    pub seconds: [I64; 4],
    /// The same, nanoseconds.
    pub nanos: [U32; 4],
    /// Kind and permissions, as `st_mode` has them.
    pub mode: U16,
    /// Zero.
    pub reserved: U16,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number, major and minor.
    pub rdev: [U32; 2],
    /// Flags, as Linux has them.
    pub flags: U32,
}
const _: () = assert!(size_of::<RawInode>() == 104);

/// An entry of a directory. Behind it are `len` bytes of a name.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawEntry {
    /// The inode.
    pub ino: U64,
    /// Bytes of the name.
    pub len: U16,
}
const _: () = assert!(size_of::<RawEntry>() == 10);

/// Bytes of a file; where it has no page, it has a hole.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawPage {
    /// Which page of the file.
    pub index: U64,
    /// Zeros past the end of the file.
    pub bytes: [u8; PAGE],
}

impl RawRoot {
    pub(crate) fn new(len: u64, uuid: [u8; 16]) -> Self {
        Self { magic: MAGIC, len: len.into(), uuid, ..Self::new_zeroed() }
    }

    /// What its checksum is to be.
    pub(crate) fn sum(&self) -> u32 {
        crc32c(!0, Self { checksum: 0.into(), ..*self }.as_bytes())
    }

    /// Which slot it describes.
    pub(crate) fn slot(&self) -> usize {
        (self.sequence.get() % 2) as usize
    }

    /// Bytes of a slot.
    pub(crate) fn slot_len(&self) -> u64 {
        self.len.get().saturating_sub(SLOTS) / 2 / PAGE as u64 * PAGE as u64
    }

    /// Where the state is.
    pub(crate) fn state_at(&self) -> u64 {
        SLOTS + self.slot() as u64 * self.slot_len()
    }
}

/// Gives both roots the checksums of what is there, so that a test of damage comes further than to those.
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

/// A volume whose state is `state`, whatever that says, under right checksums: so a fuzzer's bytes reach what decodes them.
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

/// The state that holds on a sound `volume`, which [`volume_of`] makes a volume of.
pub fn state_of(volume: &[u8]) -> Vec<u8> {
    let roots = ROOTS.map(|at| RawRoot::read_from_prefix(&volume[at as usize..]).expect("a root").0);
    let root = roots.into_iter().filter(|root| root.magic == MAGIC).max_by_key(|root| root.sequence.get());
    let root = root.expect("a sound volume");
    volume[root.state_at() as usize..][..root.state_len.get() as usize].to_vec()
}
