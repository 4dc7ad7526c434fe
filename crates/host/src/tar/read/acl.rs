//! POSIX ACLs from words: the other way of [`super::super::acl`].
//!
//! Source: star(5), "SCHILY.acl.access": entries between commas or line feeds, `tag:name:permissions`, behind which the
//! number of the name may follow.

/// `ACL_UNDEFINED_ID`: the id of an entry that names nobody.
const NOBODY: u32 = u32::MAX;

/// The attribute's value; none if `text` is no list, or names somebody without a number.
pub(super) fn from_text(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        entries.push(parse(entry)?);
    }
    // Readers want them by tag, and those of one tag by id.
    entries.sort_unstable();
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in &entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    (!entries.is_empty()).then_some(value)
}

fn parse(entry: &str) -> Option<(u16, u32, u16)> {
    let fields: Vec<&str> = entry.split(':').collect();
    // `mask:rwx` and `other:rwx` are short for `mask::rwx`.
    let (tag, name, permissions, number) = match *fields.as_slice() {
        [tag, permissions] => (tag, "", permissions, None),
        [tag, name, permissions] => (tag, name, permissions, None),
        [tag, name, permissions, number] => (tag, name, permissions, Some(number)),
        _ => return None,
    };
    let id = || number.unwrap_or(name).parse::<u32>().ok();
    let (tag, id) = match (tag, name) {
        ("user" | "u", "") => (0x01, NOBODY),
        ("user" | "u", _) => (0x02, id()?),
        ("group" | "g", "") => (0x04, NOBODY),
        ("group" | "g", _) => (0x08, id()?),
        ("mask" | "m", _) => (0x10, NOBODY),
        ("other" | "o", _) => (0x20, NOBODY),
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
    Some((tag, id, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worded_is_read_back() {
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
