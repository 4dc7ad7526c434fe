//! Names of users and groups as an image knows them.
//!
//! Invariant: at most [`MAX_BYTES`] of each file are read, so that a hostile image cannot fill the memory.
//! Source: passwd(5), group(5).

use std::collections::HashMap;

use obento_vfs::Symlinks;

use super::Volume;
use crate::Place;

/// Ten times what a large site has.
const MAX_BYTES: usize = 4 << 20;

/// The names of users and groups. A number that has none is printed as a number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    login_groups: HashMap<u32, u32>,
}

impl Owners {
    pub(crate) fn read(volume: &Volume) -> Self {
        Self::from_files(&read_file(volume, b"/etc/passwd"), &read_file(volume, b"/etc/group"))
    }

    /// What these contents of `/etc/passwd` and `/etc/group` say.
    pub fn from_files(passwd: &[u8], group: &[u8]) -> Self {
        Self { users: parse(passwd), groups: parse(group), login_groups: parse_login_groups(passwd) }
    }

    /// The name of the user `uid`.
    pub fn user(&self, uid: u32) -> Option<&[u8]> {
        self.users.get(&uid).map(Vec::as_slice)
    }

    /// The name of the group `gid`.
    pub fn group(&self, gid: u32) -> Option<&[u8]> {
        self.groups.get(&gid).map(Vec::as_slice)
    }

    /// The number of the user called `name`.
    pub fn uid(&self, name: &[u8]) -> Option<u32> {
        find(&self.users, name)
    }

    /// The login group of the user `uid`.
    pub fn login_group(&self, uid: u32) -> Option<u32> {
        self.login_groups.get(&uid).copied()
    }

    /// The number of the group called `name`.
    pub fn gid(&self, name: &[u8]) -> Option<u32> {
        find(&self.groups, name)
    }
}

/// The smallest number with this name, so that the answer does not depend on the order of a hash.
fn find(names: &HashMap<u32, Vec<u8>>, name: &[u8]) -> Option<u32> {
    names.iter().filter(|(_, known)| *known == name).map(|(&id, _)| id).min()
}

/// The file's bytes as far as they can be read; none if there is no such file.
fn read_file(volume: &Volume, path: &[u8]) -> Vec<u8> {
    let Ok(node) = volume.resolve(&Place::Path(path.to_vec()), Symlinks::Follow) else { return Vec::new() };
    let size = node.attr().map_or(0, |attr| attr.size);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(MAX_BYTES)];
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

/// Lines of `name:password:number:...`; of two names for a number the first counts, as for getpwuid(3).
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

/// The fourth field of a line of passwd.
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
