//! Where a path of an archive leads in the target: links on the way are followed, and none leads out.
//!
//! Invariant: `names` are directories, no links: what is reached by them lies below the target.

use obento_base::{Error, FileKind, Name, NameBuf};
use obento_vfs::Node;

/// Links that one path may follow, as in `obento-vfs`.
const MAX_SYMLINKS: u32 = 40;
/// Components that are left to walk, links replaced.
const MAX_COMPONENTS: usize = 1 << 16;

/// Where a path leads.
pub(super) struct Found {
    /// The last directory that is there.
    pub node: Node,
    /// The names that lead to it from the target.
    pub names: Vec<NameBuf>,
    /// What is not there of the path.
    pub missing: Vec<NameBuf>,
}

enum Part {
    Name(NameBuf),
    Up,
}

/// Follows `path` from `root`. A path through a link whose target does not exist leads nowhere, as for tar(1), which makes no directory for
/// it. Errors: NotDirectory; NotFound behind a link; Loop; those of the volume.
pub(super) fn walk(root: &Node, path: &[NameBuf]) -> Result<Found, Error> {
    // The next one last.
    let mut rest: Vec<Part> = path.iter().rev().cloned().map(Part::Name).collect();
    let mut at: Vec<(NameBuf, Node)> = Vec::new();
    let mut links = 0;
    // How many of the parts that are left are the caller's, and not a link's.
    let mut own = rest.len();
    while let Some(part) = rest.pop() {
        let is_of_link = rest.len() >= own;
        own = own.min(rest.len());
        let Part::Name(name) = part else {
            // At the target, `..` stays there.
            at.pop();
            continue;
        };
        let here = at.last().map_or(root, |(_, node)| node);
        let node = match here.lookup(&name) {
            Ok(node) => node,
            Err(Error::NotFound) if is_of_link => return Err(Error::NotFound),
            Err(Error::NotFound) => {
                let mut missing = vec![name];
                for part in rest.into_iter().rev() {
                    match part {
                        Part::Name(name) => missing.push(name),
                        Part::Up => drop(missing.pop()),
                    }
                }
                return Ok(found(root, at, missing));
            }
            Err(error) => return Err(error),
        };
        match node.kind()? {
            FileKind::Directory => at.push((name, node)),
            FileKind::Symlink => {
                links += 1;
                let target = node.read_link()?;
                if links > MAX_SYMLINKS || rest.len() + target.len() > MAX_COMPONENTS {
                    return Err(Error::Loop);
                }
                if target.starts_with(b"/") {
                    at.clear();
                }
                let parts = target.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
                for part in parts.rev() {
                    rest.push(match Name::new(part) {
                        Ok(name) => Part::Name(name.to_buf()),
                        Err(_) if part == b".." => Part::Up,
                        Err(_) => return Err(Error::NameTooLong),
                    });
                }
            }
            _ => return Err(Error::NotDirectory),
        }
    }
    Ok(found(root, at, Vec::new()))
}

fn found(root: &Node, at: Vec<(NameBuf, Node)>, missing: Vec<NameBuf>) -> Found {
    let node = at.last().map_or(root, |(_, node)| node).clone();
    Found { node, names: at.into_iter().map(|(name, _)| name).collect(), missing }
}
