//! The map of users: lines `UID:GID:SID` in the file `.NTFS-3G/UserMapping` of the volume.
//!
//! Source: ntfs-3g documentation, "Ownership and permissions", user mapping.

use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::layout::bytes::u32_at;

/// Longest map that is read.
pub const LEN_MAX: u64 = 64 << 10;

/// The map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMap(Vec<Line>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    uid: Option<u32>,
    gid: Option<u32>,
    sid: Vec<u8>,
}

impl UserMap {
    /// Decodes the contents of the file. Comments, names of users and patterns are skipped.
    pub fn decode(text: &[u8]) -> Self {
        let text = core::str::from_utf8(text).unwrap_or_default();
        let line = |line: &str| {
            let mut fields = line.trim().splitn(3, ':');
            let (uid, gid, sid) = (fields.next()?, fields.next()?, fields.next()?);
            let (uid, gid) = (uid.parse().ok(), gid.parse().ok());
            let is_line = !line.starts_with('#') && (uid.is_some() || gid.is_some());
            is_line.then(|| Line { uid, gid, sid: sid.trim().as_bytes().to_vec() })
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Returns whether the volume has no map.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the user of a SID.
    pub fn uid(&self, sid: &[u8]) -> Option<u32> {
        let text = text(sid)?;
        self.0.iter().filter(|line| line.sid == text).find_map(|line| line.uid)
    }

    /// Returns the group of a SID.
    pub fn gid(&self, sid: &[u8]) -> Option<u32> {
        let text = text(sid)?;
        self.0.iter().filter(|line| line.sid == text).find_map(|line| line.gid)
    }
}

/// Writes a SID as `S-1-5-...`.
pub fn text(sid: &[u8]) -> Option<Vec<u8>> {
    let [_, _, high_0, high_1, a, b, c, d, ..] = *sid else { return None };
    let authority = u64::from_be_bytes([0, 0, high_0, high_1, a, b, c, d]);
    let mut text = alloc::string::String::new();
    write!(text, "S-1-{authority}").ok()?;
    for part in sid.get(8..)?.chunks_exact(4) {
        write!(text, "-{}", u32_at(part, 0)?).ok()?;
    }
    Some(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_names_users_and_groups_by_their_sids() {
        let map = UserMap::decode(b"# map\n1000:1001:S-1-5-21-1000\n:20:S-1-5-32-545\nguest::S-1-5-7\n");
        let user = [1, 2, 0, 0, 0, 0, 0, 5, 21, 0, 0, 0, 0xe8, 3, 0, 0];
        let users = [1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x21, 2, 0, 0];
        assert_eq!((map.uid(&user), map.gid(&user)), (Some(1000), Some(1001)));
        assert_eq!((map.uid(&users), map.gid(&users)), (None, Some(20)));
        assert!(UserMap::decode(b"").is_empty());
    }
}
