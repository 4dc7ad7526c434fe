//! Access control lists in the text form of setfacl(1) and getfacl(1).
//!
//! Source: acl(5), "ACL text forms"; setfacl(1), "ACL entries".

use obento::vfs::AccessRequest;
use obento::vfs::acl::{Acl, Entry, Tag};
use obento::volume::Owners;

use super::owner::{parse_group, parse_user};
use crate::report::Report;

/// An entry of a list, as text describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntrySpec {
    /// Whether it belongs to the default list of a directory.
    pub is_default: bool,
    pub tag: Tag,
    /// The permissions; `None` for an entry that only names what to remove.
    perm: Option<AccessRequest>,
    /// `X`: execution for directories, and for files that some class may execute.
    executable_if_any: bool,
}

impl EntrySpec {
    /// Returns the permissions for a directory, or for a file that some class may execute.
    pub fn perm(&self, has_execution: bool) -> AccessRequest {
        let perm = self.perm.unwrap_or(AccessRequest::empty());
        if self.executable_if_any && has_execution { perm | AccessRequest::EXEC } else { perm }
    }
}

/// The form of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryForm {
    /// With permissions.
    Permissions,
    /// Without permissions.
    WhomAlone,
}

/// Parses entries that are separated by commas or newlines; `#` starts a comment.
pub fn parse(text: &str, says: EntryForm, owners: &Owners) -> Result<Vec<EntrySpec>, Report> {
    let mut specs = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for entry in line.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            specs.push(parse_entry(entry, says, owners)?);
        }
    }
    Ok(specs)
}

fn parse_entry(text: &str, says: EntryForm, owners: &Owners) -> Result<EntrySpec, Report> {
    let bad = |cause: &str| {
        let form = match says {
            EntryForm::Permissions => "u:USER:rwx, g:GROUP:rx, m::rx or o::r",
            EntryForm::WhomAlone => "u:USER, g:GROUP or m",
        };
        let help = format!("write {form}; the prefix d: selects the default ACL");
        Report::on("invalid ACL entry", text, cause).help(help)
    };
    let mut parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let is_default = parts.len() > 1 && matches!(parts[0], "d" | "default");
    if is_default {
        parts.remove(0);
    }
    let kind = parts[0];
    // `u:name` for removal, and `m:rx`, `o:r`.
    let has_name = matches!(kind, "u" | "user" | "g" | "group");
    let (name, perm) = match (says, parts.as_slice()) {
        (EntryForm::WhomAlone, [_]) => ("", None),
        (EntryForm::WhomAlone, [_, name]) => (*name, None),
        (EntryForm::WhomAlone, [_, name, ""]) => (*name, None),
        (EntryForm::WhomAlone, [_, _, _]) => return Err(bad("an entry to remove has no permissions")),
        (EntryForm::Permissions, [_, perm]) if !has_name => ("", Some(*perm)),
        (EntryForm::Permissions, [_, name, perm]) => (*name, Some(*perm)),
        _ => return Err(bad("unknown type, or wrong number of fields")),
    };
    let tag = match (kind, name) {
        ("u" | "user", "") => Tag::Owner,
        ("u" | "user", name) => Tag::User(parse_user(name.as_bytes(), owners)?),
        ("g" | "group", "") => Tag::OwningGroup,
        ("g" | "group", name) => Tag::Group(parse_group(name.as_bytes(), owners)?),
        ("m" | "mask", "") => Tag::Mask,
        ("o" | "other", "") => Tag::Other,
        _ => return Err(bad("unknown type, or wrong number of fields")),
    };
    let (perm, executable_if_any) = match perm {
        Some(letters) => parse_permissions(letters)
            .map(|(perm, x)| (Some(perm), x))
            .ok_or_else(|| bad("the permissions must be a string such as rwx"))?,
        None => (None, false),
    };
    Ok(EntrySpec { is_default, tag, perm, executable_if_any })
}

/// Parses `rwx`, `r-x`, `rX` or `5`.
fn parse_permissions(text: &str) -> Option<(AccessRequest, bool)> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Some((AccessRequest::from_bits_truncate(digit - b'0'), false));
    }
    let (mut perm, mut executable_if_any) = (AccessRequest::empty(), false);
    for letter in text.bytes() {
        match letter {
            b'r' => perm |= AccessRequest::READ,
            b'w' => perm |= AccessRequest::WRITE,
            b'x' => perm |= AccessRequest::EXEC,
            b'X' => executable_if_any = true,
            b'-' => {}
            _ => return None,
        }
    }
    (!text.is_empty()).then_some((perm, executable_if_any))
}

/// Returns `rw-`.
pub fn letters(perm: AccessRequest) -> String {
    [(AccessRequest::READ, 'r'), (AccessRequest::WRITE, 'w'), (AccessRequest::EXEC, 'x')]
        .map(|(bit, letter)| if perm.contains(bit) { letter } else { '-' })
        .iter()
        .collect()
}

/// The entries of a list that is being changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draft(Vec<Entry>);

/// Whether the mask is calculated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MaskIs {
    Counted,
    Unchanged,
}

impl Draft {
    pub fn of(acl: &Acl) -> Self {
        Self(acl.entries().to_vec())
    }

    /// Creates a list without entries.
    pub fn empty() -> Self {
        Self(Vec::new())
    }

    /// Returns the three entries that every list has.
    #[must_use]
    pub fn base(mut self) -> Self {
        self.strip();
        self
    }

    /// Sets an entry.
    pub fn set(&mut self, tag: Tag, perm: AccessRequest) {
        self.0.retain(|entry| entry.tag != tag);
        self.0.push(Entry { tag, perm });
    }

    pub fn remove(&mut self, tag: Tag) {
        self.0.retain(|entry| entry.tag != tag);
    }

    /// Removes all but the three entries that every list has.
    pub fn strip(&mut self) {
        self.0.retain(|entry| matches!(entry.tag, Tag::Owner | Tag::OwningGroup | Tag::Other));
    }

    pub fn get(&self, tag: Tag) -> Option<AccessRequest> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    /// Calculates the mask: the union of the permissions of named users and all groups. A list that needs no mask gets none.
    pub fn count_mask(&mut self, mask: MaskIs) {
        let is_named = |entry: &Entry| matches!(entry.tag, Tag::User(_) | Tag::Group(_));
        let is_needed = self.0.iter().any(is_named);
        let old = self.get(Tag::Mask);
        let group = self.get(Tag::OwningGroup).unwrap_or(AccessRequest::empty());
        match (mask, old) {
            (MaskIs::Counted, Some(_)) => {}
            (MaskIs::Unchanged, Some(_)) => return,
            (_, None) if !is_needed => return,
            (MaskIs::Unchanged, None) => return self.set(Tag::Mask, group),
            (MaskIs::Counted, None) => {}
        }
        let union = self.0.iter().filter(|entry| is_named(entry)).fold(group, |all, entry| all | entry.perm);
        self.set(Tag::Mask, union);
    }

    /// Returns the list. Fails if an entry that every list has is missing.
    pub fn finish(self) -> Result<Acl, Report> {
        const CAUSE: &str = "entries for the owner, the group and others are required, and a mask if users or \
                             groups are named";
        let report =
            |_| Report::new("invalid ACL", CAUSE).help("add the missing entries: u::rw,g::r,o::r,m::rw");
        Acl::new(self.0).map_err(report)
    }
}

/// The output format of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclStyle {
    pub numeric: bool,
    pub effective: Effective,
    /// Whether comments are aligned in a column, as on a terminal.
    pub aligned: bool,
}

/// When to show the permissions that the mask leaves of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effective {
    WhereLess,
    Always,
    Never,
}

/// Returns the lines of a list, each with `prefix`.
pub fn lines(acl: &Acl, prefix: &str, style: AclStyle, owners: &Owners) -> String {
    let mask = acl.entries().iter().find(|entry| entry.tag == Tag::Mask).map(|entry| entry.perm);
    let name = |name: Option<&[u8]>, id: u32| match name.filter(|_| !style.numeric) {
        Some(name) => crate::report::printable(name),
        None => id.to_string(),
    };
    let mut text = String::new();
    for Entry { tag, perm } in acl.entries() {
        let who = match tag {
            Tag::Owner => "user:".to_owned(),
            Tag::User(uid) => format!("user:{}", name(owners.user(*uid), *uid)),
            Tag::OwningGroup => "group:".to_owned(),
            Tag::Group(gid) => format!("group:{}", name(owners.group(*gid), *gid)),
            Tag::Mask => "mask:".to_owned(),
            Tag::Other => "other:".to_owned(),
        };
        let line = format!("{prefix}{who}:{}", letters(*perm));
        text.push_str(&line);
        let masked = matches!(tag, Tag::User(_) | Tag::Group(_) | Tag::OwningGroup);
        if let Some(mask) = mask.filter(|_| masked) {
            let is_less = *perm & mask != *perm;
            let reports = match style.effective {
                Effective::WhereLess => is_less,
                Effective::Always => true,
                Effective::Never => false,
            };
            if reports {
                // The column of the fourth tab stop.
                let tabs = if style.aligned { 4_usize.saturating_sub(line.len() / 8).max(1) } else { 1 };
                text.push_str(&"\t".repeat(tabs));
                text.push_str(&format!("#effective:{}", letters(*perm & mask)));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use obento::base::Mode;

    fn owners() -> Owners {
        Owners::from_files(b"ann:x:1000:100::\n", b"staff:x:50:\n")
    }

    fn specs(text: &str, says: EntryForm) -> Option<Vec<EntrySpec>> {
        parse(text, says, &owners()).ok()
    }

    #[test]
    fn entries_parse_in_every_form_of_setfacl() {
        let one = |text: &str| specs(text, EntryForm::Permissions).unwrap()[0];
        assert_eq!(
            (one("u:ann:rwx").tag, one("u:ann:rwx").perm(false)),
            (Tag::User(1000), AccessRequest::all())
        );
        assert_eq!(one("user:7:5").perm(false), AccessRequest::READ | AccessRequest::EXEC);
        assert_eq!(one("d:g:staff:rX").tag, Tag::Group(50));
        assert!(one("d:g:staff:rX").is_default && one("default:o:-").is_default);
        assert_eq!(one("g:50:rX").perm(true), AccessRequest::READ | AccessRequest::EXEC);
        assert_eq!(one("g:50:rX").perm(false), AccessRequest::READ);
        assert_eq!((one("m:rx").tag, one("m::rx").tag, one("o::r").tag), (Tag::Mask, Tag::Mask, Tag::Other));
        assert_eq!(specs("u::rw-,g::r--\n# a comment\no::---", EntryForm::Permissions).unwrap().len(), 3);
        assert_eq!(specs("u:ann,g:50,m,d:u:ann:", EntryForm::WhomAlone).unwrap().len(), 4);
        for bad in ["u:bob:rwx", "x:ann:r", "u:ann:q", "u:ann", "m:ann:r", "u:ann:", ":::", "u:ann:rw:x"] {
            assert_eq!(specs(bad, EntryForm::Permissions), None, "{bad:?}");
        }
        assert_eq!(specs("u:ann:rwx", EntryForm::WhomAlone), None);
    }

    #[test]
    fn the_mask_is_the_union_of_the_entries_that_it_masks() {
        let mut draft = Draft::of(&Acl::from_mode(Mode::new(0o640)));
        draft.count_mask(MaskIs::Counted);
        assert_eq!(draft.get(Tag::Mask), None);
        draft.set(Tag::User(7), AccessRequest::WRITE);
        let mut kept = draft.clone();
        draft.count_mask(MaskIs::Counted);
        assert_eq!(draft.get(Tag::Mask), Some(AccessRequest::READ | AccessRequest::WRITE));
        kept.count_mask(MaskIs::Unchanged);
        assert_eq!(kept.get(Tag::Mask), Some(AccessRequest::READ));
        draft.remove(Tag::Mask);
        assert!(draft.clone().finish().is_err());
        draft.strip();
        assert_eq!(draft.finish().unwrap(), Acl::from_mode(Mode::new(0o640)));
    }

    #[test]
    fn lists_look_like_those_of_getfacl() {
        let mut draft = Draft::of(&Acl::from_mode(Mode::new(0o640)));
        draft.set(Tag::User(1000), AccessRequest::all());
        draft.set(Tag::Group(50), AccessRequest::READ);
        draft.set(Tag::Mask, AccessRequest::READ);
        let style = AclStyle { numeric: false, effective: Effective::WhereLess, aligned: true };
        assert_eq!(
            lines(&draft.finish().unwrap(), "", style, &owners()),
            "user::rw-\nuser:ann:rwx\t\t\t#effective:r--\ngroup::r--\ngroup:staff:r--\nmask::r--\nother::---\n"
        );
    }
}
