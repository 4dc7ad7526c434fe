//! The attributes of a file.

use alloc::vec;
use alloc::vec::Vec;

use obento_base::wire::{FromBytes as _, to_u64, to_usize};
use obento_base::{Attr, DeviceNumber, Error, FileFlags, FileKind, Generation, Mode, Result};

use super::options::DEFAULT_MASK;
use super::volume::Volume;
use crate::attribute::name::FileName;
use crate::attribute::{Attribute, Body};
use crate::index::NAMES;
use crate::layout::bytes::u32_at;
use crate::layout::raw::{RawStandardInformation, file, kind};
use crate::mft::File;
use crate::reparse::{self, Reparse};
use crate::security::descriptor::Descriptor;
use crate::special::{self, Special, Wsl};
use crate::time;

/// Owner, group and permissions that a security descriptor grants.
pub type Granted = (Option<u32>, Option<u32>, u16);

/// What the attributes of a file say about it.
pub struct Facts {
    /// Type.
    pub kind: FileKind,
    /// Reparse point.
    pub reparse: Option<Reparse>,
    /// Special file of Interix.
    pub special: Option<Special>,
    /// Attributes of WSL.
    pub wsl: Wsl,
    times: [u64; 4],
    flags: u32,
    security: u32,
    names: u32,
    size: u64,
    stored: u64,
}

impl Facts {
    /// Collects the facts of a file.
    ///
    /// # Errors
    ///
    /// - `Corrupt`: a record of the file is damaged.
    pub fn of(volume: &Volume, file: &File) -> Result<Self> {
        let mut facts = Self {
            kind: FileKind::Regular,
            reparse: None,
            special: None,
            wsl: Wsl::default(),
            times: [0; 4],
            flags: 0,
            security: 0,
            names: 0,
            size: 0,
            stored: 0,
        };
        let is_directory = file.base.is_directory();
        let mut points = false;
        for attribute in file.attributes() {
            let attribute = attribute?;
            match attribute.kind {
                kind::STANDARD_INFORMATION => facts.standard(&attribute),
                kind::FILE_NAME => {
                    let name = attribute.resident().and_then(FileName::decode);
                    let counts = name.is_some_and(|name| !name.is_short());
                    facts.names = facts.names.saturating_add(counts.into());
                }
                kind::DATA => facts.data(&attribute, attribute.name.is_empty() && !is_directory),
                kind::INDEX_ALLOCATION if attribute.name == NAMES => facts.data(&attribute, true),
                kind::INDEX_ROOT if attribute.name == NAMES && facts.size == 0 => {
                    facts.data(&attribute, true)
                }
                kind::REPARSE_POINT | kind::EA => points = true,
                _ => {}
            }
        }
        if points {
            facts.points(volume, file)?;
        }
        let by_tag = facts.reparse.as_ref().and_then(Reparse::kind);
        facts.kind = match by_tag {
            Some(kind) => kind,
            None if is_directory => FileKind::Directory,
            None => facts.interix(volume, file)?,
        };
        Ok(facts)
    }

    /// Returns whether the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the attributes of MS-FSCC.
    pub fn file_attributes(&self) -> u32 {
        self.flags
    }

    fn standard(&mut self, attribute: &Attribute<'_>) {
        let Some(value) = attribute.resident() else { return };
        let Ok((raw, rest)) = RawStandardInformation::ref_from_prefix(value) else { return };
        self.times = raw.times.map(|time| time.get());
        self.flags = raw.flags.get();
        // Owner for quotas, then the number of the descriptor; since version 3.0.
        self.security = u32_at(rest, 4).unwrap_or(0);
    }

    fn data(&mut self, attribute: &Attribute<'_>, is_size: bool) {
        let (size, stored) = match attribute.body {
            Body::Resident(value) => (to_u64(value.len()), 0),
            Body::NonResident(part) if part.lowest == 0 => {
                (part.sizes.size, part.sizes.stored.unwrap_or(part.sizes.allocated))
            }
            Body::NonResident(_) => return,
        };
        if is_size {
            self.size = size;
        }
        self.stored = self.stored.saturating_add(stored);
    }

    fn points(&mut self, volume: &Volume, file: &File) -> Result<()> {
        if let Some(value) = file.value(volume.mft(), kind::REPARSE_POINT, &[])? {
            let value = volume.read_value(file.ino(), value, reparse::LEN_MAX)?;
            self.reparse = Reparse::decode(&value);
        }
        if let Some(value) = file.value(volume.mft(), kind::EA, &[])? {
            self.wsl = Wsl::decode(&volume.read_value(file.ino(), value, special::EA_MAX)?);
        }
        Ok(())
    }

    /// Returns the kind of a file that may be a special file of Interix.
    fn interix(&mut self, volume: &Volume, file: &File) -> Result<FileKind> {
        let size = to_usize(self.size);
        if self.flags & file::SYSTEM == 0 || size > special::SPECIAL_MAX || self.reparse.is_some() {
            return Ok(FileKind::Regular);
        }
        let Some(value) = file.value(volume.mft(), kind::DATA, &[])? else { return Ok(FileKind::Regular) };
        let contents = volume.read_value(file.ino(), value, to_u64(special::SPECIAL_MAX));
        let contents = contents.unwrap_or_else(|_| vec![0; size]);
        self.special = Special::decode(&contents, self.size);
        Ok(self.special.as_ref().map_or(FileKind::Regular, Special::kind))
    }

    /// Returns the target of a link.
    ///
    /// # Errors
    ///
    /// 1. `Invalid`: the file is not a link.
    /// 2. `Corrupt`: the link is damaged.
    pub fn target(&self, volume: &Volume, file: &File) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let damaged = || file.base.field("ReparsePoint", 0, 0);
        let target = match (&self.special, &self.reparse) {
            (Some(Special::Link(target)), _) => target.clone(),
            (_, Some(reparse)) => match reparse.target().ok_or_else(damaged)? {
                reparse::Target::FromRoot(path) => {
                    reparse::Target::FromRoot(path).seen_from(volume.depth_of(file)?)
                }
                exact @ reparse::Target::Exact(_) => exact.seen_from(0),
            },
            _ => return Err(damaged()),
        };
        let is_valid = !target.is_empty() && !target.contains(&0);
        if is_valid { Ok(target) } else { Err(damaged()) }
    }

    fn device(&self) -> DeviceNumber {
        match &self.special {
            Some(Special::Device(_, number)) => *number,
            _ if self.kind.is_device() => self.wsl.device.unwrap_or_default(),
            _ => DeviceNumber::default(),
        }
    }

    /// Returns owner, group and permissions.
    fn owner(&self, volume: &Volume, file: &File) -> (u32, u32, Mode) {
        let options = &volume.options;
        let mask = if self.is_directory() { options.dir_mask } else { options.file_mask };
        let granted = volume.granted(self.security, file);
        let (by_uid, by_gid, by_list) = granted.unwrap_or((None, None, 0));
        let uid = options.uid.or(self.wsl.uid).or(by_uid).unwrap_or(0);
        let gid = options.gid.or(self.wsl.gid).or(by_gid).unwrap_or(0);
        let all = if self.kind == FileKind::Symlink {
            Mode::new(0o777)
        } else {
            Mode::new(0o777).without(DEFAULT_MASK)
        };
        let mode = match (mask, self.wsl.mode, granted) {
            _ if self.kind == FileKind::Symlink => all,
            (Some(mask), ..) => Mode::new(0o777).without(mask),
            (_, Some(mode), _) => return (uid, gid, Mode::new(u16::try_from(mode & 0o7777).unwrap_or(0))),
            (.., Some(_)) => Mode::new(by_list),
            _ => all,
        };
        let is_fixed = self.flags & file::READ_ONLY != 0 && self.kind == FileKind::Regular;
        // ntfs-3g sets the attribute of a file that its owner cannot write, whatever others can.
        let fixed = Mode::new(if granted.is_some() && mask.is_none() { 0o200 } else { 0o222 });
        (uid, gid, if is_fixed { mode.without(fixed) } else { mode })
    }

    /// Returns the attributes of the contract.
    pub fn attr(&self, volume: &Volume, file: &File) -> Result<Attr> {
        let (uid, gid, mode) = self.owner(volume, file);
        let [btime, mtime, ctime, atime] = self.times.map(time::decode);
        let size = match self.kind {
            FileKind::Symlink => to_u64(self.target(volume, file)?.len()),
            FileKind::Regular | FileKind::Directory => self.size,
            _ => 0,
        };
        let mut flags = FileFlags::empty();
        flags.set(FileFlags::CASEFOLD, self.is_directory());
        flags.set(FileFlags::COMPRESS, self.flags & file::COMPRESSED != 0);
        flags.set(FileFlags::ENCRYPTED, self.flags & file::ENCRYPTED != 0);
        let [.., change, _] = self.times;
        Ok(Attr {
            ino: file.ino(),
            generation: Generation(file.base.header().sequence.get().into()),
            kind: self.kind,
            mode,
            nlink: if self.is_directory() { 1 } else { self.names.max(1) },
            uid,
            gid,
            rdev: self.device(),
            size,
            blocks: self.stored.div_ceil(512),
            block_size: volume.geometry().cluster_size.max(4096),
            atime,
            mtime,
            ctime,
            btime: Some(btime),
            flags,
            change,
            project: 0,
        })
    }
}

impl Volume {
    /// Returns what the security descriptor of a file grants. `None` if it has none that can be read.
    fn granted(&self, id: u32, file: &File) -> Option<Granted> {
        if id == 0 {
            let own = file.value(self.mft(), kind::SECURITY_DESCRIPTOR, &[]).ok()??;
            let bytes = self.read_value(file.ino(), own, 64 << 10).ok()?;
            return self.decode_granted(&bytes);
        }
        let key = u64::from(id);
        if let Some(granted) = self.permissions.get(&key) {
            return granted;
        }
        let bytes = self.store.as_ref()?.get(self, id);
        let granted = bytes.ok().and_then(|bytes| self.decode_granted(&bytes));
        self.permissions.put(key, granted)
    }

    fn decode_granted(&self, bytes: &[u8]) -> Option<Granted> {
        let found = Descriptor::decode(bytes)?;
        let uid = found.owner.and_then(|sid| self.users.uid(sid));
        let gid = found.group.and_then(|sid| self.users.gid(sid));
        Some((uid, gid, found.permissions()))
    }

    /// Returns the security descriptor of a file as it is stored.
    pub(super) fn descriptor(&self, file: &File) -> Result<Option<Vec<u8>>> {
        if let Some(own) = file.value(self.mft(), kind::SECURITY_DESCRIPTOR, &[])? {
            return self.read_value(file.ino(), own, 64 << 10).map(Some);
        }
        let security = Facts::of(self, file)?.security;
        let Some(store) = self.store.as_ref().filter(|_| security != 0) else { return Ok(None) };
        match store.get(self, security) {
            Err(Error::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }
}
