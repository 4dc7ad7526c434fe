//! Resolves a path of an archive in the target. Links on the way are followed, and none leads out of the
//! target.
//!
//! Invariant: `names` are directories and not links, so the resolved place is below the target.

use obento_base::{Error, FileKind, Name, NameBuf};
use obento_vfs::Node;

/// Maximum number of links that one path may follow, as in `obento-vfs`.
const MAX_SYMLINKS: u32 = 40;
/// Maximum number of remaining components, including the components of link targets.
const MAX_COMPONENTS: usize = 1 << 16;

/// The result of resolving a path.
pub(super) struct ResolvedPath {
    /// The last existing directory.
    pub node: Node,
    /// The names that lead to it from the target.
    pub names: Vec<NameBuf>,
    /// The components of the path that do not exist.
    pub missing: Vec<NameBuf>,
}

enum Part {
    Name(NameBuf),
    Up,
}

/// Resolves `path` from `root`. As in tar(1), a path through a dangling link is an error, and no directory is created
/// for the link's target. Fails with `NotDirectory`, with `NotFound` behind a link, with `Loop`, and with the errors
/// of the volume.
pub(super) fn walk(root: &Node, path: &[NameBuf]) -> Result<ResolvedPath, Error> {
    // The remaining parts, the next one last.
    let mut rest: Vec<Part> = path.iter().rev().cloned().map(Part::Name).collect();
    let mut at: Vec<(NameBuf, Node)> = Vec::new();
    let mut links = 0;
    // How many of the remaining parts belong to the path, and not to a link.
    let mut own = rest.len();
    while let Some(part) = rest.pop() {
        let is_of_link = rest.len() >= own;
        own = own.min(rest.len());
        let Part::Name(name) = part else {
            // At the target, `..` has no effect.
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

fn found(root: &Node, at: Vec<(NameBuf, Node)>, missing: Vec<NameBuf>) -> ResolvedPath {
    let node = at.last().map_or(root, |(_, node)| node).clone();
    ResolvedPath { node, names: at.into_iter().map(|(name, _)| name).collect(), missing }
}
