//! Resolves the access control lists of a tree: names become the numbers of the tree's own users and groups,
//! and modes are made to agree with the lists.

use std::collections::HashMap;

use obento_base::Mode;
use obento_driver::NodeId;
use obento_driver::tree::{Body, XattrsId};
use obento_host::Xattr;
use obento_host::build::Reader as Bytes;

use super::Reader;
use crate::build::model::names;
use crate::{Owners, acls};

/// The most bytes of `/etc/passwd` and `/etc/group`.
const MAX_BYTES: u64 = 4 << 20;

/// Resolves all lists of the tree. A name that the tree lacks is a problem of its file.
pub(super) fn settle(reader: &mut Reader<'_>) {
    let (mut owners, mut unresolved) = (None, HashMap::new());
    // Many files have the same list.
    let mut known: HashMap<(XattrsId, Mode), (Option<XattrsId>, Mode)> = HashMap::new();
    let nodes = u32::try_from(reader.model.builder.len()).unwrap_or(u32::MAX);
    for id in (0..nodes).map(NodeId) {
        let attr = reader.model.builder.node(id).map(|node| node.attr);
        let Some((attr, set)) = attr.and_then(|attr| Some((attr, attr.xattrs?))) else { continue };
        let settled = match known.get(&(set, attr.mode)) {
            Some(settled) => *settled,
            None => {
                let Some(mut xattrs) = lists_of(reader, set) else { continue };
                if acls::has_words(&xattrs) {
                    let owners = owners.get_or_insert_with(|| owners_of(reader));
                    let why = acls::resolve(&mut xattrs, owners);
                    if !why.is_empty() {
                        unresolved.insert(id, why.join(", "));
                        continue;
                    }
                }
                let mut mode = attr.mode;
                match reader.settings.chmod.is_some() {
                    true => acls::settle_by_mode(mode, &mut xattrs),
                    false => acls::settle(&mut mode, &mut xattrs),
                }
                let Ok(new) = reader.xattrs(&xattrs) else { continue };
                known.insert((set, attr.mode), (new, mode));
                (new, mode)
            }
        };
        if let Some(attr) = reader.model.builder.attr_mut(id) {
            (attr.xattrs, attr.mode) = settled;
        }
    }
    report(reader, &unresolved);
}

/// Reports the nodes of `unresolved` by their paths.
fn report(reader: &mut Reader<'_>, unresolved: &HashMap<NodeId, String>) {
    let mut waiting = if unresolved.is_empty() { vec![] } else { vec![(NodeId::ROOT, Vec::new())] };
    while let Some((id, path)) = waiting.pop() {
        if let Some(why) = unresolved.get(&id) {
            reader.problem(path.clone(), format!("its access control list cannot be kept: {why}"));
        }
        let children = reader.model.builder.children(id);
        waiting.extend(children.map(|(name, child)| (child, [&path[..], b"/", name].concat())));
    }
}

/// Returns the attributes of a set that contains a list, in text form or not.
fn lists_of(reader: &Reader<'_>, set: XattrsId) -> Option<Vec<Xattr>> {
    let pairs = reader.model.builder.xattr_list(set).iter();
    let xattrs: Vec<_> =
        pairs.map(|(name, value)| Xattr { name: name.to_vec(), value: value.to_vec() }).collect();
    (acls::has_words(&xattrs) || xattrs.iter().any(|xattr| acls::is_list(&xattr.name))).then_some(xattrs)
}

fn owners_of(reader: &mut Reader<'_>) -> Owners {
    Owners::from_files(&contents(reader, b"etc/passwd"), &contents(reader, b"etc/group"))
}

/// Returns the bytes of a file of the tree. Returns none if the file does not exist or cannot be read twice.
fn contents(reader: &mut Reader<'_>, path: &[u8]) -> Vec<u8> {
    let find = |reader: &mut Reader<'_>| -> Option<(u32, u64)> {
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
