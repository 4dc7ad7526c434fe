//! Adjusts access control lists before they are stored. This affects lists with names of users, lists that differ
//! from the mode, and lists that the format cannot store.
//!
//! Invariant: no user gets more permissions than the list granted. If a list is lost, the owning group gets the
//! permissions that both its entry and the mask grant. The group bits of the mode equal the mask, and could otherwise
//! grant more.
//! Source: acl(5), "CORRESPONDENCE BETWEEN ACL ENTRIES AND FILE PERMISSION BITS".

use obento_base::Mode;
use obento_host::Xattr;
use obento_host::tar::{ACL_WORDS, AclName, acl_from_words};
use obento_open::volume::Owners;
use obento_vfs::acl::{ACCESS, Acl, Tag};

/// Changes the mode to agree with the list. A list that permission bits alone can represent is removed.
pub(crate) fn settle(mode: &mut Mode, xattrs: &mut Vec<Xattr>) {
    let Some(at) = xattrs.iter().position(|xattr| xattr.name == ACCESS) else { return };
    let Some(list) = xattrs.get(at).and_then(|xattr| Acl::decode(&xattr.value).ok()) else { return };
    *mode = Mode::new(mode.bits() & 0o7000 | list.mode().bits());
    if list.is_mode_alone() {
        xattrs.remove(at);
    }
}

/// Changes the list to agree with the mode, as chmod(1) does.
pub(crate) fn settle_by_mode(mode: Mode, xattrs: &mut Vec<Xattr>) {
    for xattr in xattrs.iter_mut().filter(|xattr| xattr.name == ACCESS) {
        if let Ok(list) = Acl::decode(&xattr.value) {
            xattr.value = list.with_mode(mode).encode();
        }
    }
    settle(&mut mode.clone(), xattrs);
}

/// Returns the mode of a file that loses the list `value`.
pub(crate) fn mode_without(mode: Mode, value: &[u8]) -> Mode {
    let Ok(list) = Acl::decode(value) else { return mode };
    let group = list.entries().iter().find(|entry| entry.tag == Tag::OwningGroup);
    let group = group.map_or(0, |entry| u16::from(entry.perm.bits()));
    Mode::new(mode.bits() & (0o7707 | group << 3))
}

/// Converts lists in text form to attributes, with the numbers of `owners`. Skips an entry for a name that
/// `owners` lacks, and returns the reason for each skipped entry.
pub(crate) fn resolve(xattrs: &mut Vec<Xattr>, owners: &Owners) -> Vec<String> {
    let mut unknown = Vec::new();
    for xattr in xattrs.iter_mut() {
        let Some((_, name)) = ACL_WORDS.iter().find(|(words, _)| *words == xattr.name) else { continue };
        let list = acl_from_words(&xattr.value, &mut |name| {
            let (id, kind, name) = match name {
                AclName::User(name) => (owners.uid(name.as_bytes()), "user", name),
                AclName::Group(name) => (owners.gid(name.as_bytes()), "group", name),
            };
            if id.is_none() {
                unknown.push(format!(
                    "the image has no {kind} '{}'",
                    obento_open::text::escaped(name.as_bytes())
                ));
            }
            id
        });
        xattr.name = name.to_vec();
        xattr.value = list.unwrap_or_else(|| {
            unknown.push("the list is invalid".to_owned());
            Vec::new()
        });
    }
    xattrs.retain(|xattr| !(xattr.is_acl() && xattr.value.is_empty()));
    xattrs.sort_unstable();
    unknown
}

/// Returns whether one of `xattrs` is a list in text form.
pub(crate) fn has_words(xattrs: &[Xattr]) -> bool {
    xattrs.iter().any(|xattr| ACL_WORDS.iter().any(|(words, _)| *words == xattr.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Xattr> {
        vec![Xattr { name: ACL_WORDS[0].0.to_vec(), value: text.as_bytes().to_vec() }]
    }

    fn owners() -> Owners {
        Owners::from_files(b"joe:x:1001:100::/:/bin/sh\n", b"staff:x:50:\n")
    }

    #[test]
    fn a_list_in_words_gets_the_numbers_of_the_image() {
        let mut xattrs =
            words("user::rw-\nuser:joe:rw-\ngroup::r--\ngroup:staff:r-x\nmask::rwx\nother::---\n");
        assert!(has_words(&xattrs));
        assert_eq!(resolve(&mut xattrs, &owners()), [""; 0]);
        let list = Acl::decode(&xattrs[0].value).unwrap();
        let named: Vec<_> = list.entries().iter().map(|entry| entry.tag).collect();
        let expected = [Tag::Owner, Tag::User(1001), Tag::OwningGroup, Tag::Group(50), Tag::Mask, Tag::Other];
        assert_eq!((&*xattrs[0].name, named), (ACCESS, expected.to_vec()));
    }

    #[test]
    fn an_entry_for_an_unknown_name_is_left_out_and_reported() {
        let mut xattrs = words("user::rw-,user:eve:rwx,group::r--,mask::rwx,other::---");
        assert_eq!(resolve(&mut xattrs, &owners()), ["the image has no user 'eve'"]);
        let mut mode = Mode::new(0o4644);
        settle(&mut mode, &mut xattrs);
        // The mask remains, so that the group keeps its own entry.
        assert_eq!((mode.bits(), xattrs.len()), (0o4670, 1));
        assert_eq!(mode_without(mode, &xattrs[0].value).bits(), 0o4640);
        let mut xattrs = words("user::rz-");
        assert_eq!((resolve(&mut xattrs, &owners()).len(), xattrs.len()), (1, 0));
    }

    #[test]
    fn a_list_of_the_three_base_entries_becomes_the_mode() {
        let mut xattrs = words("user::rwx,group::r-x,other::--x");
        assert!(resolve(&mut xattrs, &owners()).is_empty());
        let mut mode = Mode::new(0o1777);
        settle(&mut mode, &mut xattrs);
        assert_eq!((mode.bits(), xattrs.len()), (0o1751, 0));
    }
}
