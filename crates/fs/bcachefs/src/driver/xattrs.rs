//! Extended attributes of files.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use obento_base::{Corrupt, Error, Ino, Result, Structure};
use obento_driver::{XattrMode, Xattrs};

use super::number::Location;
use super::volume::Volume;
use crate::btree::id;
use crate::btree::key::{Pos, kind};
use crate::file::xattr::Xattr;

impl Volume {
    /// Passes the attributes of an inode to `f`, until it breaks.
    fn attributes(&self, ino: Ino, f: &mut dyn FnMut(Result<Xattr<'_>>) -> ControlFlow<()>) -> Result<()> {
        self.inode(ino)?;
        let location = Location::of(ino);
        let snapshot = self.subvolume(location.subvolume)?.snapshot;
        let damaged = Corrupt::Field {
            structure: Structure::Xattr(ino),
            field: "entry",
            block: 0,
            offset: 0,
            found: 0,
        };
        self.walk(id::XATTRS, Pos::new(location.number, 0, 0), snapshot, &mut |key| match key {
            Err(error) => f(Err(error)),
            Ok(key) if key.pos.inode != location.number => ControlFlow::Break(()),
            Ok(key) if key.kind != kind::XATTR => ControlFlow::Continue(()),
            Ok(key) => f(Xattr::decode(key).ok_or_else(|| damaged.into())),
        });
        Ok(())
    }
}

impl Xattrs for Volume {
    fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let mut found = Err(Error::NoData);
        self.attributes(ino, &mut |attribute| {
            match attribute {
                Err(error) => found = Err(error),
                Ok(attribute) if attribute.full_name().as_deref() == Some(name) => {
                    let structure = Structure::Xattr(ino);
                    let damaged = Corrupt::Field { structure, field: "value", block: 0, offset: 0, found: 0 };
                    found = attribute.value().ok_or_else(|| damaged.into());
                    return ControlFlow::Break(());
                }
                Ok(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        found
    }

    fn list_xattrs(&self, ino: Ino, sink: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut damage = None;
        self.attributes(ino, &mut |attribute| {
            match attribute {
                Err(error) => damage = Some(error),
                Ok(attribute) => {
                    if let Some(name) = attribute.full_name() {
                        sink(&name);
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        damage.map_or(Ok(()), Err)
    }

    fn set_xattr(&self, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn remove_xattr(&self, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }
}
