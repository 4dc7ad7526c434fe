//! The image that paths refer to in a shell.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use obento::address::{Address, FileSelector, Operand};
use obento::base::Ino;
use obento::driver::Access;

use super::location::join;
use crate::report::Report;

/// The image of a shell.
pub struct ShellImage {
    /// The root directory of the image.
    pub root: Address,
    /// Whether the image is open for change.
    pub access: Access,
    /// The current directory, an absolute path.
    pub directory: RefCell<Vec<u8>>,
}

impl ShellImage {
    /// Returns what `argument` names in the shell: a path in its image, `<12>`, `host:PATH`, `image:ADDRESS` or `-`.
    pub fn operand(&self, argument: &OsStr) -> Result<Operand, Report> {
        let text = argument.as_bytes();
        if text == b"-" || text.starts_with(b"host:") {
            return Ok(Operand::parse(argument)?);
        }
        if let Some(address) = text.strip_prefix(b"image:") {
            let address = Address::parse(OsStr::from_bytes(address))?;
            return Ok(Operand::Image(address));
        }
        let ino = text.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
        let ino = ino.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
        let place =
            ino.map_or_else(|| FileSelector::Path(self.path(text)), |ino| FileSelector::Inode(Ino(ino)));
        Ok(Operand::Image(Address { place: Some(place), ..self.root.clone() }))
    }

    /// Returns `path` relative to the current directory as an absolute path.
    pub fn path(&self, path: &[u8]) -> Vec<u8> {
        match path {
            [b'/', ..] => path.to_vec(),
            [] => self.directory.borrow().clone(),
            _ => join(&self.directory.borrow(), path),
        }
    }
}
