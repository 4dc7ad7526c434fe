//! The reading part of the contract.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use obento_base::{Attr, Error, FileKind, Ino, Name, Result};
use obento_block::BlockDevice;
use obento_driver::{
    Bulk, Cookie, Crash, DirEntry, EntrySink, Extent, Fact, FileSystem, Layout, Limits, Notice, Span, StatFs,
    Trim, VolumeInfo, WritableFileSystem, XattrMode, Xattrs,
};
use obento_linux_wire::{Answer, Request};

use crate::list::Portion;
use crate::types::needs::ShownPart;
use crate::volume::{Volume, nonsense};

/// The names under which XFS also shows access control lists. Source: Linux 6.1, fs/xfs/xfs_acl.h and `xfs_xattr_put_listent`.
const XFS_ACLS: [&[u8]; 2] = [b"trusted.SGI_ACL_FILE", b"trusted.SGI_ACL_DEFAULT"];

/// `PATH_MAX` of Linux, without the final NUL.
const TARGET_MAX: usize = 4095;

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        self.root
    }

    fn limits(&self) -> Limits {
        Limits {
            name_max: self.name_max,
            symlink_max: self.symlink_max(),
            link_max: self.kind.link_max,
            file_size_max: self.file_size_max,
            time_granularity: self.kind.grain,
            uid_max: self.kind.uid_max,
            gid_max: self.kind.gid_max,
            keeps: self.kind.keeps,
            crash: Crash::Repairable,
        }
    }

    fn info(&self) -> VolumeInfo {
        let fact = Fact { name: "driver", value: "Linux, in a process (user-mode-linux)".into() };
        let (expected, found) = (self.probe.len, self.found);
        let truncated = (expected > found).then_some(Notice::Truncated { expected, found });
        let hidden =
            self.hidden.iter().map(|need| Notice::Hidden { what: need.part.name(), option: need.option });
        VolumeInfo {
            probe: self.probe.clone(),
            // Linux does not report whether the volume was closed.
            state: "unknown, since the kernel engine opened the volume".into(),
            facts: vec![fact],
            notices: truncated.into_iter().chain(hidden).collect(),
            ..VolumeInfo::default()
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        self.usage()
    }

    fn device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.has_places().then_some(&self.device)
    }

    fn lookup(&self, dir: Ino, name: &Name) -> Result<Ino> {
        let mut state = self.state();
        self.directory(&mut state, dir)?;
        self.expect_name(name.as_bytes()).map_err(|_| Error::NotFound)?;
        let request = Request::Look { dir: dir.0, name: name.as_bytes().to_vec() };
        let attr = match self.node(&mut state, &[dir], request) {
            Err(Error::NameTooLong | Error::Invalid) => return Err(Error::NotFound),
            other => other?,
        };
        state.nodes.show(dir, name.as_bytes(), attr);
        state.nodes.keep(attr.ino);
        Ok(attr.ino)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        let mut state = self.state();
        self.directory(&mut state, dir)?;
        Ok(state.nodes.get(dir)?.parent)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        {
            let mut state = self.state();
            if !state.nodes.is_unseen(ino) {
                return self.attr(&mut state, ino);
            }
        }
        self.find(ino)
    }

    fn read_dir(&self, dir: Ino, from: Cookie, sink: &mut EntrySink<'_>) -> Result<()> {
        let (mut from, mut asked) = (from, HashSet::new());
        loop {
            // A directory of a damaged volume may contain itself.
            if !asked.insert(from) {
                return Err(nonsense());
            }
            let Portion { entries, is_end, missing } = self.list(dir, from)?;
            for entry in &entries {
                let next = Cookie(entry.next);
                let Ok(name) = Name::new(&entry.name) else { return Err(nonsense()) };
                let entry = self.attr_in(entry).map(|attr| DirEntry {
                    name,
                    ino: attr.ino,
                    kind: Some(attr.kind),
                    next,
                });
                if sink(entry).is_break() {
                    return Ok(());
                }
                from = next;
            }
            let is_over = missing.is_some_and(|error| sink(Err(error)).is_break());
            if is_end || is_over {
                return Ok(());
            }
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let attr = self.getattr(ino)?;
        if attr.kind != FileKind::Symlink {
            return Err(Error::Invalid);
        }
        let target = self.bytes(ino, Request::ReadLink { ino: ino.0 })?;
        // Linux returns no longer target for any type.
        if target.len() > TARGET_MAX || target.contains(&0) {
            return Err(nonsense());
        }
        Ok(target)
    }

    fn map(&self, _: &Layout<'_>, ino: Ino, range: Range<u64>) -> Result<Extent> {
        let mut state = self.state();
        let attr = self.file(&mut state, ino)?;
        let asked = range.end.checked_sub(range.start).filter(|len| *len > 0).ok_or(Error::Invalid)?;
        if range.start >= attr.size {
            return Ok(Extent { len: asked, span: Span::Hole });
        }
        let run = self.run(&mut state, &attr, range.start)?;
        let len = run.end.saturating_sub(range.start).clamp(1, asked);
        // The guest is not trusted, so an invalid place is possible.
        let is_there = |place: &u64| place.checked_add(len).is_some_and(|end| end <= self.device.len());
        let span = match (run.is_data, run.place.filter(is_there)) {
            (false, _) => Span::Hole,
            (true, Some(place)) => Span::Mapped(place),
            (true, None) => Span::Driver,
        };
        Ok(Extent { len, span })
    }

    fn read(&self, _: &Layout<'_>, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_file(ino, offset, buf)
    }

    fn forget(&self, ino: Ino) {
        self.state().nodes.forget(ino, self.root);
    }

    fn writable(&self) -> Option<&dyn WritableFileSystem> {
        self.is_writable().then_some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        let are_hidden = self.hidden.iter().any(|need| need.part == ShownPart::Attributes);
        (self.kind.xattrs && !are_hidden).then_some(self)
    }

    fn bulk(&self) -> Option<&dyn Bulk> {
        Some(self)
    }

    fn trim(&self) -> Option<&dyn Trim> {
        self.is_writable().then_some(self)
    }
}

impl Xattrs for Volume {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.expect_name(name).map_err(|_| Error::NoData)?;
        match self.bytes(ino, Request::GetXattr { ino: ino.0, name: name.to_vec() }) {
            // An attribute that a type cannot store does not exist.
            Err(Error::NotSupported | Error::Invalid | Error::OutOfRange) => Err(Error::NoData),
            other => other,
        }
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let names = match self.bytes(ino, Request::ListXattrs { ino: ino.0 }) {
            // HFS+ reports this error if no attribute exists.
            Err(Error::NoData) => return Ok(()),
            names => names?,
        };
        let is_twice = |name: &[u8]| self.is_of("xfs") && XFS_ACLS.contains(&name);
        names.split(|byte| *byte == 0).filter(|name| !name.is_empty() && !is_twice(name)).for_each(sink);
        Ok(())
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        let missing = if mode == XattrMode::Replace { Error::NoData } else { Error::OutOfRange };
        self.expect_name(name).map_err(|_| missing)?;
        // `XATTR_CREATE` and `XATTR_REPLACE` of include/uapi/linux/xattr.h.
        let flags = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => 1,
            XattrMode::Replace => 2,
        };
        let (name, value) = (name.to_vec(), value.to_vec());
        let mut state = self.state();
        let done = self.do_it(&mut state, &[ino], Request::SetXattr { ino: ino.0, name, value, flags });
        state.changed(ino);
        done
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        self.expect_name(name).map_err(|_| Error::NoData)?;
        let mut state = self.state();
        let done = self.do_it(&mut state, &[ino], Request::RemoveXattr { ino: ino.0, name: name.to_vec() });
        state.changed(ino);
        done
    }
}

impl Trim for Volume {
    fn trim_within(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        if range != (0..u64::MAX) {
            return Err(Error::NotSupported);
        }
        self.sync_all()?;
        match self.ask(&mut self.state(), &[], Request::Trim { min_len }) {
            Ok(Answer::Count { count }) => Ok(count),
            Ok(_) => Err(nonsense()),
            // Some types refuse a minimum that is longer than any free range of theirs.
            Err(Error::Invalid) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
