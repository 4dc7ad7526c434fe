//! Inodes: their bytes, and their conversion for [`obento_inodes`].
//!
//! Invariant: an inode whose `mode` is 0 is free and stores nothing except its generation.

use alloc::string::ToString;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, FromZeros as _, to_u64};
use obento_base::{
    Attr, Corrupt, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Result, Structure, Timestamp,
};
use obento_driver::{Crash, Fact, Limits, StoredProperties, VolumeInfo, for_commands};
use obento_inodes::{Geometry, Inodes};

use crate::dir::NAME_MAX;
use crate::map::{Addrs, FILE_BLOCKS};
use crate::open::probe;
use crate::raw::{BLOCK, RawInode};
use crate::super_block::SuperBlock;

/// An inode in use.
pub(crate) type Inode = obento_inodes::Inode<Addrs>;
/// An inode that may be changed.
pub(crate) type LockedInode<'l> = obento_inodes::LockedInode<'l, Addrs>;

/// Maximum link count: that of `short nlink` in xv6.
const LINK_MAX: u32 = 32_767;
/// A target is in one block, as in the `symlink` laboratory of xv6.
const SYMLINK_MAX: usize = BLOCK - 1;

impl Inodes for SuperBlock {
    type Map = Addrs;
    /// `ROOTINO` of xv6.
    const ROOT: Ino = Ino(1);

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn limits(&self) -> Limits {
        let most = |len| u32::try_from(len).unwrap_or(u32::MAX);
        Limits {
            name_max: most(NAME_MAX),
            symlink_max: most(SYMLINK_MAX),
            link_max: LINK_MAX,
            file_size_max: self.geometry.bytes_of(FILE_BLOCKS),
            time_granularity: 1,
            uid_max: u32::MAX,
            gid_max: u32::MAX,
            keeps: StoredProperties::all(),
            crash: Crash::Whole,
        }
    }

    fn info(&self) -> VolumeInfo {
        let log = || Vec::from([Fact { name: "log blocks", value: self.raw.nlog.to_string() }]);
        VolumeInfo { probe: probe(&self.raw), facts: for_commands(log), ..VolumeInfo::default() }
    }

    fn decode(&self, ino: Ino, bytes: &[u8]) -> Result<Option<Inode>> {
        let Some(raw) = RawInode::read_from_bytes(bytes).ok().filter(|raw| raw.mode.get() != 0) else {
            return Ok(None);
        };
        let kind = FileKind::from_mode(raw.mode.get()).ok_or_else(|| {
            let (block, place) = self.geometry.inode_place(ino).unwrap_or_default();
            let (structure, found) = (Structure::Inode(ino), raw.mode.get().into());
            let offset = u32::try_from(place.start).unwrap_or(0);
            Corrupt::Field { structure, field: "mode", block: block.into(), offset, found }
        })?;
        let rdev = DeviceNumber { major: raw.major.get(), minor: raw.minor.get() };
        let ([a, m, c, b], [na, nm, nc, nb]) = (raw.seconds, raw.nanos);
        let attr = Attr {
            ino,
            generation: Generation(raw.generation.get()),
            kind,
            mode: Mode::new(raw.mode.get()),
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            rdev: if kind.is_device() { rdev } else { DeviceNumber::default() },
            size: raw.size.get(),
            blocks: u64::from(raw.blocks.get()).saturating_mul(SECTORS),
            block_size: 4096,
            atime: Timestamp::new(a.get(), na.get()),
            mtime: Timestamp::new(m.get(), nm.get()),
            ctime: Timestamp::new(c.get(), nc.get()),
            btime: Some(Timestamp::new(b.get(), nb.get())),
            flags: FileFlags::from_bits_retain(raw.flags.get()),
            change: raw.change.get(),
            project: 0,
        };
        let map = Addrs(raw.addrs.map(|number| number.get()));
        Ok(Some(Inode { attr, parent: Ino(raw.parent.get().into()), map }))
    }

    fn encode(&self, inode: &Inode, bytes: &mut [u8]) {
        let (attr, Ok(raw)) = (&inode.attr, RawInode::mut_from_bytes(bytes)) else { return };
        raw.mode.set(attr.st_mode());
        raw.major.set(attr.rdev.major);
        raw.minor.set(attr.rdev.minor);
        raw.nlink.set(attr.nlink);
        raw.uid.set(attr.uid);
        raw.gid.set(attr.gid);
        raw.size.set(attr.size);
        raw.generation.set(attr.generation.0);
        raw.parent.set(u32::try_from(inode.parent.0).unwrap_or(0));
        raw.flags.set(attr.flags.bits());
        raw.blocks.set(u32::try_from(attr.blocks / SECTORS).unwrap_or(u32::MAX));
        raw.change.set(attr.change);
        let times = [attr.atime, attr.mtime, attr.ctime, attr.btime.unwrap_or(attr.ctime)];
        raw.seconds = times.map(|time| time.secs().into());
        raw.nanos = times.map(|time| time.nanos().into());
        raw.addrs = inode.map.0.map(Into::into);
    }

    fn next_generation(&self, bytes: &[u8]) -> Generation {
        let generation = RawInode::read_from_bytes(bytes).map_or(0, |raw| raw.generation.get());
        Generation(generation.wrapping_add(1))
    }

    fn clear(&self, bytes: &mut [u8]) {
        if let Ok(raw) = RawInode::mut_from_bytes(bytes) {
            *raw = RawInode { generation: raw.generation, ..RawInode::new_zeroed() };
        }
    }
}

/// Size of a block in the unit of [`Attr::blocks`].
const SECTORS: u64 = to_u64(BLOCK) / 512;
