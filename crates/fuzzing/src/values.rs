//! Small values, each by itself: lists of permissions, owners, signatures, messages.

use obento::Owners;
use obento::driver::Driver as _;
use obento::engine::LinuxDriver;
use obento::engine::types::{TYPES, WINDOW};
use obento_block::MemDevice;
use obento_linux_wire::{Answer, Envelope, decode, encode};
use obento_vfs::acl::Acl;

/// The value of an attribute with a POSIX ACL: a list that is one stays itself.
pub fn acl(data: &[u8]) {
    let Ok(list) = Acl::decode(data) else { return };
    assert_eq!(Acl::decode(&list.encode()).as_ref(), Ok(&list));
    assert!(list.mode().bits() <= 0o777);
    assert!(!list.is_mode_alone() || list.encode().len() == 4 + 3 * 8);
}

/// `/etc/passwd`, and `/etc/group` behind the first NUL.
pub fn owners(data: &[u8]) {
    let mut files = data.splitn(2, |&byte| byte == 0);
    let (passwd, group) = (files.next().unwrap_or_default(), files.next().unwrap_or_default());
    let owners = Owners::from_files(passwd, group);
    for id in (0..2000).chain([u32::MAX - 1, u32::MAX]) {
        if let Some(name) = owners.user(id) {
            assert!(!name.is_empty() && owners.uid(name).is_some_and(|smallest| smallest <= id));
        }
        if let Some(name) = owners.group(id) {
            assert!(!name.is_empty() && owners.gid(name).is_some_and(|smallest| smallest <= id));
        }
        let _ = owners.login_group(id);
    }
}

/// What the kernel engine's types are known by: the first byte chooses one, whose mark is put right, and the others fill all
/// that a probe looks at, again and again.
pub fn engine_probe(data: &[u8]) {
    let Some((&choice, data)) = data.split_first().filter(|(_, data)| !data.is_empty()) else { return };
    let len = usize::try_from(WINDOW).expect("it fits memory");
    let mut bytes: Vec<u8> = data.iter().copied().cycle().take(len).collect();
    for mark in TYPES[usize::from(choice) % TYPES.len()].marks {
        let at = usize::try_from(mark.at).expect("a mark lies within what is read");
        bytes[at..at + mark.bytes.len()].copy_from_slice(mark.bytes);
    }
    let device = MemDevice::read_only(bytes);
    for driver in LinuxDriver::all() {
        if let Ok(Some(probe)) = driver.probe(&device) {
            assert!(driver.names().contains(&probe.fs_type) && !probe.label.contains(&0));
        }
    }
}

/// What each side of the kernel engine reads from the other: bytes that are a message are those that it is written as.
pub fn engine_wire(data: &[u8]) {
    if let Some(answer) = decode::<Answer>(data) {
        assert_eq!(encode(&answer), data);
    }
    if let Some(envelope) = decode::<Envelope>(data) {
        assert_eq!(encode(&envelope), data);
    }
}

/// Decompresses data as NTFS stores it. The first byte chooses the method. Nothing outside of the output is written, and the same input
/// gives the same output.
pub fn ntfs_codecs(data: &[u8]) {
    let Some((&method, data)) = data.split_first() else { return };
    let run = |fill: u8| {
        let mut output = vec![fill; if method % 3 == 0 { 64 << 10 } else { 32 << 10 }];
        let done = match method % 3 {
            0 => obento_ntfs::lznt1::decompress(data, &mut output),
            1 => obento_ntfs::xpress::decompress(data, &mut output),
            _ => obento_ntfs::lzx::decompress(data, &mut output),
        };
        done.map(|()| output)
    };
    assert_eq!(run(0), run(0xff), "all of the output is written");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn the_seeds_are_lists_and_messages() {
        assert!(seeds::acls().iter().all(|list| Acl::decode(list).is_ok()));
        let is_message =
            |bytes: &Vec<u8>| decode::<Answer>(bytes).is_some() || decode::<Envelope>(bytes).is_some();
        assert!(seeds::messages().iter().all(is_message));
    }
}
