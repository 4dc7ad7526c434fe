//! POSIX ACLs in text form, with numbers of owners: `user::rw-,user:7:rwx,group::r--,mask::rwx,other::---`.
//!
//! Layout of the attribute, little-endian: a version of 4 bytes (2), then for each entry tag (2), permissions
//! (2) and id (4).
//! Source: Linux `include/uapi/linux/posix_acl_xattr.h` and `posix_acl.h`; acl(5).

use obento_base::Cursor;
use obento_base::wire::le;

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;

/// Returns the text form of the ACL in the attribute `value`, or `None` if the value is not an ACL.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let mut cursor = Cursor::new(value);
    if cursor.take_raw::<le::U32>()?.get() != VERSION {
        return None;
    }
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        let tag = cursor.take_raw::<le::U16>()?.get();
        let permissions = cursor.take_raw::<le::U16>()?.get();
        let id = cursor.take_raw::<le::U32>()?.get();
        let who = match tag {
            0x01 => "user:".into(),
            0x02 => format!("user:{id}"),
            0x04 => "group:".into(),
            0x08 => format!("group:{id}"),
            0x10 => "mask:".into(),
            0x20 => "other:".into(),
            _ => return None,
        };
        let letter = |bit, letter| if permissions & bit == 0 { '-' } else { letter };
        entries.push(format!("{who}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')));
    }
    (!entries.is_empty()).then(|| entries.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_is_worded_as_acl_from_text_reads_it() {
        let mut value = vec![2, 0, 0, 0];
        for (tag, permissions, id) in [(1_u16, 6_u16, u32::MAX), (2, 7, 7), (4, 4, 0), (8, 1, 9), (32, 0, 0)]
        {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        let text = "user::rw-,user:7:rwx,group::r--,group:9:--x,other::---";
        assert_eq!(to_text(&value).as_deref(), Some(text));
        value.pop();
        assert_eq!([to_text(&value), to_text(&[]), to_text(&[3, 0, 0, 0])], [None, None, None]);
    }
}
