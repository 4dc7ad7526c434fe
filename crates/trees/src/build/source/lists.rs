//! Resolves the access control lists of a tree. Names are replaced by the numbers of the users and groups that the
//! tree defines. Modes are changed to agree with the lists.

use std::collections::HashMap;
use std::sync::Arc;

use obento_base::Mode;
use obento_driver::NodeId;
use obento_driver::tree::{Body, XattrsId};
use obento_host::Xattr;
use obento_host::build::Reader as Bytes;
use obento_open::volume::Owners;

use super::{PROBLEMS_MAX, SourceReader};
use crate::acls;
use crate::build::SourceProblem;
use crate::build::model::names;

/// Maximum number of bytes of `/etc/passwd` and `/etc/group`.
const MAX_BYTES: u64 = 4 << 20;

/// A list after its names were looked up.
#[derive(Clone)]
struct Settled {
    xattrs: Option<XattrsId>,
    mode: Mode,
    /// The entries that were left out, with the reason.
    lost: Option<Arc<str>>,
}

/// Resolves all lists of the tree. An entry for a name that the tree lacks is left out, and returned with the
/// path of its file. The mask stays, so that no other entry grants more than before.
pub(super) fn settle(reader: &mut SourceReader<'_>) -> Vec<SourceProblem> {
    let (mut owners, mut lost) = (None, HashMap::new());
    // Many files have the same list.
    let mut known: HashMap<(XattrsId, Mode), Settled> = HashMap::new();
    let nodes = u32::try_from(reader.model.builder.len()).unwrap_or(u32::MAX);
    for id in (0..nodes).map(NodeId) {
        let attr = reader.model.builder.node(id).map(|node| node.attr);
        let Some((attr, set)) = attr.and_then(|attr| Some((attr, attr.xattrs?))) else { continue };
        let settled = match known.get(&(set, attr.mode)) {
            Some(settled) => settled.clone(),
            None => {
                let Some(mut xattrs) = lists_of(reader, set) else { continue };
                let mut why = Vec::new();
                if acls::has_words(&xattrs) {
                    let owners = owners.get_or_insert_with(|| owners_of(reader));
                    why = acls::resolve(&mut xattrs, owners);
                }
                let mut mode = attr.mode;
                match reader.settings.chmod.is_some() {
                    true => acls::settle_by_mode(mode, &mut xattrs),
                    false => acls::settle(&mut mode, &mut xattrs),
                }
                let new = match reader.xattrs(&xattrs) {
                    Ok(new) => new,
                    Err(error) => {
                        reader.problem(Vec::new(), error);
                        break;
                    }
                };
                let lost = (!why.is_empty()).then(|| why.join(", ").into());
                let settled = Settled { xattrs: new, mode, lost };
                known.insert((set, attr.mode), settled.clone());
                settled
            }
        };
        if let Some(attr) = reader.model.builder.attr_mut(id) {
            (attr.xattrs, attr.mode) = (settled.xattrs, settled.mode);
        }
        if let Some(why) = settled.lost {
            lost.insert(id, why);
        }
    }
    with_paths(reader, &lost)
}

/// Returns the first [`PROBLEMS_MAX`] files of `lost` with their paths, sorted.
fn with_paths(reader: &SourceReader<'_>, lost: &HashMap<NodeId, Arc<str>>) -> Vec<SourceProblem> {
    let mut found = Vec::new();
    let mut waiting = if lost.is_empty() { vec![] } else { vec![(NodeId::ROOT, Vec::new())] };
    while let Some((id, path)) = waiting.pop() {
        if let Some(why) = lost.get(&id) {
            found.push(SourceProblem { path: path.clone(), why: (&**why).into() });
        }
        let children = reader.model.builder.children(id);
        waiting.extend(children.map(|(name, child)| (child, [&path[..], b"/", name].concat())));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(PROBLEMS_MAX);
    found
}

/// Returns the attributes of a set that contains a list, in text form or not.
fn lists_of(reader: &SourceReader<'_>, set: XattrsId) -> Option<Vec<Xattr>> {
    let pairs = reader.model.builder.xattr_list(set).iter();
    let xattrs: Vec<_> =
        pairs.map(|(name, value)| Xattr { name: name.to_vec(), value: value.to_vec() }).collect();
    (acls::has_words(&xattrs) || xattrs.iter().any(|xattr| xattr.is_acl())).then_some(xattrs)
}

fn owners_of(reader: &mut SourceReader<'_>) -> Owners {
    Owners::from_files(&contents(reader, b"etc/passwd"), &contents(reader, b"etc/group"))
}

/// Returns the bytes of a file of the tree. Returns no bytes if the file does not exist or cannot be read twice.
fn contents(reader: &mut SourceReader<'_>, path: &[u8]) -> Vec<u8> {
    let find = |reader: &mut SourceReader<'_>| -> Option<(u32, u64)> {
        let id = names(path).ok().and_then(|path| reader.model.find(&path))?;
        match reader.model.builder.node(id)?.body {
            Body::File { size, data: Some(data), .. } if size <= MAX_BYTES => Some((data.0, size)),
            _ => None,
        }
    };
    let Some((data, size)) = find(reader) else { return Vec::new() };
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let opened = Bytes::new(&reader.supply).open(data, size);
    match opened.and_then(|file| file.read_exact_at(&mut bytes, 0)) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}
