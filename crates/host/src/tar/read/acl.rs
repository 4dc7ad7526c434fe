//! Parses the text form of POSIX ACLs: the inverse of [`super::super::acl`].
//!
//! Source: star(5), "SCHILY.acl.access": entries `tag:name:permissions`, separated by commas or line feeds.
//! The number of the name may follow.

/// `ACL_UNDEFINED_ID`: the id of an entry without a name.
const NOBODY: u32 = u32::MAX;

/// Keys of the records with an access control list in text form, and the attributes of the lists.
pub const ACL_WORDS: [(&[u8], &[u8]); 2] = [
    (b"SCHILY.acl.access", b"system.posix_acl_access"),
    (b"SCHILY.acl.default", b"system.posix_acl_default"),
];

/// The name in an entry of an access control list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclName<'a> {
    /// A user.
    User(&'a str),
    /// A group.
    Group(&'a str),
}

/// Returns the attribute value for a list in text form. `number` returns the number of each name that has
/// none in the text; an entry without a number is skipped. Returns `None` if `text` is not a list.
pub fn acl_from_words(text: &[u8], number: &mut dyn FnMut(AclName<'_>) -> Option<u32>) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        // A comment follows: `#effective:r--`.
        let entry = entry.split_once('#').map_or(entry, |(entry, _)| entry.trim_end());
        entries.extend(parse(entry, number)?);
    }
    // Readers require the order by tag, and by id within a tag.
    entries.sort_unstable();
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in &entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    (!entries.is_empty()).then_some(value)
}

/// Returns the attribute value, or `None` if `text` is not a list or contains a name without a number.
pub(super) fn from_text(text: &[u8]) -> Option<Vec<u8>> {
    let mut has_all = true;
    let value = acl_from_words(text, &mut |_| {
        has_all = false;
        None
    });
    value.filter(|_| has_all)
}

/// Parses an entry into tag, id and permissions. The inner result is `None` if the name has no number.
/// Returns `None` if the text is not an entry.
fn parse(
    entry: &str,
    number_of: &mut dyn FnMut(AclName<'_>) -> Option<u32>,
) -> Option<Option<(u16, u32, u16)>> {
    let fields: Vec<&str> = entry.split(':').collect();
    // `mask:rwx` and `other:rwx` are short for `mask::rwx`.
    let (tag, name, permissions, number) = match *fields.as_slice() {
        [tag, permissions] => (tag, "", permissions, None),
        [tag, name, permissions] => (tag, name, permissions, None),
        [tag, name, permissions, number] => (tag, name, permissions, Some(number)),
        _ => return None,
    };
    let mut id = |named: fn(&str) -> AclName<'_>| {
        let written = number.unwrap_or(name).parse::<u32>().ok();
        written.or_else(|| number_of(named(name)))
    };
    let (tag, id) = match (tag, name) {
        ("user" | "u", "") => (0x01, Some(NOBODY)),
        ("user" | "u", _) => (0x02, id(|name| AclName::User(name))),
        ("group" | "g", "") => (0x04, Some(NOBODY)),
        ("group" | "g", _) => (0x08, id(|name| AclName::Group(name))),
        ("mask" | "m", _) => (0x10, Some(NOBODY)),
        ("other" | "o", _) => (0x20, Some(NOBODY)),
        _ => return None,
    };
    let bits = permissions.trim().chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            },
        )
    })?;
    Some(id.map(|id| (tag, id, bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_text_is_parsed_back() {
        let text = "user::rw-,user:7:rwx,group::r--,group:9:--x,mask::rwx,other::---";
        let value = from_text(text.as_bytes()).unwrap();
        assert_eq!(super::super::super::acl::to_text(&value).as_deref(), Some(text));
        let named = from_text(b"user::rw-\nuser:joe:r--:7\ngroup::r--\nmask:r--\nother:---\n").unwrap();
        let again = super::super::super::acl::to_text(&named).unwrap();
        assert_eq!(again, "user::rw-,user:7:r--,group::r--,mask::r--,other::---");
        for bad in ["", "user:joe:r--", "nobody::r--", "user::rz-", "a:b:c:d:e"] {
            assert_eq!(from_text(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
