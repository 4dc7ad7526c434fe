//! The names of users and groups that an image contains.
//!
//! Invariant: at most [`Owners::MAX_BYTES`] of each file are read, so that a hostile image cannot exhaust memory.
//! Source: passwd(5), group(5).

use std::collections::HashMap;

use obento_vfs::Symlinks;

use super::Volume;
use crate::address::FileSelector;

/// The names of users and groups of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    login_groups: HashMap<u32, u32>,
}

impl Owners {
    /// Maximum number of bytes of a file that are parsed. It is ten times the size of the files of a large site.
    pub const MAX_BYTES: usize = 4 << 20;

    /// Reads `/etc/passwd` and `/etc/group` of `volume`. A file that cannot be read gives no names.
    pub fn read(volume: &Volume) -> Self {
        Self::from_files(&read_file(volume, b"/etc/passwd"), &read_file(volume, b"/etc/group"))
    }

    /// Parses the contents of `/etc/passwd` and `/etc/group`.
    pub fn from_files(passwd: &[u8], group: &[u8]) -> Self {
        Self { users: parse(passwd), groups: parse(group), login_groups: parse_login_groups(passwd) }
    }

    /// Returns the name of the user `uid`.
    pub fn user(&self, uid: u32) -> Option<&[u8]> {
        self.users.get(&uid).map(Vec::as_slice)
    }

    /// Returns the name of the group `gid`.
    pub fn group(&self, gid: u32) -> Option<&[u8]> {
        self.groups.get(&gid).map(Vec::as_slice)
    }

    /// Returns the number of the user `name`.
    pub fn uid(&self, name: &[u8]) -> Option<u32> {
        find(&self.users, name)
    }

    /// Returns the login group of the user `uid`.
    pub fn login_group(&self, uid: u32) -> Option<u32> {
        self.login_groups.get(&uid).copied()
    }

    /// Returns the number of the group `name`.
    pub fn gid(&self, name: &[u8]) -> Option<u32> {
        find(&self.groups, name)
    }
}

/// Returns the smallest number with this name, so that the result does not depend on the order of a hash
/// table.
fn find(names: &HashMap<u32, Vec<u8>>, name: &[u8]) -> Option<u32> {
    names.iter().filter(|(_, known)| *known == name).map(|(&id, _)| id).min()
}

/// Reads the bytes of a file up to the first error. Returns no bytes if the file does not exist.
fn read_file(volume: &Volume, path: &[u8]) -> Vec<u8> {
    let Ok(node) = volume.resolve(&FileSelector::Path(path.to_vec()), Symlinks::Follow) else {
        return Vec::new();
    };
    let size = node.attr().map_or(0, |attr| attr.size);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(Owners::MAX_BYTES)];
    let mut done = 0;
    while done < bytes.len() {
        match node.read_at(done as u64, &mut bytes[done..]) {
            Ok(0) | Err(_) => break,
            Ok(len) => done += len,
        }
    }
    bytes.truncate(done);
    bytes
}

/// Parses lines of the form `name:password:number:...`. The first name of a number is used, as in
/// getpwuid(3).
fn parse(bytes: &[u8]) -> HashMap<u32, Vec<u8>> {
    let mut names = HashMap::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b':');
        let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else { continue };
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|_| !name.is_empty()) {
            names.entry(number).or_insert_with(|| name.to_vec());
        }
    }
    names
}

/// Parses the fourth field of the lines of passwd.
fn parse_login_groups(passwd: &[u8]) -> HashMap<u32, u32> {
    let mut groups = HashMap::new();
    for line in passwd.split(|&byte| byte == b'\n') {
        let mut numbers = line.split(|&byte| byte == b':').skip(2).take(2).map(|field| {
            let text = std::str::from_utf8(field).ok();
            text.and_then(|text| text.parse().ok())
        });
        if let (Some(Some(uid)), Some(Some(gid))) = (numbers.next(), numbers.next()) {
            groups.entry(uid).or_insert(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_counts_and_broken_lines_are_skipped() {
        let names =
            parse(b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0\n\n:x:1:1\nodd\nx:y\nz:y:-1:\na\xff:x:7:7::");
        assert_eq!(names, HashMap::from([(0, b"root".to_vec()), (7, b"a\xff".to_vec())]));
    }
}
