//! Inodes: found by number, taken from the first that is free, given back with all that they hold.
//!
//! Invariant: an inode whose `mode` is not 0 and whose `nlink` is 0 waits for its `forget`, or for the next open after a
//! crash: xv6-riscv `ireclaim`.

use obento_base::wire::{FromBytes as _, IntoBytes as _, to_u64};
use obento_base::{
    Attr, Corrupt, DeviceNumber, Error, FileFlags, FileKind, Generation, Ino, Mode, Result, Structure,
    Timestamp,
};
use obento_driver::{NewNode, SetAttr, TimeChange};

use crate::op::Op;
use crate::raw::{BLOCK, RawInode};

/// Which of the four times of an inode.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Access,
    Modify,
    Change,
    Birth,
}

/// An inode in use.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) raw: RawInode,
}

impl Op<'_> {
    /// Inode `ino`. Errors: Stale if it is not in use; Corrupt.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode> {
        let raw = self.raw_inode(ino)?.filter(|raw| raw.mode.get() != 0).ok_or(Error::Stale)?;
        let kind = FileKind::from_mode(raw.mode.get()).ok_or_else(|| {
            let (block, offset) = self.sb().inode_place(ino).unwrap_or_default();
            let (structure, found) = (Structure::Inode(ino), raw.mode.get().into());
            let offset = u32::try_from(offset).unwrap_or(0);
            Corrupt::Field { structure, field: "mode", block: block.into(), offset, found }
        })?;
        Ok(Inode { ino, kind, raw })
    }

    /// The bytes of inode `ino`, in use or not; `None` if there is no such number. Errors: those of the device.
    pub(crate) fn raw_inode(&self, ino: Ino) -> Result<Option<RawInode>> {
        let Some((block, at)) = self.sb().inode_place(ino) else { return Ok(None) };
        let bytes = self.get(block)?;
        Ok(bytes.get(at..).and_then(|rest| RawInode::read_from_prefix(rest).ok()).map(|(raw, _)| raw))
    }

    /// Writes an inode back. Errors: those of the device.
    pub(crate) fn put(&mut self, inode: &Inode) -> Result<()> {
        let (block, at) = self.sb().inode_place(inode.ino).ok_or(Error::Stale)?;
        let bytes = self.edit(block)?.get_mut(at..).unwrap_or_default();
        bytes.iter_mut().zip(inode.raw.as_bytes()).for_each(|(to, from)| *to = *from);
        Ok(())
    }

    /// A new inode, not named yet. Errors: NoSpace; those of the device.
    pub(crate) fn new_inode(&mut self, node: &NewNode<'_>, dir: &Inode, now: Timestamp) -> Result<Inode> {
        let (next, end) = (self.counters.next_inode.max(1), self.sb().inodes);
        let room = self.counters.free_inodes.checked_sub(1).ok_or(Error::NoSpace)?;
        for number in (next..end).chain(1..next) {
            let ino = Ino(number.into());
            let Some(old) = self.raw_inode(ino)?.filter(|raw| raw.mode.get() == 0) else { continue };
            self.counters.free_inodes = room;
            self.counters.next_inode = number.saturating_add(1);
            let mut raw = blank(old.generation.get().wrapping_add(1));
            raw.mode.set(node.kind.mode_bits() | node.mode.bits());
            raw.uid.set(node.uid);
            raw.gid.set(node.gid);
            if node.kind.is_device() {
                raw.major.set(node.rdev.major);
                raw.minor.set(node.rdev.minor);
            }
            let inherited = FileFlags::NO_DUMP.union(FileFlags::NO_ATIME);
            raw.flags.set(dir.raw.flags.get() & inherited.bits());
            let mut inode = Inode { ino, kind: node.kind, raw };
            for time in [Time::Access, Time::Modify, Time::Change, Time::Birth] {
                inode.stamp(time, now);
            }
            return Ok(inode);
        }
        Err(Error::NoSpace)
    }

    /// Frees an inode without a name, and its blocks. Errors: those of the device.
    pub(crate) fn free_inode(&mut self, mut inode: Inode) -> Result<()> {
        self.cut(&mut inode, 0..u64::MAX)?;
        inode.raw = blank(inode.raw.generation.get());
        self.counters.free_inodes = self.counters.free_inodes.saturating_add(1);
        self.put(&inode)
    }
}

fn blank(generation: u32) -> RawInode {
    let mut raw: RawInode = obento_base::wire::FromZeros::new_zeroed();
    raw.generation.set(generation);
    raw
}

impl Inode {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Errors: NotDirectory.
    pub(crate) fn expect_dir(&self) -> Result<()> {
        if self.is_dir() { Ok(()) } else { Err(Error::NotDirectory) }
    }

    /// Errors: IsDirectory; Invalid for what is no regular file.
    pub(crate) fn expect_file(&self) -> Result<()> {
        match self.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    fn time(&self, time: Time) -> Timestamp {
        let [access, modify, change, birth] = core::array::from_fn(|at| {
            let seconds = self.raw.seconds.get(at).map_or(0, |seconds| seconds.get());
            Timestamp::new(seconds, self.raw.nanos.get(at).map_or(0, |nanos| nanos.get()))
        });
        match time {
            Time::Access => access,
            Time::Modify => modify,
            Time::Change => change,
            Time::Birth => birth,
        }
    }

    pub(crate) fn stamp(&mut self, time: Time, moment: Timestamp) {
        let ([a, m, c, b], [na, nm, nc, nb]) = (&mut self.raw.seconds, &mut self.raw.nanos);
        let (seconds, nanos) = match time {
            Time::Access => (a, na),
            Time::Modify => (m, nm),
            Time::Change => (c, nc),
            Time::Birth => (b, nb),
        };
        seconds.set(moment.secs());
        nanos.set(moment.nanos());
    }

    /// Notes a change of the data that was made at `when`, since when the attributes may have changed.
    pub(crate) fn touch_data_at(&mut self, when: TimeChange, now: Timestamp) {
        let TimeChange::At(moment) = when else { return self.touch_data(now) };
        self.touch(moment.max(self.time(Time::Change)));
        self.stamp(Time::Modify, moment);
    }

    pub(crate) fn apply(&mut self, change: &SetAttr, now: Timestamp) {
        // Reading a file is no change of it.
        if *change != (SetAttr { atime: change.atime, ..SetAttr::default() }) {
            self.touch(now);
        }
        if let Some(mode) = change.mode {
            self.raw.mode.set(self.kind.mode_bits() | mode.bits());
        }
        self.raw.uid.set(change.uid.unwrap_or(self.raw.uid.get()));
        self.raw.gid.set(change.gid.unwrap_or(self.raw.gid.get()));
        self.raw.flags.set(change.flags.map_or(self.raw.flags.get(), |flags| flags.bits()));
        let times = [
            (Time::Access, change.atime),
            (Time::Modify, change.mtime),
            (Time::Change, change.ctime),
            (Time::Birth, change.btime),
        ];
        for (time, change) in times {
            match change {
                None => {}
                Some(TimeChange::Now) => self.stamp(time, now),
                Some(TimeChange::At(moment)) => self.stamp(time, moment),
            }
        }
    }

    pub(crate) fn attr(&self) -> Attr {
        let rdev = DeviceNumber { major: self.raw.major.get(), minor: self.raw.minor.get() };
        Attr {
            ino: self.ino,
            generation: Generation(self.raw.generation.get()),
            kind: self.kind,
            mode: Mode::new(self.raw.mode.get()),
            nlink: self.raw.nlink.get(),
            uid: self.raw.uid.get(),
            gid: self.raw.gid.get(),
            rdev: if self.kind.is_device() { rdev } else { DeviceNumber::default() },
            size: self.raw.size.get(),
            blocks: u64::from(self.raw.blocks.get()).saturating_mul(to_u64(BLOCK) / 512),
            block_size: 4096,
            atime: self.time(Time::Access),
            mtime: self.time(Time::Modify),
            ctime: self.time(Time::Change),
            btime: Some(self.time(Time::Birth)),
            flags: FileFlags::from_bits_retain(self.raw.flags.get()),
            change: self.raw.change.get(),
            project: 0,
        }
    }

    /// Notes a change of the attributes.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.stamp(Time::Change, now);
        self.raw.change.set(self.raw.change.get().saturating_add(1));
    }

    /// Notes a change of the data.
    pub(crate) fn touch_data(&mut self, now: Timestamp) {
        self.stamp(Time::Modify, now);
        self.touch(now);
    }
}
