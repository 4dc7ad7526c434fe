//! The descriptor of a VMDK: lines of `name=value`, which describe the disk and its files.
//!
//! Source: VMware, "Virtual Disk Format 5.0", "The Descriptor File".

use crate::error::Opening;

/// The start of a descriptor that is a file of its own.
const SIGNATURE: &[u8] = b"# Disk DescriptorFile";
/// The most bytes that are read. qemu reads at most 20 sectors; VMware writes 20.
pub(crate) const LEN_MAX: u64 = 64 << 10;
/// `parentCID` of a disk without a parent.
const NO_PARENT: &[u8] = b"ffffffff";
/// The types whose data is in the file with the descriptor.
const COMPLETE: [&[u8]; 2] = [b"monolithicSparse", b"streamOptimized"];

pub(crate) fn is_descriptor(start: &[u8]) -> bool {
    start.starts_with(SIGNATURE)
}

/// Checks that the disk is complete in the file that contains the descriptor.
///
/// # Errors
///
/// Unsupported for a parent image and for data in other files.
pub(crate) fn check(text: &[u8]) -> Result<(), Opening> {
    // The descriptor is padded with zeros.
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    for line in text.split(|&byte| byte == b'\n') {
        let mut parts = line.splitn(2, |&byte| byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let value = value.trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
        if name.trim_ascii() == b"parentCID" && !value.eq_ignore_ascii_case(NO_PARENT) {
            return Err(Opening::Unsupported("a parent image (a differencing disk)"));
        }
        let is_complete = || COMPLETE.iter().any(|known| value.eq_ignore_ascii_case(known));
        if name.trim_ascii() == b"createType" && !is_complete() {
            return Err(Opening::Unsupported("its data in other files"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_disk_that_is_complete_in_its_file_passes() {
        let complete =
            b"# Disk DescriptorFile\nparentCID=ffffffff\ncreateType=\"monolithicSparse\"\n\0\0parentCID=1";
        assert!(check(complete).is_ok());
        assert!(check(b"parentCID=FFFFFFFF\r\ncreateType=\"streamOptimized\"\r\n").is_ok());
        for other in
            [&b"parentCID=12345678\n"[..], b"createType=\"twoGbMaxExtentSparse\"\n", b"createType=vmfs"]
        {
            assert!(matches!(check(other), Err(Opening::Unsupported(_))));
        }
    }
}
