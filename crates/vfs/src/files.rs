//! Creation of many files at once on behalf of a caller.

use alloc::vec::Vec;

use obento_base::{Error, Name, Result};
use obento_driver::{Bulk, NewFile, SetAttr, TimeChange};

use crate::caller::Caller;
use crate::change::inherit;
use crate::node::Node;
use crate::vfs::Vfs;

impl Vfs {
    /// Creates regular files in `dir`. For each file in turn, the effect is that of [`create`](Self::create),
    /// [`write_at`](Node::write_at) and [`set_attr`](Self::set_attr). Returns one result per file, in the
    /// same order.
    ///
    /// If a file cannot be created completely, the call removes the file again. If the removal fails, the
    /// incomplete file remains. A failure does not affect the other files.
    ///
    /// # Errors
    ///
    /// The result of a file is an error of one of the three methods, or:
    ///
    /// - `Invalid`: the contents are longer than [`NEW_FILE_MAX`](obento_driver::NEW_FILE_MAX), and the
    ///   driver creates many files at once ([`Bulk`]). This limit does not apply if `dir` has a default
    ///   access control list.
    pub fn create_files(&self, caller: &Caller, dir: &Node, files: &[NewFile<'_>]) -> Vec<Result<()>> {
        // A list that new files inherit must be set on each file.
        let bulk =
            self.0.fs.bulk().filter(|_| matches!(dir.default_acl(obento_base::FileKind::Regular), Ok(None)));
        match bulk {
            Some(bulk) => self.create_at_once(bulk, caller, dir, files),
            None => files.iter().map(|file| self.create_file(caller, dir, file)).collect(),
        }
    }

    fn create_at_once(
        &self,
        bulk: &dyn Bulk,
        caller: &Caller,
        dir: &Node,
        files: &[NewFile<'_>],
    ) -> Vec<Result<()>> {
        let _names = dir.inode.guard.write();
        let mut allowed = Vec::with_capacity(files.len());
        let mut done: Vec<Result<()>> = Vec::with_capacity(files.len());
        for file in files {
            let checked = self.writable().and_then(|_| dir.expect_changeable(caller, file.name));
            done.push(checked.map(|dir| {
                allowed.push(NewFile { node: inherit(caller, &dir, &file.node), ..*file });
            }));
        }
        let mut made = bulk.create_files(dir.ino(), &allowed).into_iter();
        for (file, result) in files.iter().zip(&mut done).filter(|(_, result)| result.is_ok()) {
            *result = made.next().unwrap_or(Err(Error::Invalid));
            // The cache may contain the fact that the name does not exist.
            self.unlearn(dir, file.name);
        }
        done
    }

    fn unlearn(&self, dir: &Node, name: &Name) {
        let key = self.0.names.key(dir.ino(), name);
        if let Some(Some(inode)) = self.0.names.take(&key) {
            self.0.release(&inode);
        }
    }

    fn create_file(&self, caller: &Caller, dir: &Node, file: &NewFile<'_>) -> Result<()> {
        let node = self.create(caller, dir, file.name, &file.node)?;
        let fill = || {
            let mut done = 0;
            while let Some(rest) = file.bytes.get(done..).filter(|rest| !rest.is_empty()) {
                match node.write_at(obento_base::wire::to_u64(done), rest)? {
                    0 => return Err(Error::NoSpace),
                    len => done = done.saturating_add(len),
                }
            }
            let (atime, mtime) = (file.atime.map(TimeChange::At), file.mtime.map(TimeChange::At));
            if atime.is_some() || mtime.is_some() {
                self.set_attr(caller, &node, &SetAttr { atime, mtime, ..SetAttr::default() })?;
            }
            Ok(())
        };
        fill().inspect_err(|_| {
            // An incomplete file would look complete. If it cannot be removed, the error still reports the
            // failure.
            let _ = self.unlink(caller, dir, file.name);
        })
    }
}
