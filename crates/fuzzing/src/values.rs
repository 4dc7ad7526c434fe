//! Targets for small values: access control lists, owners, signatures, messages.

use obento::driver::Driver as _;
use obento::engine::LinuxDriver;
use obento::engine::types::{TYPES, WINDOW};
use obento::volume::Owners;
use obento_block::MemDevice;
use obento_linux_wire::{Answer, Envelope, decode, encode};
use obento_vfs::acl::Acl;

/// Decodes the value of an attribute with a POSIX ACL. Encoding a valid list gives the same bytes.
pub fn acl(data: &[u8]) {
    let Ok(list) = Acl::decode(data) else { return };
    assert_eq!(Acl::decode(&list.encode()).as_ref(), Ok(&list));
    assert!(list.mode().bits() <= 0o777);
    assert!(!list.is_mode_alone() || list.encode().len() == 4 + 3 * 8);
}

/// Reads `/etc/passwd`, and `/etc/group` after the first NUL.
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

/// Probes the types of the kernel engine. The first byte chooses a type, whose magic number is written; the other
/// bytes, repeated, fill everything that the probe reads.
pub fn engine_probe(data: &[u8]) {
    let Some((&choice, data)) = data.split_first().filter(|(_, data)| !data.is_empty()) else { return };
    let len = usize::try_from(WINDOW).expect("it fits memory");
    let mut bytes: Vec<u8> = data.iter().copied().cycle().take(len).collect();
    for mark in TYPES[usize::from(choice) % TYPES.len()].marks {
        let at = usize::try_from(mark.at).expect("a mark is inside the range that is read");
        bytes[at..at + mark.bytes.len()].copy_from_slice(mark.bytes);
    }
    let device = MemDevice::read_only(bytes);
    for driver in LinuxDriver::all() {
        if let Ok(Some(probe)) = driver.probe(&device) {
            assert!(driver.names().contains(&probe.fs_type) && !probe.label.contains(&0));
        }
    }
}

/// Decodes the messages that each side of the kernel engine receives. Encoding a valid message gives the same bytes.
pub fn engine_wire(data: &[u8]) {
    if let Some(answer) = decode::<Answer>(data) {
        assert_eq!(encode(&answer), data);
    }
    if let Some(envelope) = decode::<Envelope>(data) {
        assert_eq!(encode(&envelope), data);
    }
}

/// Decompresses data as JFFS2 stores it. The first byte is the number of the codec. The same input always gives the same
/// output.
pub fn jffs2_codecs(data: &[u8]) {
    let Some((&codec, data)) = data.split_first() else { return };
    let unpacked = || {
        let mut output = vec![0; 4096];
        obento_jffs2::codec::decompress(codec % 10, data, &mut output).map(|()| output)
    };
    assert_eq!(unpacked(), unpacked());
}

/// Decompresses data as bcachefs stores it. The first byte chooses the method. The same input gives the same output.
pub fn bcachefs_codecs(data: &[u8]) {
    let Some((&method, data)) = data.split_first() else { return };
    let compression =
        obento_bcachefs::codec::Compression::decode([3, 2, 4][usize::from(method % 3)]).expect("known");
    for len in [2, 512, 4096, 65536] {
        let (mut output, mut again) = (vec![0; len], vec![0xaa; len]);
        let (first, second) =
            (compression.decompress(data, &mut output), compression.decompress(data, &mut again));
        assert_eq!(first, second);
        assert!(first.is_none() || output == again, "the output depends on the old contents of the buffer");
    }
}

/// Decompresses data in the formats of NTFS. The first byte chooses the method. Nothing is written outside of the
/// output, and the same input gives the same output.
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
