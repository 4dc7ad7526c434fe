//! The extended attributes of a file.
//!
//! Invariant: memory is bounded for any file, since the values that are read together have at most [`MOST`] bytes.

use obento_base::{Error, Feature};
use obento_host::Xattr;
use obento_vfs::Node;

/// Maximum number of bytes of names and values of one file. Linux limits the names to 64 KiB and each value to 64 KiB,
/// so that a hostile file can have 500 MiB.
pub const MOST: usize = 64 << 20;

const TOO_MANY: Feature = Feature::Named("a file with so many bytes of extended attributes");

/// Returns the attributes of `node` that `wants` selects by name, sorted by name. Passes the error of each unreadable
/// attribute to `damaged`, with its name if it is known. After `budget` bytes of names and values, passes `Unsupported`
/// and leaves out the rest.
pub fn read(
    node: &Node,
    budget: usize,
    wants: impl Fn(&[u8]) -> bool,
    mut damaged: impl FnMut(Option<&[u8]>, Error),
) -> Vec<Xattr> {
    let mut names = node.list_xattrs().unwrap_or_else(|error| {
        damaged(None, error);
        Vec::new()
    });
    names.retain(|name| wants(name));
    names.sort_unstable();
    let (mut xattrs, mut left) = (Vec::with_capacity(names.len()), budget);
    for name in names {
        match node.get_xattr(&name) {
            Ok(value) => {
                let Some(rest) = left.checked_sub(name.len() + value.len()) else {
                    damaged(None, Error::Unsupported(TOO_MANY));
                    break;
                };
                left = rest;
                xattrs.push(Xattr { name, value });
            }
            Err(error) => damaged(Some(&name), error),
        }
    }
    xattrs
}
