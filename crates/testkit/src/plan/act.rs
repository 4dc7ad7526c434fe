//! Running a plan on a volume.

use obento_base::{DeviceNumber, Error, FileFlags, FileKind, Mode, NameBuf, Result, Timestamp};
use obento_driver::{NewNode, SetAttr, TimeChange};
use obento_vfs::{Caller, Node, OpenFlags, Symlinks, Vfs};

use crate::plan::{Op, Space, bytes};

/// Runs operations on a volume, with open files.
#[derive(Debug)]
pub struct Actor {
    vfs: Vfs,
    caller: Caller,
    held: Vec<Node>,
    nameless: Vec<Node>,
}

impl Actor {
    /// Starts without open files, as the owner of the image.
    pub fn new(vfs: Vfs) -> Self {
        Self { vfs, caller: Caller::Owner, held: Vec::new(), nameless: Vec::new() }
    }

    /// Starts as another caller.
    pub fn of(caller: Caller, vfs: Vfs) -> Self {
        Self { caller, ..Self::new(vfs) }
    }

    /// Returns the volume.
    pub fn vfs(&self) -> &Vfs {
        &self.vfs
    }

    /// Returns the inode that `path` refers to.
    pub fn node(&self, path: &str) -> Result<Node> {
        self.vfs.resolve(&self.vfs.root(), path.as_bytes(), Symlinks::Keep, &self.caller)
    }

    fn place(&self, path: &str) -> Result<(Node, NameBuf)> {
        let last = self.vfs.resolve_parent(&self.vfs.root(), path.as_bytes(), &self.caller)?;
        Ok((last.dir, last.name.to_buf()))
    }

    /// Runs the operations that `op` returns until one fails with `NoSpace`. Returns the number of successful ones.
    /// Panics on any other error.
    pub fn fill(&mut self, mut op: impl FnMut(usize) -> Op) -> usize {
        for number in 0..100_000 {
            match self.act(number, &op(number)) {
                Ok(()) => {}
                Err(Error::NoSpace) => return number,
                Err(error) => panic!("{:?}: {error}", op(number)),
            }
        }
        panic!("the volume is never full");
    }

    /// Runs operation `number` of a plan.
    pub fn act(&mut self, number: usize, op: &Op) -> Result<()> {
        match op {
            Op::Create(path, kind, mode) => self.create(path, *kind, *mode, b""),
            Op::Symlink(path, len) => self.create(path, FileKind::Symlink, 0o777, &target(*len)),
            Op::Link(from, to) => {
                let node = self.node(from)?;
                let (dir, name) = self.place(to)?;
                self.vfs.link(&self.caller, &node, &dir, &name)
            }
            Op::Unlink(path) => {
                let (dir, name) = self.place(path)?;
                self.vfs.unlink(&self.caller, &dir, &name)
            }
            Op::Rmdir(path) => {
                let (dir, name) = self.place(path)?;
                self.vfs.rmdir(&self.caller, &dir, &name)
            }
            Op::Rename(from, to, flags) => {
                let (from, to) = (self.place(from)?, self.place(to)?);
                self.vfs.rename(&self.caller, (&from.0, &from.1), (&to.0, &to.1), *flags)
            }
            Op::SetXattr(path, name, len, mode) => {
                let (node, value) = (self.node(path)?, bytes(number, 0, *len));
                self.vfs.set_xattr(&self.caller, &node, name.as_bytes(), &value, *mode)
            }
            Op::RemoveXattr(path, name) => {
                self.vfs.remove_xattr(&self.caller, &self.node(path)?, name.as_bytes())
            }
            Op::Chmod(..) | Op::Chown(..) | Op::Utime(..) | Op::Touch(_) | Op::Flags(..) => self.change(op),
            Op::Fsync(path) => self.node(path)?.sync(),
            Op::Sync => self.vfs.sync(),
            Op::Hold(path) => {
                let node = self.node(path)?;
                self.held.push(node);
                Ok(())
            }
            Op::Release => {
                while self.held.pop().or_else(|| self.nameless.pop()).is_some() {}
                Ok(())
            }
            Op::Write(..) | Op::Append(..) | Op::Truncate(..) | Op::Space(..) => self.data(number, op),
            Op::Nameless | Op::WriteNameless(..) | Op::Name(_) => self.without_name(number, op),
        }
    }

    fn without_name(&mut self, number: usize, op: &Op) -> Result<()> {
        let last = self.nameless.last().ok_or(Error::Stale);
        match op {
            Op::WriteNameless(at, len) => {
                let node = last?;
                write_all(&bytes(number, *at, *len), |done, bytes| node.write_at(at + done, bytes))
            }
            Op::Name(path) => {
                let (dir, name) = self.place(path)?;
                self.vfs.name(&self.caller, last?, &dir, &name)?;
                self.nameless.pop();
                Ok(())
            }
            _ => {
                let new = new_node(FileKind::Regular, 0o644, b"");
                let made = self.vfs.create_nameless(&self.caller, &self.vfs.root(), &new, Mode::new(0))?;
                self.nameless.push(made);
                Ok(())
            }
        }
    }

    fn create(&self, path: &str, kind: FileKind, mode: u16, target: &[u8]) -> Result<()> {
        let (dir, name) = self.place(path)?;
        self.vfs.create(&self.caller, &dir, &name, &new_node(kind, mode, target)).map(drop)
    }

    fn data(&self, number: usize, op: &Op) -> Result<()> {
        match op {
            Op::Write(path, at, len) if self.caller != Caller::Owner => {
                let file = self.vfs.open(&self.caller, &self.node(path)?, OpenFlags::WRITE)?;
                write_all(&bytes(number, *at, *len), |done, bytes| file.write_at(at + done, bytes))
            }
            Op::Append(path, len) if self.caller != Caller::Owner => {
                let flags = OpenFlags::WRITE | OpenFlags::APPEND;
                let file = self.vfs.open(&self.caller, &self.node(path)?, flags)?;
                write_all(&bytes(number, 0, *len), |done, bytes| file.write_at(done, bytes))
            }
            Op::Write(path, at, len) => {
                let node = self.node(path)?;
                write_all(&bytes(number, *at, *len), |done, bytes| node.write_at(at + done, bytes))
            }
            Op::Append(path, len) => {
                // The end of the file is not looked up, because that would write waiting appends.
                let node = self.node(path)?;
                write_all(&bytes(number, 0, *len), |_, bytes| node.append(bytes).map(|(_, len)| len))
            }
            Op::Truncate(path, size) => self.vfs.truncate(&self.caller, &self.node(path)?, *size),
            Op::Space(path, space, range) => {
                let node = self.node(path)?;
                match space {
                    Space::Allocate(size) => node.allocate(range.clone(), *size),
                    Space::Zero(size) => node.zero_range(range.clone(), *size),
                    Space::Punch => node.punch(range.clone()),
                    Space::Collapse => node.collapse(range.clone()),
                    Space::Insert => node.insert(range.clone()),
                }
            }
            _ => Ok(()),
        }
    }

    fn change(&self, op: &Op) -> Result<()> {
        let (path, change) = match op {
            Op::Chmod(path, mode) => (path, SetAttr { mode: Some(Mode::new(*mode)), ..SetAttr::default() }),
            Op::Chown(path, uid, gid) => {
                (path, SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() })
            }
            Op::Utime(path, secs) => {
                let mtime = Some(TimeChange::At(Timestamp::new(*secs, 0)));
                (path, SetAttr { mtime, ..SetAttr::default() })
            }
            Op::Touch(path) => {
                let (atime, mtime) = (Some(TimeChange::Now), Some(TimeChange::Now));
                (path, SetAttr { atime, mtime, ..SetAttr::default() })
            }
            Op::Flags(path, bits) => {
                let node = self.node(path)?;
                let guards = FileFlags::IMMUTABLE | FileFlags::APPEND;
                let changeable = FileFlags::NO_DUMP | FileFlags::NO_ATIME | guards;
                let kept = node.attr()?.flags.difference(changeable);
                let flags = Some(kept | FileFlags::from_bits_retain(*bits) & changeable);
                (path, SetAttr { flags, ..SetAttr::default() })
            }
            _ => return Ok(()),
        };
        self.vfs.set_attr(&self.caller, &self.node(path)?, &change).map(drop)
    }
}

/// Returns a new inode of the volume's owner.
pub(crate) fn new_node(kind: FileKind, mode: u16, target: &[u8]) -> NewNode<'_> {
    let device = DeviceNumber { major: 259, minor: 70_000 };
    let rdev = if kind.is_device() { device } else { DeviceNumber::default() };
    NewNode { kind, mode: Mode::new(mode), uid: 0, gid: 0, rdev, target }
}

/// Returns a target of `len` bytes that does not exist.
pub(crate) fn target(len: usize) -> Vec<u8> {
    b"nowhere/".iter().copied().cycle().take(len).collect()
}

/// Writes all bytes by `write`, which gets the number of written bytes and the rest.
fn write_all(bytes: &[u8], write: impl Fn(u64, &[u8]) -> Result<usize>) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += write(done as u64, &bytes[done..])?;
    }
    Ok(())
}
